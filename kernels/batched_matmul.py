"""A product of matrices for each of a batch, summed in float32."""

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

# (b, n, k): what DeepSeek V3's attention multiplies for each of its 128 heads when its keys and
# values stay compressed; and the same where eight GPUs share the heads.
_HEADS = (
    (128, 512, 128),  # queries into the compressed space
    (128, 128, 512),  # values out of it
    (16, 512, 128),
    (16, 128, 512),
)
_TOKENS = ((1, 16), (17, 256))


def _inputs(
    shape: Mapping[str, int | str | bool], device: torch.device | str
) -> tuple[torch.Tensor, torch.Tensor]:
    b, m, n, k = (int(shape[name]) for name in ("b", "m", "n", "k"))
    # Over the root of k, as weights are set up: so the results are standard normal too.
    return normal((b, m, k), shape, device), normal((b, k, n), shape, device, seed=1) * k**-0.5


def _reference(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.bmm(x.float(), y.float()).to(x.dtype)


@lfbo_aot.kernel(
    dims={
        "b": Exact(128, 16),
        "m": Range(1, 256),
        "n": Exact(512, 128),
        "k": Exact(128, 512),
        "dtype": Exact("bfloat16"),
    },
    buckets=[
        {"b": b, "m": tokens, "n": n, "k": k, "dtype": "bfloat16"}
        for b, n, k in _HEADS
        for tokens in _TOKENS
    ],
    shape=lambda x, y: {
        "b": x.size(0),
        "m": x.size(1),
        "n": y.size(2),
        "k": x.size(2),
        "dtype": x.dtype,
    },
    inputs=_inputs,
    reference=_reference,
    # Sums of k products in another order, of results that are standard normal: float32 may run as
    # tf32 (10 bits of fraction) on a GPU, the others are rounded once, from float32.
    tolerance={"float32": (1e-2, 1e-2), "bfloat16": (1.6e-2, 1.6e-2), "float16": (2e-3, 4e-3)},
    small=[
        {"b": 2, "m": 16, "n": 32, "k": 32, "dtype": "float32"},
        {"b": 3, "m": 5, "n": 24, "k": 40, "dtype": "float32"},
    ],
)
def batched_matmul(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """`x @ y` for `x` of size (b, m, k) and `y` of size (b, k, n), in the dtype of `x`."""
    b, m, k = x.size()
    _b, _k, n = y.size()
    out = torch.empty([b, m, n], dtype=x.dtype, device=x.device)
    for some, rows, columns in hl.tile([b, m, n]):
        total = hl.zeros([some, rows, columns], dtype=torch.float32)
        for inner in hl.tile(k):
            total = torch.baddbmm(total, x[some, rows, inner], y[some, inner, columns])
        out[some, rows, columns] = total.to(x.dtype)
    return out
