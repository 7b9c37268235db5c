"""Softmax over the rows of a matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING

import helion.language as hl
import torch

import lfbo_aot
from lfbo_aot import Exact
from lfbo_aot import Range

from .shapes import DTYPES
from .shapes import normal

if TYPE_CHECKING:
    from collections.abc import Mapping


def _inputs(
    shape: Mapping[str, int | str | bool], device: torch.device | str
) -> tuple[torch.Tensor]:
    return (normal((int(shape["m"]), int(shape["n"])), shape, device),)


def _reference(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x.float(), dim=-1).to(x.dtype)


@lfbo_aot.kernel(
    dims={
        "m": Range(1, 65536, factor=4),
        # Sequence lengths of attention scores, and hidden sizes of gates and probes.
        "n": Exact(1024, 2048, 2560, 4096, 5120, 8192, 16384, 32768),
        "dtype": Exact(*DTYPES),
    },
    shape=lambda x: {"m": x.size(0), "n": x.size(1), "dtype": x.dtype},
    inputs=_inputs,
    reference=_reference,
    # The sum of a row in another order moves a value by some units of float32, and by one rounding
    # of the dtype where it lies between two. Values are 1 at most, and about 1/n: the absolute part
    # must stay below that.
    tolerance={"float32": (1e-5, 1e-7), "bfloat16": (1.6e-2, 1e-6), "float16": (2e-3, 1e-6)},
    small=[
        {"m": 16, "n": 128, "dtype": "float32"},
        {"m": 5, "n": 96, "dtype": "float32"},
    ],
)
def softmax(x: torch.Tensor) -> torch.Tensor:
    """Each row's exponentials as parts of their sum, computed in float32."""
    m, _n = x.size()
    out = torch.empty_like(x)
    for rows in hl.tile(m):
        values = x[rows, :].to(torch.float32)
        # Less the largest, no exponential overflows; the quotient stays the same.
        powers = torch.exp(values - torch.amax(values, dim=-1, keepdim=True))
        total = torch.sum(powers, dim=-1, keepdim=True)
        out[rows, :] = (powers / total).to(x.dtype)
    return out
