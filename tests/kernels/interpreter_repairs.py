"""What Triton's interpreter gets wrong of the shipped kernels, mended for these tests' process.

As of triton 3.6 with numpy 2.4; without it three kinds of kernels could not be tested on the CPU.
"""

from __future__ import annotations


def repair():
    """Mend the interpreter of this process; after `adapters.interpreter.prepare()`."""
    from triton.runtime import interpreter

    interpreter._patch_lang_tensor = _whole_numbers(interpreter._patch_lang_tensor)
    interpreter._convert_float = _rounded_to_fp8(interpreter._convert_float)


def _whole_numbers(patch):
    """A loop's bounds that are known at run time only are arrays of one value, not of no dim.

    `int()` of these was deprecated by numpy 1.25 and is an error now.
    """

    def patched(tensor, scope):
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    return patched


def _rounded_to_fp8(convert):
    """Rounding up to the next power of two loses its carry: 127 becomes 64 and not 128."""

    def converted(data, given, wanted, rounding):
        if not (wanted.is_fp8e4nv() and given.is_fp32()):
            return convert(data, given, wanted, rounding)
        import numpy as np
        import torch

        values = torch.from_numpy(np.ascontiguousarray(data).reshape(-1))
        bits = values.to(torch.float8_e4m3fn).view(torch.uint8).numpy()
        return bits.reshape(data.shape)

    return converted
