"""Rotary position embedding of queries and keys."""

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

# Heads that are turned together, those of the queries and of the keys, and their width.
_HEADS = (
    (40, 128),  # 32 + 8: Llama 3 8B, Mistral 7B, Qwen 3 8B
    (72, 128),  # 64 + 8: Llama 3 70B, Qwen 3 32B
    (72, 64),  # 64 + 8: gpt-oss
)
_TOKENS = ((1, 16), (17, 4096), (4097, 65536))


def _inputs(
    shape: Mapping[str, int | str | bool], device: torch.device | str
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    m, heads, d = int(shape["m"]), int(shape["heads"]), int(shape["d"])
    place = torch.arange(m, device=device, dtype=torch.float32)
    rates = 500000.0 ** -(torch.arange(d // 2, device=device, dtype=torch.float32) * 2 / d)
    angles = place[:, None] * rates
    return normal((m, heads, d), shape, device), angles.cos(), angles.sin()


def _reference(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = x.float().chunk(2, dim=-1)
    cos, sin = cos.float()[:, None], sin.float()[:, None]
    turned = (first * cos - second * sin, second * cos + first * sin)
    return torch.cat(turned, dim=-1).to(x.dtype)


@lfbo_aot.kernel(
    dims={
        "m": Range(1, 65536),
        "heads": Exact(40, 72),
        "d": Exact(128, 64),
        "dtype": Exact("bfloat16"),
    },
    buckets=[
        {"m": tokens, "heads": heads, "d": d, "dtype": "bfloat16"}
        for heads, d in _HEADS
        for tokens in _TOKENS
    ],
    shape=lambda x, cos, sin: {  # noqa: ARG005 - they follow from x
        "m": x.size(0),
        "heads": x.size(1),
        "d": x.size(2),
        "dtype": x.dtype,
    },
    inputs=_inputs,
    reference=_reference,
    # Two products and a sum, which may be fused: some units of float32; then one rounding of the
    # dtype. The two may cancel, so the absolute part is some units at 1.
    tolerance={"float32": (1e-5, 1e-6), "bfloat16": (1.6e-2, 1e-5), "float16": (2e-3, 1e-5)},
    small=[
        {"m": 16, "heads": 4, "d": 32, "dtype": "float32"},
        {"m": 5, "heads": 3, "d": 24, "dtype": "float32"},
    ],
)
def rotary_embedding(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """`x` with the halves of each head turned by its token's angles, computed in float32.

    `x` is of size (m, heads, d), such as the queries' and keys' heads of one product side by side;
    `cos` and `sin` are of size (m, d / 2). Element i turns with element i + d / 2 (as GPT-NeoX pairs
    them), not with its neighbour.
    """
    m, heads, d = x.size()
    half = d // 2
    out = torch.empty_like(x)
    halves = x.view(m, heads, 2, half)
    turned = out.view(m, heads, 2, half)
    for rows, some in hl.tile([m, heads]):
        first = halves[rows, some, 0, :].to(torch.float32)
        second = halves[rows, some, 1, :].to(torch.float32)
        c = cos[rows, :].to(torch.float32)[:, None, :]
        s = sin[rows, :].to(torch.float32)[:, None, :]
        turned[rows, some, 0, :] = (first * c - second * s).to(x.dtype)
        turned[rows, some, 1, :] = (second * c + first * s).to(x.dtype)
    return out
