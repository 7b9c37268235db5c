"""The names of the kernels that ship, written out: a file that isn't imported is missed."""

from __future__ import annotations

NAMES = [
    "attention",
    "batched_matmul",
    "causal_attention",
    "cross_entropy",
    "decode_linear",
    "fp8_matmul",
    "gelu_and_mul",
    "layer_norm",
    "layer_norm_backward",
    "matmul",
    "matmul_split_k",
    "quantize_fp8",
    "rms_norm",
    "rms_norm_backward",
    "rms_norm_fp8",
    "rotary_embedding",
    "silu_and_mul",
    "softmax",
    "vector_add",
]
