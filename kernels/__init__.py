"""Helion kernels that ship with lfbo-aot, each declared with the shapes that it serves.

Importing this package declares all of them; it needs torch and Helion.
"""

from __future__ import annotations

from .attention import attention
from .batched_matmul import batched_matmul
from .causal_attention import causal_attention
from .cross_entropy import cross_entropy
from .decode_linear import decode_linear
from .fp8_matmul import fp8_matmul
from .gelu_and_mul import gelu_and_mul
from .layer_norm import layer_norm
from .layer_norm_backward import layer_norm_backward
from .matmul import matmul
from .matmul_split_k import matmul_split_k
from .quantize_fp8 import quantize_fp8
from .rms_norm import rms_norm
from .rms_norm_backward import rms_norm_backward
from .rms_norm_fp8 import rms_norm_fp8
from .rotary_embedding import rotary_embedding
from .silu_and_mul import silu_and_mul
from .softmax import softmax
from .vector_add import vector_add

__all__ = [
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
