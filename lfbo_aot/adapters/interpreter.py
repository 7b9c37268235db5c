"""Triton's interpreter on the CPU: what Helion's generated code needs to run there.

Must be prepared before anything imports triton: the interpreter is chosen when `triton.jit` runs.
"""

from __future__ import annotations

import os
import sys
from typing import Any

# Persistent program ids ask a GPU for its multiprocessors; there is none here.
FIXED: dict[str, Any] = {"pid_type": "flat", "num_sm_multiplier": 1, "maxnreg": None}

_UNARY = ["cbrt", "cosh", "expm1", "isinf", "isnan", "log10", "log1p"]
_UNARY += ["rint", "sinh", "tan", "tanh", "trunc"]
_RENAMED = {"nearbyint": "rint", "acos": "arccos", "acosh": "arccosh", "asin": "arcsin"}
_RENAMED |= {"asinh": "arcsinh", "atan": "arctan", "atanh": "arctanh", "fast_tanhf": "tanh"}
_BINARY = {"pow": "power", "fmod": "fmod", "atan2": "arctan2", "hypot": "hypot"}
_BINARY |= {"copysign": "copysign", "nextafter": "nextafter"}


def prepare() -> None:
    """Choose the interpreter for this process; raises RuntimeError when triton is loaded already."""
    if "triton" in sys.modules and os.environ.get("TRITON_INTERPRET") != "1":
        msg = "triton is already imported: the interpreter needs a process of its own"
        raise RuntimeError(msg)
    os.environ["TRITON_INTERPRET"] = "1"
    _patch_libdevice()


def _patch_libdevice() -> None:
    """Give libdevice functions a body: under the interpreter they are stubs that return None."""
    import numpy as np
    import triton.language as tl
    from triton.language.extra import libdevice
    from triton.runtime.interpreter import TensorHandle

    def delegate(name: str) -> Any:
        # Looked up at the call: the interpreter replaces tl.math's members at each launch.
        return lambda *args: getattr(tl.math, name)(*args)  # noqa: PLW0108

    def by_numpy(name: str) -> Any:
        function = getattr(np, name)

        def call(*args: Any) -> Any:
            first = args[0]
            values = [a.handle.data if hasattr(a, "handle") else a for a in args]
            data = function(*values)
            kind = tl.int1 if data.dtype == np.bool_ else first.dtype
            if data.dtype != np.bool_:
                data = data.astype(values[0].dtype)
            shape = list(data.shape)
            of = tl.block_type(kind, shape) if first.type.is_block() else kind
            return tl.tensor(TensorHandle(data, kind), of)

        return call

    for name in dir(libdevice):
        if not name.startswith("_") and callable(getattr(tl.math, name, None)):
            setattr(libdevice, name, delegate(name))
    for name in [*_UNARY, *_RENAMED]:
        setattr(libdevice, name, by_numpy(_RENAMED.get(name, name)))
    for name, numpy_name in _BINARY.items():
        setattr(libdevice, name, by_numpy(numpy_name))
