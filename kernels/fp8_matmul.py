"""A product of 8-bit float matrices with a scale for each row of both, summed in float32."""

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

# (n, k) of layers of Llama 3 8B and Mistral 7B, out by in, as their weights are stored.
_WEIGHTS = (
    (6144, 4096),  # attention's inputs
    (4096, 4096),  # attention's output
    (28672, 4096),  # gate and up
    (4096, 14336),  # down
)
_TOKENS = ((1, 16), (17, 256), (257, 4096))


def _inputs(
    shape: Mapping[str, int | str | bool], device: torch.device | str
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    m, n, k = int(shape["m"]), int(shape["n"]), int(shape["k"])
    dtype: torch.dtype = getattr(torch, str(shape["dtype"]))
    wide = {"dtype": "float32"}
    # Of about 1/sqrt(k) in all, so that the results are of about 1.
    rows = normal((m, 1), wide, device, seed=2).abs() + 0.5
    columns = (normal((n, 1), wide, device, seed=3).abs() + 0.5) * k**-0.5
    x = normal((m, k), wide, device).to(dtype)
    return x, normal((n, k), wide, device, seed=1).to(dtype), rows, columns


def _reference(
    x: torch.Tensor, weight: torch.Tensor, x_scale: torch.Tensor, weight_scale: torch.Tensor
) -> torch.Tensor:
    product = torch.nn.functional.linear(x.float(), weight.float())
    return (product * x_scale * weight_scale.T).to(torch.bfloat16)


@lfbo_aot.kernel(
    dims={
        "m": Range(1, 4096),
        "n": Exact(6144, 4096, 28672),
        "k": Exact(4096, 14336),
        "dtype": Exact("float8_e4m3fn"),
    },
    buckets=[
        {"m": tokens, "n": n, "k": k, "dtype": "float8_e4m3fn"}
        for n, k in _WEIGHTS
        for tokens in _TOKENS
    ],
    shape=lambda x, weight, x_scale, weight_scale: {  # noqa: ARG005 - the scales follow
        "m": x.size(0),
        "n": weight.size(0),
        "k": x.size(1),
        "dtype": x.dtype,
    },
    inputs=_inputs,
    reference=_reference,
    # Products of two 8-bit floats are exact in float32, but a Hopper GPU adds up to 128 of them with
    # 14 bits of fraction before they reach the float32 sum; then one rounding to bfloat16. Results
    # are of about 1, up to 10.
    tolerance={"bfloat16": (1.6e-2, 1.6e-2)},
    small=[
        {"m": 16, "n": 32, "k": 64, "dtype": "float8_e4m3fn"},
        {"m": 5, "n": 48, "k": 80, "dtype": "float32"},
    ],
)
def fp8_matmul(
    x: torch.Tensor, weight: torch.Tensor, x_scale: torch.Tensor, weight_scale: torch.Tensor
) -> torch.Tensor:
    """`(x * x_scale) @ (weight * weight_scale).T` in bfloat16.

    `x` is of size (m, k) with a scale for each token (m, 1), `weight` of size (n, k) with a scale
    for each output (n, 1); the scales are float32, as `quantize_fp8` gives them.
    """
    m, k = x.size()
    n, _k = weight.size()
    out = torch.empty([m, n], dtype=torch.bfloat16, device=x.device)
    for rows, columns in hl.tile([m, n]):
        total = hl.zeros([rows, columns], dtype=torch.float32)
        for inner in hl.tile(k):
            total = hl.dot(x[rows, inner], weight[columns, inner].T, acc=total)
        scaled = total * x_scale[rows, 0][:, None] * weight_scale[columns, 0][None, :]
        out[rows, columns] = scaled.to(torch.bfloat16)
    return out
