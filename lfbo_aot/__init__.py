"""Ahead-of-time tuning for Helion GPU kernels: tune once for each GPU, ship the answers, serve them.

`get_config` and `resolve` look answers up; `kernel` and `register` declare kernels. Importing this
package loads nothing else: each name is loaded when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    __version__: str

    from lfbo_aot.registry.dims import Exact as Exact
    from lfbo_aot.registry.dims import Range as Range
    from lfbo_aot.runtime.digest import digest as digest
    from lfbo_aot.runtime.environment import Environment as Environment
    from lfbo_aot.runtime.kernel import kernel as kernel
    from lfbo_aot.runtime.kernel import register as register
    from lfbo_aot.runtime.resolution import Resolution as Resolution
    from lfbo_aot.runtime.resolve import get_config as get_config
    from lfbo_aot.runtime.resolve import resolve as resolve
    from lfbo_aot.runtime.state import use_database as use_database
    from lfbo_aot.runtime.state import use_policy as use_policy

_PLACES = {
    "Environment": "lfbo_aot.runtime.environment",
    "Exact": "lfbo_aot.registry.dims",
    "Range": "lfbo_aot.registry.dims",
    "Resolution": "lfbo_aot.runtime.resolution",
    "digest": "lfbo_aot.runtime.digest",
    "get_config": "lfbo_aot.runtime.resolve",
    "kernel": "lfbo_aot.runtime.kernel",
    "register": "lfbo_aot.runtime.kernel",
    "resolve": "lfbo_aot.runtime.resolve",
    "use_database": "lfbo_aot.runtime.state",
    "use_policy": "lfbo_aot.runtime.state",
}

__all__ = [  # noqa: PLE0604 - names of `_PLACES`
    "__version__",
    *_PLACES,
]


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib import metadata

        return metadata.version("lfbo-aot")
    place = _PLACES.get(name)
    if place is None:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    import importlib

    value: object = getattr(importlib.import_module(place), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PLACES})
