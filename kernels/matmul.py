"""The product of two matrices, summed in float32."""

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

# Tokens at a time: decoding in batches up to 64, then ever longer prefills. The configs are tuned
# at the upper ends.
_TOKENS = ((1, 16), (17, 64), (65, 128), (129, 512), (513, 2048), (2049, 4096), (4097, 16384))
# (n, k) of layers: out by in.
_WEIGHTS = (
    (2048, 4096),
    (4096, 4096),  # attention's output, 8 billion parameters
    (6144, 4096),  # attention's inputs
    (28672, 4096),  # gate and up
    (4096, 14336),  # down
    (5120, 5120),  # 13 and 14 billion
    (8192, 8192),  # 70 billion
    (10240, 8192),
    (8192, 28672),
)
_N = tuple(sorted({n for n, _ in _WEIGHTS}))
_K = tuple(sorted({k for _, k in _WEIGHTS}))


def _inputs(
    shape: Mapping[str, int | str | bool], device: torch.device | str
) -> tuple[torch.Tensor, torch.Tensor]:
    m, n, k = int(shape["m"]), int(shape["n"]), int(shape["k"])
    # Over the root of k, as weights are set up: so the results are standard normal too.
    return normal((m, k), shape, device), normal((k, n), shape, device, seed=1) * k**-0.5


def _reference(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.matmul(x, y)


@lfbo_aot.kernel(
    dims={
        "m": Range(1, 16384),
        "n": Exact(*_N),
        "k": Exact(*_K),
        "dtype": Exact(*DTYPES),
    },
    # The product of the dims would hold pairs of n and k that no layer has.
    buckets=[
        {"m": tokens, "n": n, "k": k, "dtype": dtype}
        for n, k in _WEIGHTS
        for tokens in _TOKENS
        for dtype in DTYPES
    ],
    shape=lambda x, y: {"m": x.size(0), "n": y.size(1), "k": x.size(1), "dtype": x.dtype},
    inputs=_inputs,
    reference=_reference,
    # Sums of k products in another order, of results that are standard normal: float32 may run as
    # tf32 (10 bits of fraction) on a GPU, the others are rounded once, from float32.
    tolerance={"float32": (1e-2, 1e-2), "bfloat16": (1.6e-2, 1.6e-2), "float16": (2e-3, 4e-3)},
    small=[
        {"m": 32, "n": 32, "k": 32, "dtype": "float32"},
        {"m": 16, "n": 48, "k": 80, "dtype": "float32"},
    ],
)
def matmul(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """`x @ y` for `x` of size (m, k) and `y` of size (k, n), in the dtype of `x`."""
    m, k = x.size()
    _k, n = y.size()
    out = torch.empty([m, n], dtype=x.dtype, device=x.device)
    for rows, columns in hl.tile([m, n]):
        total = hl.zeros([rows, columns], dtype=torch.float32)
        for inner in hl.tile(k):
            total = torch.addmm(total, x[rows, inner], y[inner, columns])
        out[rows, columns] = total.to(x.dtype)
    return out
