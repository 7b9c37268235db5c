"""The sum of two vectors: bound by memory, and the smallest kernel that can be declared."""

from __future__ import annotations

from typing import TYPE_CHECKING

import helion.language as hl
import torch

import lfbo_aot
from lfbo_aot import Exact
from lfbo_aot import Range

from .shapes import normal

if TYPE_CHECKING:
    from collections.abc import Mapping


def _inputs(
    shape: Mapping[str, int | str | bool], device: torch.device | str
) -> tuple[torch.Tensor, torch.Tensor]:
    n = int(shape["n"])
    return normal((n,), shape, device), normal((n,), shape, device, seed=1)


@lfbo_aot.kernel(
    # A launch takes longer than the sum below some thousand elements, and from some million on
    # only bandwidth counts; in between each step of 16 is another mix of the two.
    dims={
        "n": Range(1, 1 << 28, edges=[1 << 12, 1 << 16, 1 << 20, 1 << 24]),
        "dtype": Exact("bfloat16", "float16", "float32"),
    },
    shape=lambda x, y: {"n": x.size(0), "dtype": x.dtype},  # noqa: ARG005 - y is like x
    inputs=_inputs,
    reference=torch.add,
    # One rounding, the same in both: the sum is exact in float32 and then rounded to the dtype.
    tolerance={"float32": (0.0, 0.0), "bfloat16": (0.0, 0.0), "float16": (0.0, 0.0)},
    small=[{"n": 1024, "dtype": "float32"}, {"n": 1000, "dtype": "float32"}],
)
def vector_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """`x + y` of two vectors of one length and dtype."""
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] + y[tile]
    return out
