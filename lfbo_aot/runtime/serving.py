"""Stored configs for a Helion kernel: looked up when Helion binds a new specialisation.

Helion's `Kernel.__call__` goes through `self.bind`, so an attribute of that name on the instance is
where a config can be set before Helion thinks of tuning. The bound kernel is then run as any other,
and later calls of the same specialisation don't come here.
"""

from __future__ import annotations

import contextlib
import json
import logging
import threading
from collections.abc import Mapping
from contextvars import ContextVar
from functools import lru_cache
from typing import TYPE_CHECKING
from typing import Any

from lfbo_aot.runtime.versions import loaded_versions

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Iterator
    from collections.abc import Sequence

    from lfbo_aot.registry.spec import KernelSpec

logger = logging.getLogger(__name__)

_unserved: ContextVar[bool] = ContextVar("lfbo_aot_unserved", default=False)


@contextlib.contextmanager
def unserved() -> Iterator[None]:
    """Within it, this thread binds kernels without looking a config up: for tuning."""
    token = _unserved.set(True)
    try:
        yield
    finally:
        _unserved.reset(token)


def unserved_bind(kernel: Any, args: Sequence[Any]) -> Any:
    """The `BoundKernel` of these arguments; no stored config is set on it by this call."""
    return type(kernel).bind(kernel, tuple(args))


def serve(kernel: Any, spec: KernelSpec) -> None:
    """Make `kernel` look configs up by `spec` from now on, in place of what it did before."""
    serving = Serving(kernel, spec)
    kernel.lfbo_aot_spec = spec
    kernel.bind = serving.bind
    for name in ("autotune", "autotune_multi"):
        original = getattr(type(kernel), name, None)
        if original is not None:
            setattr(kernel, name, _without_serving(kernel, original))


def _without_serving(kernel: Any, method: Callable[..., Any]) -> Callable[..., Any]:
    def tune(*args: Any, **kwargs: Any) -> Any:
        with unserved():
            return method(kernel, *args, **kwargs)

    tune.__name__ = method.__name__
    tune.__doc__ = method.__doc__
    return tune


class Serving:
    """One kernel's look-ups, and the configs that failed in this process."""

    def __init__(self, kernel: Any, spec: KernelSpec) -> None:
        self._kernel = kernel
        self._spec = spec
        # Several threads may bind one specialisation at a time; one of them looks it up. Reentrant,
        # as compiling may bind. Never held together with a wait for Helion's own bind lock: that
        # is taken and given back before this one.
        self._lock = threading.RLock()
        self._bad: set[str] = set()
        self._shape_failed = False

    def bind(self, args: tuple[Any, ...]) -> Any:
        """What Helion binds, with its config set; as it comes where tuning was asked for."""
        import torch

        bound = type(self._kernel).bind(self._kernel, args)
        if torch.compiler.is_compiling():
            return bound  # traced: neither locks nor files are for it
        if bound._config is None and self._serves():  # noqa: SLF001 - Helion has no public reader
            with self._lock:
                if bound._config is None:  # noqa: SLF001
                    self._set_config(bound, args)
        return bound

    def _serves(self) -> bool:
        settings = self._kernel.settings
        interpreted_by_torch = getattr(settings.ref_mode, "name", "OFF") != "OFF"
        return not (settings.force_autotune or interpreted_by_torch or _unserved.get())

    def _set_config(self, bound: Any, args: tuple[Any, ...]) -> None:
        """Set the first stored config that works, or the default; one warning where some fail."""
        args = self._kernel.normalize_args(*args)
        failed: list[str] = []
        for count, config in enumerate(self._stored(args)):
            plain = thaw(config)
            text = json.dumps(plain, sort_keys=True, default=str)
            if text in self._bad:
                continue
            reason = _why_not_set(bound, plain)
            if reason is None:
                self._warn(failed, f"its alternate number {count}" if count else "it")
                return
            self._bad.add(text)
            failed.append(f"{text}: {reason}")
        self._set_default(bound)
        self._warn(failed, "Helion's default")

    def _warn(self, failed: Sequence[str], served: str) -> None:
        if failed:
            logger.warning(
                "kernel %s: a stored entry can't be used as it is, and %s is served instead. Not "
                "tried again in this process: %s",
                self._spec.kernel_id,
                served,
                "; ".join(failed),
            )

    def _stored(self, args: tuple[Any, ...]) -> Iterator[Mapping[str, Any]]:
        """The configs to try, best first; none where the default is the answer."""
        from lfbo_aot.errors import ShapeError
        from lfbo_aot.runtime import state
        from lfbo_aot.runtime.environment import Environment
        from lfbo_aot.runtime.notices import warn_once
        from lfbo_aot.runtime.resolve import resolve

        if not self._kernel.settings.static_shapes and self._kernel._key_fn is None:  # noqa: SLF001
            return  # one bound kernel for shapes of several buckets
        if any(type(n) is not int for arg in args for n in getattr(arg, "shape", ())):
            return  # symbolic sizes
        environment = Environment(
            source=self._spec.source, settings=self._spec.settings, versions=_versions()
        )
        try:
            resolution = resolve(self._kernel, args, environment=environment)
        except ShapeError as error:
            # A fault of the declaration isn't one of the call, which needs no stored config.
            if state.on_miss() == "error":
                raise
            if not self._shape_failed:  # one warning for all calls, whose values differ
                self._shape_failed = True
                warn_once(self._spec.kernel_id, f"shape: {error}; Helion's default is served")
            return
        if not resolution.config:
            return
        alternates = getattr(resolution.entry, "alternates", None) or ()
        yield resolution.config
        yield from alternates

    def _set_default(self, bound: Any) -> None:
        if bound.configs:
            return  # the author of a registered kernel chose: Helion takes that
        try:
            bound.set_config(bound.config_spec.default_config())
        except Exception:
            # Not the look-up's fault: the call goes Helion's way, and raises there if it must.
            logger.debug("kernel %s: no default", self._spec.kernel_id, exc_info=True)


def _why_not_set(bound: Any, config: Mapping[str, Any]) -> str | None:
    """Set `config` on `bound`, and None; or why that failed."""
    try:
        reason = misfit(bound, config)
        if reason is None:
            bound.set_config(dict(config))
    except Exception as error:  # noqa: BLE001 - Helion raises of many kinds; another is tried
        return f"{type(error).__name__}: {error}"
    return reason


def misfit(bound: Any, config: Mapping[str, Any]) -> str | None:
    """Why `config` is not of this bound kernel's kind; None where it is.

    Helion checks most values, and raises; but it takes a text for a number of warps, fills short
    lists up, and would run another config than the one stored.
    """
    spec = bound.config_spec
    normal = spec.normalized_config(dict(config)).config
    default = spec.default_config().config
    for key, value in config.items():
        if key not in normal:
            continue  # dropped where another key makes it meaningless
        like = default.get(key, normal[key])
        if not _alike(value, like):
            return f"{key}={value!r} should be like {like!r}"
        if isinstance(value, list) and len(value) != len(normal[key]):
            count = len(normal[key])
            return f"{key}={value!r} has {len(value)} values, and the kernel takes {count}"
    return None


def _alike(value: Any, like: Any) -> bool:
    """Whether two values of one tunable are of one type; None goes with any but a list."""
    if isinstance(like, list):
        if not isinstance(value, list):
            return False
        return all(_alike(item, like[0]) for item in value) if like else True
    if value is None or like is None:
        return not isinstance(value, list)
    return type(value) is type(like)


def thaw(value: Any) -> Any:
    """A plain, mutable copy of what a resolution holds: dicts and lists all the way down."""
    if isinstance(value, Mapping):
        return {key: thaw(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [thaw(item) for item in value]
    return value


@lru_cache(maxsize=1)
def _versions() -> dict[str, str]:
    return loaded_versions()
