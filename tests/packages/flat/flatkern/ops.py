from __future__ import annotations

import helion.language as hl
import torch

import lfbo_aot
from lfbo_aot import Exact
from lfbo_aot import Range


def inputs(shape, device):
    return (
        torch.ones(shape["m"], shape["n"], dtype=getattr(torch, shape["dtype"]), device=device),
    )


DECLARED = {
    "dims": {"m": Range(1, 64), "n": Exact(64), "dtype": Exact("bfloat16")},
    "shape": lambda x: {"m": x.size(0), "n": x.size(1), "dtype": x.dtype},
    "inputs": inputs,
    "small": [{"m": 4, "n": 16, "dtype": "float32"}],
}


@lfbo_aot.kernel(**DECLARED, reference=lambda x: x + x)
def twice(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size()):
        out[tile] = x[tile] + x[tile]
    return out


@lfbo_aot.kernel(**DECLARED, reference=lambda x: x * x)
def square(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size()):
        out[tile] = x[tile] * x[tile]
    return out
