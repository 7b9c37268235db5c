"""The gate of a feed-forward layer: `silu(gate) * up`, where both come from one matrix product."""

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
) -> tuple[torch.Tensor]:
    return (normal((int(shape["m"]), 2 * int(shape["n"])), shape, device),)


def _reference(x: torch.Tensor) -> torch.Tensor:
    gate, up = x.float().chunk(2, dim=-1)
    return (torch.nn.functional.silu(gate) * up).to(x.dtype)


@lfbo_aot.kernel(
    # Intermediate sizes of Llama 3 8B and Mistral 7B, of Llama 3 70B, and of Qwen 3 8B.
    dims={"m": TOKENS, "n": Exact(14336, 28672, 12288), "dtype": Exact("bfloat16")},
    shape=lambda x: {"m": x.size(0), "n": x.size(1) // 2, "dtype": x.dtype},
    inputs=_inputs,
    reference=_reference,
    # An exponential and a quotient that may be approximate, some units of float32; then one
    # rounding of the dtype. No value is a difference, so the relative part is enough.
    tolerance={"float32": (1e-5, 1e-6), "bfloat16": (1.6e-2, 1e-6), "float16": (2e-3, 1e-6)},
    small=[
        {"m": 16, "n": 128, "dtype": "float32"},
        {"m": 5, "n": 96, "dtype": "float32"},
    ],
)
def silu_and_mul(x: torch.Tensor) -> torch.Tensor:
    """`silu` of the left half of each row times the right half, computed in float32.

    `x` is of size (m, 2n): the gate beside the other factor, as one product gives them.
    """
    m, width = x.size()
    n = width // 2
    out = torch.empty([m, n], dtype=x.dtype, device=x.device)
    halves = x.view(m, 2, n)
    for rows, columns in hl.tile([m, n]):
        gate = halves[rows, 0, columns].to(torch.float32)
        up = halves[rows, 1, columns].to(torch.float32)
        out[rows, columns] = (gate * torch.sigmoid(gate) * up).to(x.dtype)
    return out
