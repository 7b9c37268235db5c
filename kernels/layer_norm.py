"""Layer normalisation of the rows of a matrix, with scale and shift."""

from __future__ import annotations

from typing import TYPE_CHECKING

import helion.language as hl
import torch

import lfbo_aot
from lfbo_aot import Exact
from lfbo_aot import Range

from .shapes import DTYPES
from .shapes import HIDDEN
from .shapes import normal

if TYPE_CHECKING:
    from collections.abc import Mapping


def _inputs(
    shape: Mapping[str, int | str | bool], device: torch.device | str
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    m, n = int(shape["m"]), int(shape["n"])
    return (
        normal((m, n), shape, device),
        normal((n,), shape, device, seed=1),
        normal((n,), shape, device, seed=2),
    )


def _reference(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = 1e-5
) -> torch.Tensor:
    normed = torch.nn.functional.layer_norm(
        x.float(), x.shape[-1:], weight.float(), bias.float(), eps
    )
    return normed.to(x.dtype)


@lfbo_aot.kernel(
    dims={"m": Range(1, 65536, factor=4), "n": Exact(*HIDDEN), "dtype": Exact(*DTYPES)},
    shape=lambda x, weight, bias, eps: {  # noqa: ARG005 - they follow from x
        "m": x.size(0),
        "n": x.size(1),
        "dtype": x.dtype,
    },
    inputs=_inputs,
    reference=_reference,
    # Two sums of a row in another order: some units of float32; then one rounding of the dtype.
    # Scale and shift may cancel, so the absolute part is that rounding at values of about 4.
    tolerance={"float32": (1e-4, 1e-5), "bfloat16": (1.6e-2, 1.6e-2), "float16": (2e-3, 2e-3)},
    small=[
        {"m": 16, "n": 128, "dtype": "float32"},
        {"m": 5, "n": 96, "dtype": "float32"},
    ],
)
def layer_norm(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = 1e-5
) -> torch.Tensor:
    """Each row less its mean, over its standard deviation, times `weight`, plus `bias`."""
    m, n = x.size()
    out = torch.empty_like(x)
    for rows in hl.tile(m):
        values = x[rows, :].to(torch.float32)
        mean = torch.sum(values, dim=-1, keepdim=True) / n
        centred = values - mean
        variance = torch.sum(centred * centred, dim=-1, keepdim=True) / n
        normed = centred * torch.rsqrt(variance + eps)
        scaled = normed * weight[:].to(torch.float32) + bias[:].to(torch.float32)
        out[rows, :] = scaled.to(x.dtype)
    return out
