"""Quantisation of each token's values to 8-bit floats, with a scale of its own."""

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
    return (normal((int(shape["m"]), int(shape["n"])), shape, device),)


def _reference(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    values = x.float()
    scale = values.abs().amax(dim=-1, keepdim=True).clamp(min=1e-10) / 448.0
    return (values / scale).to(torch.float8_e4m3fn), scale


@lfbo_aot.kernel(
    # What linear layers take in: hidden and intermediate sizes of Llama 3 8B and Mistral 7B.
    dims={"m": TOKENS, "n": Exact(4096, 14336), "dtype": Exact("bfloat16")},
    shape=lambda x: {"m": x.size(0), "n": x.size(1), "dtype": x.dtype},
    inputs=_inputs,
    reference=_reference,
    # A quotient that differs by a unit of float32 may round to the next 8-bit float: of 3 bits of
    # fraction, so one in eight apart; below 2**-6 they are 2**-9 apart. A scale is one maximum and
    # one quotient: some units of float32.
    tolerance={"float8_e4m3fn": (0.126, 2e-3), "float32": (1e-6, 0.0)},
    small=[
        {"m": 16, "n": 128, "dtype": "float32"},
        {"m": 5, "n": 96, "dtype": "float32"},
    ],
)
def quantize_fp8(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Each row over its scale as float8_e4m3fn, and the scales, float32 of size (m, 1).

    A row's scale is its largest magnitude over 448, the largest such float; so nothing overflows.
    """
    m, n = x.size()
    out = torch.empty([m, n], dtype=torch.float8_e4m3fn, device=x.device)
    scales = torch.empty([m, 1], dtype=torch.float32, device=x.device)
    for rows in hl.tile(m):
        values = x[rows, :].to(torch.float32)
        largest = torch.amax(torch.abs(values), dim=-1, keepdim=True)
        # A row of zeros has a scale too.
        scale = torch.clamp(largest, min=1e-10) / 448.0
        out[rows, :] = (values / scale).to(torch.float8_e4m3fn)
        scales[rows, :] = scale
    return out, scales
