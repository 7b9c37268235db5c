"""Root mean square normalisation of the rows of a matrix, with scale."""

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
) -> tuple[torch.Tensor, torch.Tensor]:
    m, n = int(shape["m"]), int(shape["n"])
    return normal((m, n), shape, device), normal((n,), shape, device, seed=1)


def _reference(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    values = x.float()
    normed = values * torch.rsqrt(values.square().mean(dim=-1, keepdim=True) + eps)
    return (normed * weight.float()).to(x.dtype)


@lfbo_aot.kernel(
    dims={"m": Range(1, 65536, factor=4), "n": Exact(*HIDDEN), "dtype": Exact(*DTYPES)},
    shape=lambda x, weight, eps: {  # noqa: ARG005 - they follow from x
        "m": x.size(0),
        "n": x.size(1),
        "dtype": x.dtype,
    },
    inputs=_inputs,
    reference=_reference,
    # One sum of a row in another order: some units of float32; then one rounding of the dtype.
    tolerance={"float32": (1e-4, 1e-6), "bfloat16": (1.6e-2, 1e-5), "float16": (2e-3, 1e-5)},
    small=[
        {"m": 16, "n": 128, "dtype": "float32"},
        {"m": 5, "n": 96, "dtype": "float32"},
    ],
)
def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """Each row over the root of its mean square, times `weight`, computed in float32."""
    m, n = x.size()
    out = torch.empty_like(x)
    for rows in hl.tile(m):
        values = x[rows, :].to(torch.float32)
        mean_square = torch.sum(values * values, dim=-1, keepdim=True) / n
        normed = values * torch.rsqrt(mean_square + eps)
        out[rows, :] = (normed * weight[:].to(torch.float32)).to(x.dtype)
    return out
