"""The kernels, each declared with the shapes that it serves."""

from __future__ import annotations

from typing import Any

import helion.language as hl
import torch
from torch.nn.functional import silu

import lfbo_aot
from lfbo_aot import Exact
from lfbo_aot import Range

ROWS = Range(1, 16384, edges=[256, 4096])
DTYPE = Exact("bfloat16")


def _two_matrices(shape: dict[str, Any], device: Any) -> tuple[torch.Tensor, ...]:
    size = (shape["m"], shape["n"])
    dtype = getattr(torch, shape["dtype"])
    return tuple(torch.randn(size, dtype=dtype, device=device) for _ in range(2))


def _shape(x: torch.Tensor, _y: torch.Tensor) -> dict[str, object]:
    return {"m": x.size(0), "n": x.size(1), "dtype": x.dtype}


def _silu_mul_reference(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return (silu(gate.float()) * up.float()).to(gate.dtype)


@lfbo_aot.kernel(
    dims={"m": ROWS, "n": Exact(11008, 14336), "dtype": DTYPE},
    shape=_shape,
    inputs=_two_matrices,
    reference=_silu_mul_reference,
    small=[{"m": 8, "n": 64, "dtype": "float32"}],
)
def silu_mul(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """silu(gate) * up, in float32: the middle of a gated feed-forward block."""
    out = torch.empty_like(gate)
    for tile in hl.tile(gate.size()):
        g = gate[tile].to(torch.float32)
        out[tile] = (g * torch.sigmoid(g) * up[tile].to(torch.float32)).to(gate.dtype)
    return out


def _add_rms_reference(x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
    total = x.float() + residual.float()
    return (total * torch.rsqrt(total.square().mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


@lfbo_aot.kernel(
    dims={"m": ROWS, "n": Exact(4096, 5120), "dtype": DTYPE},
    shape=_shape,
    inputs=_two_matrices,
    reference=_add_rms_reference,
    small=[{"m": 8, "n": 64, "dtype": "float32"}],
)
def add_rms(x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
    """(x + residual) over the root of its rows' mean square."""
    m, n = x.size()
    out = torch.empty_like(x)
    for rows in hl.tile(m):
        total = x[rows, :].to(torch.float32) + residual[rows, :].to(torch.float32)
        mean_square = torch.sum(total * total, dim=-1, keepdim=True) / n
        out[rows, :] = (total * torch.rsqrt(mean_square + 1e-6)).to(x.dtype)
    return out
