"""What the kernels' declarations have in common: sizes of real models, and inputs to tune with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from lfbo_aot import Range

if TYPE_CHECKING:
    from collections.abc import Mapping

# Hidden sizes of language models from 0.5 to 400 billion parameters.
HIDDEN = (1024, 2048, 2560, 3072, 4096, 5120, 7168, 8192)
DTYPES = ("bfloat16", "float16")
# Tokens at a time: a decoding batch, a large one, a prefill, a long prefill or a training step.
# Configs are tuned at the upper ends.
TOKENS = Range(1, 65536, edges=[16, 256, 4096])


def normal(
    size: tuple[int, ...], shape: Mapping[str, object], device: torch.device | str, seed: int = 0
) -> torch.Tensor:
    """A tensor of standard normal values of the shape's dtype, the same for the same seed.

    Normal values, and not zeros or ones: what a matrix product draws in power, and so how long it
    takes, depends on its operands' bits.
    """
    generator = torch.Generator(device=device).manual_seed(seed)
    dtype: torch.dtype = getattr(torch, str(shape["dtype"]))
    return torch.randn(size, generator=generator, device=device, dtype=dtype)
