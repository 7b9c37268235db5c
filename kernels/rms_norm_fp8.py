"""Root mean square normalisation, quantised to 8-bit floats as the next matrix product takes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import helion.language as hl
import torch

import lfbo_aot
from lfbo_aot import Exact

from .shapes import TOKENS
from .shapes import normal

if TYPE_CHECKING:
    from collections.abc import Mapping


def _inputs(
    shape: Mapping[str, int | str | bool], device: torch.device | str
) -> tuple[torch.Tensor, torch.Tensor]:
    m, n = int(shape["m"]), int(shape["n"])
    return normal((m, n), shape, device), normal((n,), shape, device, seed=1)


def _reference(
    x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6
) -> tuple[torch.Tensor, torch.Tensor]:
    values = x.float()
    normed = values * torch.rsqrt(values.square().mean(dim=-1, keepdim=True) + eps)
    scaled = normed * weight.float()
    scale = scaled.abs().amax(dim=-1, keepdim=True).clamp(min=1e-10) / 448.0
    return (scaled / scale).to(torch.float8_e4m3fn), scale


@lfbo_aot.kernel(
    # Hidden sizes of Llama 3 8B, Mistral 7B and Qwen 3 8B, and of Llama 3 70B.
    dims={"m": TOKENS, "n": Exact(4096, 8192), "dtype": Exact("bfloat16")},
    shape=lambda x, weight, eps: {  # noqa: ARG005 - they follow from x
        "m": x.size(0),
        "n": x.size(1),
        "dtype": x.dtype,
    },
    inputs=_inputs,
    reference=_reference,
    # As in `quantize_fp8` a quotient may round to the next 8-bit float, one in eight apart, below
    # 2**-6 2**-9 apart. A scale holds the sum of a row besides: some units of float32 more.
    tolerance={"float8_e4m3fn": (0.126, 2e-3), "float32": (1e-4, 0.0)},
    small=[
        {"m": 16, "n": 128, "dtype": "float32"},
        {"m": 5, "n": 96, "dtype": "float32"},
    ],
)
def rms_norm_fp8(
    x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6
) -> tuple[torch.Tensor, torch.Tensor]:
    """`rms_norm(x, weight)` as float8_e4m3fn over each row's scale, and the scales.

    These are float32 of size (m, 1): a row's largest magnitude over 448, the largest such float.
    What is normalised is never rounded to the dtype of `x` in between.
    """
    m, n = x.size()
    out = torch.empty([m, n], dtype=torch.float8_e4m3fn, device=x.device)
    scales = torch.empty([m, 1], dtype=torch.float32, device=x.device)
    for rows in hl.tile(m):
        values = x[rows, :].to(torch.float32)
        mean_square = torch.sum(values * values, dim=-1, keepdim=True) / n
        normed = values * torch.rsqrt(mean_square + eps) * weight[:].to(torch.float32)
        largest = torch.amax(torch.abs(normed), dim=-1, keepdim=True)
        # A row of zeros has a scale too.
        scale = torch.clamp(largest, min=1e-10) / 448.0
        out[rows, :] = (normed / scale).to(torch.float8_e4m3fn)
        scales[rows, :] = scale
    return out, scales
