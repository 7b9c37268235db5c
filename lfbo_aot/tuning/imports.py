"""What tuning imports in this process, in the order in which it is needed."""

from __future__ import annotations

import contextlib
import threading

from lfbo_aot.adapters.lean import import_helion


def import_soon() -> None:
    """Import Helion without what only its own tuner needs, then the surrogate's library behind it.

    A GPU's processes do the same meanwhile; whoever is ready first waits for the others.
    """
    with contextlib.suppress(ImportError):  # said where the kernels are imported
        import_helion()
    threading.Thread(target=_import_surrogate, daemon=True).start()


def _import_surrogate() -> None:
    with contextlib.suppress(ImportError):
        import sklearn.tree  # noqa: F401
