"""A linear layer over a few tokens at a time, as decoding does: bound by reading the weight."""

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

# (n, k) of layers, out by in, as their weights are stored.
_WEIGHTS = (
    (6144, 4096),  # attention's inputs: Llama 3 8B, Mistral 7B, Qwen 3 8B
    (4096, 4096),  # attention's output
    (28672, 4096),  # gate and up: Llama 3 8B, Mistral 7B
    (4096, 14336),  # down
    (10240, 8192),  # attention's inputs: Llama 3 70B
    (8192, 28672),  # down
)
_TOKENS = ((1, 16), (17, 64))


def _inputs(
    shape: Mapping[str, int | str | bool], device: torch.device | str
) -> tuple[torch.Tensor, torch.Tensor]:
    m, n, k = int(shape["m"]), int(shape["n"]), int(shape["k"])
    # Over the root of k, as weights are set up: so the results are standard normal too.
    return normal((m, k), shape, device), normal((n, k), shape, device, seed=1) * k**-0.5


def _reference(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.linear(x.float(), weight.float()).to(x.dtype)


@lfbo_aot.kernel(
    dims={
        "m": Range(1, 64),
        "n": Exact(6144, 4096, 28672, 10240, 8192),
        "k": Exact(4096, 14336, 8192, 28672),
        "dtype": Exact("bfloat16"),
    },
    buckets=[
        {"m": tokens, "n": n, "k": k, "dtype": "bfloat16"}
        for n, k in _WEIGHTS
        for tokens in _TOKENS
    ],
    shape=lambda x, weight: {
        "m": x.size(0),
        "n": weight.size(0),
        "k": x.size(1),
        "dtype": x.dtype,
    },
    inputs=_inputs,
    reference=_reference,
    # Sums of k products in another order, of results that are standard normal: float32 may run as
    # tf32 (10 bits of fraction) on a GPU, the others are rounded once, from float32.
    tolerance={"float32": (1e-2, 1e-2), "bfloat16": (1.6e-2, 1.6e-2), "float16": (2e-3, 4e-3)},
    small=[
        {"m": 8, "n": 64, "k": 64, "dtype": "float32"},
        {"m": 3, "n": 48, "k": 80, "dtype": "float32"},
    ],
)
def decode_linear(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """`x @ weight.T` for `x` of size (m, k) and `weight` of size (n, k), in the dtype of `x`.

    The weight is read as `torch.nn.Linear` holds it, each row in one stretch; sums are float32.
    """
    m, k = x.size()
    n, _k = weight.size()
    out = torch.empty([m, n], dtype=x.dtype, device=x.device)
    for rows, columns in hl.tile([m, n]):
        total = hl.zeros([rows, columns], dtype=torch.float32)
        for inner in hl.tile(k):
            total = torch.addmm(total, x[rows, inner], weight[columns, inner].T)
        out[rows, columns] = total.to(x.dtype)
    return out
