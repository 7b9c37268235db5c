"""Triton's interpreter on the CPU: what Helion's generated code needs to run there.

Must be prepared before anything imports triton: the interpreter is chosen when `triton.jit` runs.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING
from typing import Any

if TYPE_CHECKING:
    from collections.abc import Callable

# Persistent program ids ask a GPU for its multiprocessors; there is none here.
FIXED: dict[str, Any] = {"pid_type": "flat", "num_sm_multiplier": 1, "maxnreg": None}

_UNARY = ["cbrt", "cosh", "expm1", "isinf", "isnan", "log10", "log1p"]
_UNARY += ["rint", "sinh", "tan", "tanh", "trunc"]
_RENAMED = {"nearbyint": "rint", "acos": "arccos", "acosh": "arccosh", "asin": "arcsin"}
_RENAMED |= {"asinh": "arcsinh", "atan": "arctan", "atanh": "arctanh", "fast_tanhf": "tanh"}
_BINARY = {"pow": "power", "fmod": "fmod", "atan2": "arctan2", "hypot": "hypot"}
_BINARY |= {"copysign": "copysign", "nextafter": "nextafter"}
# The 8-bit floats of NVIDIA's GPUs: triton's names and torch's.
_FP8 = {"fp8e4nv": "float8_e4m3fn", "fp8e5": "float8_e5m2"}


def prepare() -> None:
    """Choose the interpreter for this process; raises RuntimeError when triton is loaded already."""
    if "triton" in sys.modules and os.environ.get("TRITON_INTERPRET") != "1":
        msg = "triton is already imported: the interpreter needs a process of its own"
        raise RuntimeError(msg)
    os.environ["TRITON_INTERPRET"] = "1"
    _patch_libdevice()
    _patch_interpreter()


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


def _patch_interpreter() -> None:
    """Mend what the interpreter gets wrong, as of triton 3.6 with numpy 2.4."""
    from triton.runtime import interpreter

    if interpreter._convert_float.__module__ == __name__:  # noqa: SLF001 - it has no other seam
        return
    interpreter._patch_lang_tensor = _whole_numbers(interpreter._patch_lang_tensor)  # noqa: SLF001
    interpreter._convert_float = _rounded(interpreter._convert_float)  # noqa: SLF001


def _whole_numbers(patch: Callable[..., None]) -> Callable[..., None]:
    """Let `range` take bounds that are known at run time only.

    These are arrays of one value and not of no dim; `int()` of such an array was deprecated by
    numpy 1.25 and is an error now.
    """

    def patched(tensor: Any, scope: Any) -> None:
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    return patched


def _rounded(convert: Callable[..., Any]) -> Callable[..., Any]:
    """Round to 8-bit floats as a GPU does: to the nearest, ties to even, and to the largest at most.

    The interpreter's own rounding up to the next power of two loses the carry: 127 becomes 64 and
    not 128. A GPU's conversions have no other way than to saturate (PTX ISA, `cvt`, `.satfinite`).
    """
    from triton._C.libtriton import ir

    def converted(data: Any, given: Any, wanted: Any, rounding: Any) -> Any:
        if wanted.name not in _FP8 or rounding != ir.ROUNDING_MODE.RTNE:
            return convert(data, given, wanted, rounding)
        import numpy as np
        import torch

        kind = getattr(torch, _FP8[wanted.name])
        values = torch.from_numpy(np.ascontiguousarray(data))
        # numpy has no bfloat16: the interpreter holds its bits.
        values = (values.view(torch.bfloat16) if given.is_bf16() else values).float()
        largest = torch.finfo(kind).max
        return values.clamp(-largest, largest).to(kind).view(torch.uint8).numpy()

    return converted
