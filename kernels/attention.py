"""Attention in which each query sees every key: one token against a cache, or both directions."""

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
_LLAMA_8B = (32, 8, 128)  # Mistral 7B and Qwen 3 8B too
_LLAMA_70B = (64, 8, 128)  # Qwen 3 32B too
_QWEN_235B = (64, 4, 128)
_ALL = (_LLAMA_8B, _LLAMA_70B, _QWEN_235B)
# Batch, queries and keys of each: decoding in small and in large batches; a prefill at once.
_CALLS = (
    *(((1, 16), 1, (1, 8192), heads) for heads in _ALL),
    *(((17, 128), 1, (1, 8192), heads) for heads in _ALL),
    ((1, 4), (1025, 4096), (1025, 4096), _LLAMA_8B),
)


def _inputs(
    shape: Mapping[str, int | str | bool], device: torch.device | str
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    names = ("b", "s", "t", "heads", "kv_heads", "d")
    b, s, t, heads, kv_heads, d = (int(shape[name]) for name in names)
    return (
        normal((b, heads, s, d), shape, device),
        normal((b, kv_heads, t, d), shape, device, seed=1),
        normal((b, kv_heads, t, d), shape, device, seed=2),
    )


def _reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    group = q.size(1) // k.size(1)
    out = torch.empty_like(q)
    # One head of keys at a time: the scores of all at once may not fit.
    for b in range(k.size(0)):
        for head in range(k.size(1)):
            mine = slice(head * group, (head + 1) * group)
            scores = q[b, mine].float() @ k[b, head].float().T * q.size(-1) ** -0.5
            out[b, mine] = (torch.softmax(scores, dim=-1) @ v[b, head].float()).to(q.dtype)
    return out


@lfbo_aot.kernel(
    dims={
        "b": Range(1, 128),
        "s": Range(1, 4096),
        "t": Range(1, 8192),
        "heads": Exact(32, 64),
        "kv_heads": Exact(8, 4),
        "d": Exact(128),
        "dtype": Exact("bfloat16"),
    },
    buckets=[
        {"b": b, "s": s, "t": t, "heads": h, "kv_heads": g, "d": d, "dtype": "bfloat16"}
        for b, s, t, (h, g, d) in _CALLS
    ],
    shape=lambda q, k, v: {  # noqa: ARG005 - v is like k
        "b": q.size(0),
        "s": q.size(2),
        "t": k.size(2),
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
        {"b": 1, "s": 16, "t": 32, "heads": 4, "kv_heads": 2, "d": 16, "dtype": "float32"},
        {"b": 2, "s": 1, "t": 21, "heads": 6, "kv_heads": 2, "d": 32, "dtype": "float32"},
    ],
)
def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """`softmax(q @ k.T / sqrt(d)) @ v` for each head, in the dtype of `q`.

    `q` is of size (b, heads, s, d), `k` and `v` of size (b, kv_heads, t, d); each key's head serves
    heads / kv_heads of the queries' next to each other, which are computed together, so that a key
    is read once for all of them. Scores are never stored, as in Dao et al. 2022, "FlashAttention".
    """
    b, heads, s, d = q.size()
    _b, kv_heads, t, _d = k.size()
    d = hl.specialize(d)
    pairs = b * kv_heads
    queries = q.view(pairs, heads // kv_heads * s, d)
    keys = k.view(pairs, t, d)
    values = v.view(pairs, t, d)
    out = torch.empty_like(q)
    results = out.view(pairs, heads // kv_heads * s, d)
    # Powers of two in place of e: log2(e) goes into the scores' factor.
    factor = 1.4426950408889634 * d**-0.5
    # Larger blocks don't fit a GPU's registers; the search is not to try them.
    block_rows, block_columns = hl.register_block_size(16, 256), hl.register_block_size(16, 256)
    for pair, rows in hl.tile([pairs, heads // kv_heads * s], block_size=[1, block_rows]):
        mine = queries[pair.begin, rows, :]
        largest = hl.full([rows], -3.4e38, dtype=torch.float32)
        total = hl.zeros([rows], dtype=torch.float32)
        mean = hl.zeros([rows, d], dtype=torch.float32)
        for columns in hl.tile(t, block_size=block_columns):
            scores = hl.dot(mine, keys[pair.begin, columns, :].T, out_dtype=torch.float32) * factor
            larger = torch.maximum(largest, torch.amax(scores, dim=-1))
            # Columns beyond t count for nothing, but must not overflow; no other is above 0.
            weights = torch.exp2(torch.clamp(scores - larger[:, None], max=0.0))
            shrink = torch.exp2(largest - larger)
            total = total * shrink + torch.sum(weights, dim=-1)
            mean = hl.dot(
                weights.to(v.dtype), values[pair.begin, columns, :], acc=mean * shrink[:, None]
            )
            largest = larger
        results[pair.begin, rows, :] = (mean / total[:, None]).to(q.dtype)
    return out
