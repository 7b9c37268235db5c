"""Attention in which each token sees those up to itself: a prefill, or a training step."""

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

# Heads of the queries, heads of the keys, and their width.
_HEADS = (
    (32, 8, 128),  # Llama 3 8B, Mistral 7B, Qwen 3 8B
    (64, 8, 128),  # Llama 3 70B, Qwen 3 32B
    (64, 4, 128),  # Qwen 3 235B-A22B
)
# Batch and length: 16,384 tokens at most.
_CALLS = (((1, 16), (1, 1024)), ((1, 4), (1025, 4096)), (1, (4097, 16384)))


def _inputs(
    shape: Mapping[str, int | str | bool], device: torch.device | str
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    names = ("b", "s", "heads", "kv_heads", "d")
    b, s, heads, kv_heads, d = (int(shape[name]) for name in names)
    return (
        normal((b, heads, s, d), shape, device),
        normal((b, kv_heads, s, d), shape, device, seed=1),
        normal((b, kv_heads, s, d), shape, device, seed=2),
    )


def _reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    s, group = q.size(2), q.size(1) // k.size(1)
    later = torch.ones(s, s, dtype=torch.bool, device=q.device).triu(1)
    out = torch.empty_like(q)
    # One head of keys at a time: the scores of all at once may not fit.
    for b in range(k.size(0)):
        for head in range(k.size(1)):
            mine = slice(head * group, (head + 1) * group)
            scores = q[b, mine].float() @ k[b, head].float().T * q.size(-1) ** -0.5
            weights = torch.softmax(scores.masked_fill(later, float("-inf")), dim=-1)
            out[b, mine] = (weights @ v[b, head].float()).to(q.dtype)
    return out


@lfbo_aot.kernel(
    dims={
        "b": Range(1, 16),
        "s": Range(1, 16384),
        "heads": Exact(32, 64),
        "kv_heads": Exact(8, 4),
        "d": Exact(128),
        "dtype": Exact("bfloat16"),
    },
    buckets=[
        {"b": b, "s": s, "heads": h, "kv_heads": g, "d": d, "dtype": "bfloat16"}
        for h, g, d in _HEADS
        for b, s in _CALLS
    ],
    shape=lambda q, k, v: {  # noqa: ARG005 - v is like k
        "b": q.size(0),
        "s": q.size(2),
        "heads": q.size(1),
        "kv_heads": k.size(1),
        "d": q.size(3),
        "dtype": q.dtype,
    },
    inputs=_inputs,
    reference=_reference,
    # The weights of the values are rounded to the dtype before they meet them, so each result is a
    # mean of values of about 1 with errors of half a unit at its weight; float32 may run as tf32.
    tolerance={"float32": (1e-2, 1e-2), "bfloat16": (1.6e-2, 1.6e-2), "float16": (2e-3, 2e-3)},
    small=[
        {"b": 1, "s": 32, "heads": 4, "kv_heads": 2, "d": 16, "dtype": "float32"},
        {"b": 2, "s": 21, "heads": 3, "kv_heads": 1, "d": 32, "dtype": "float32"},
    ],
)
def causal_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """`softmax(q @ k.T / sqrt(d)) @ v` over the keys up to each query, in the dtype of `q`.

    `q` is of size (b, heads, s, d), `k` and `v` of size (b, kv_heads, s, d); each key's head serves
    heads / kv_heads of the queries' next to each other. Scores are never stored, as in Dao et al.
    2022, "FlashAttention".
    """
    b, heads, s, d = q.size()
    _b, kv_heads, _s, _d = k.size()
    d = hl.specialize(d)
    group = hl.specialize(heads // kv_heads)
    queries = q.view(b * heads, s, d)
    keys = k.view(b * kv_heads, s, d)
    values = v.view(b * kv_heads, s, d)
    out = torch.empty_like(q)
    results = out.view(b * heads, s, d)
    # Powers of two in place of e: log2(e) goes into the scores' factor.
    factor = 1.4426950408889634 * d**-0.5
    # Larger blocks don't fit a GPU's registers; the search is not to try them.
    block_rows, block_columns = hl.register_block_size(16, 256), hl.register_block_size(16, 256)
    for head, rows in hl.tile([b * heads, s], block_size=[1, block_rows]):
        shared = head.begin // group
        mine = queries[head.begin, rows, :]
        largest = hl.full([rows], -3.4e38, dtype=torch.float32)
        total = hl.zeros([rows], dtype=torch.float32)
        mean = hl.zeros([rows, d], dtype=torch.float32)
        for columns in hl.tile(0, rows.end, block_size=block_columns):
            scores = hl.dot(mine, keys[shared, columns, :].T, out_dtype=torch.float32) * factor
            # Not rows.index[:, None]: Helion 1.5 makes no code for that where s is 1.
            seen = columns.index.unsqueeze(0) <= rows.index.unsqueeze(1)
            scores = torch.where(seen, scores, float("-inf"))
            larger = torch.maximum(largest, torch.amax(scores, dim=-1))
            weights = torch.exp2(scores - larger[:, None])
            shrink = torch.exp2(largest - larger)
            total = total * shrink + torch.sum(weights, dim=-1)
            mean = hl.dot(
                weights.to(v.dtype), values[shared, columns, :], acc=mean * shrink[:, None]
            )
            largest = larger
        results[head.begin, rows, :] = (mean / total[:, None]).to(q.dtype)
    return out
