"""A matrix product whose long inner dim is summed in pieces at once, for results of few rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import helion
import helion.language as hl
import torch
from helion.autotuner import PowerOfTwoFragment

import lfbo_aot
from lfbo_aot import Exact
from lfbo_aot import Range

from .shapes import normal

if TYPE_CHECKING:
    from collections.abc import Mapping

# (n, k) of layers whose result is narrow beside what is summed.
_WEIGHTS = (
    (4096, 14336),  # down: Llama 3 8B, Mistral 7B
    (8192, 28672),  # down: Llama 3 70B
    (2112, 7168),  # attention's compressed queries, keys and values: DeepSeek V3
)
_TOKENS = ((1, 16), (17, 64), (65, 256))


def _inputs(
    shape: Mapping[str, int | str | bool], device: torch.device | str
) -> tuple[torch.Tensor, torch.Tensor]:
    m, n, k = int(shape["m"]), int(shape["n"]), int(shape["k"])
    # Over the root of k, as weights are set up: so the results are standard normal too.
    return normal((m, k), shape, device), normal((k, n), shape, device, seed=1) * k**-0.5


def _reference(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.matmul(x.float(), y.float()).to(x.dtype)


@lfbo_aot.kernel(
    dims={
        "m": Range(1, 256),
        "n": Exact(4096, 8192, 2112),
        "k": Exact(14336, 28672, 7168),
        "dtype": Exact("bfloat16"),
    },
    buckets=[
        {"m": tokens, "n": n, "k": k, "dtype": "bfloat16"}
        for n, k in _WEIGHTS
        for tokens in _TOKENS
    ],
    shape=lambda x, y: {"m": x.size(0), "n": y.size(1), "k": x.size(1), "dtype": x.dtype},
    inputs=_inputs,
    reference=_reference,
    # Sums of k products in another order, of results that are standard normal: float32 may run as
    # tf32 (10 bits of fraction) on a GPU, the others are rounded once, from float32.
    tolerance={"float32": (1e-2, 1e-2), "bfloat16": (1.6e-2, 1.6e-2), "float16": (2e-3, 4e-3)},
    small=[
        {"m": 16, "n": 32, "k": 256, "dtype": "float32"},
        {"m": 5, "n": 24, "k": 200, "dtype": "float32"},
    ],
    # The pieces are added up by torch, in a launch of its own: that is meant.
    ignore_warnings=[helion.exc.TensorOperationInWrapper],
)
def matmul_split_k(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """`x @ y` for `x` of size (m, k) and `y` of size (k, n), in the dtype of `x`.

    Each piece of k gives a float32 matrix of its own, and these are added up afterwards: the same
    result at each call, which atomic additions would not give.
    """
    m, k = x.size()
    _k, n = y.size()
    pieces = hl.register_tunable("pieces", PowerOfTwoFragment(1, 64, 8))
    length = helion.next_power_of_2(helion.cdiv(k, pieces))
    parts = torch.empty([helion.cdiv(k, length), m, n], dtype=torch.float32, device=x.device)
    for rows, columns, piece in hl.tile([m, n, k], block_size=[None, None, length]):
        total = hl.zeros([rows, columns], dtype=torch.float32)
        for inner in hl.tile(piece.begin, piece.end):
            total = torch.addmm(total, x[rows, inner], y[inner, columns])
        parts[piece.id, rows, columns] = total
    return parts.sum(0).to(x.dtype)
