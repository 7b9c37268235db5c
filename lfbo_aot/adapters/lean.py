"""Helion imported without what only its own tuner needs, and warmed up.

scikit-learn and SciPy are a quarter of the seconds that importing Helion takes, and Helion does
without them where they aren't there.
"""

from __future__ import annotations

import contextlib
import gc
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_NOT_NEEDED = ("scipy", "sklearn")


@contextlib.contextmanager
def lean_imports() -> Iterator[None]:
    """While inside, Helion is imported without its own tuner's libraries.

    A module that needs them itself can't be imported meanwhile: such a failure is the sign to try
    again outside.
    """
    absent = [name for name in _NOT_NEEDED if name not in sys.modules]
    enabled = gc.isenabled()
    gc.disable()  # it would look through all that is imported again and again
    for name in absent:
        sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        for name in absent:
            if name in sys.modules and sys.modules[name] is None:
                del sys.modules[name]
        if enabled:
            gc.enable()


def import_helion() -> None:
    """Import Helion, and all that it loads when it first binds a kernel."""
    with lean_imports():
        import helion  # noqa: F401
