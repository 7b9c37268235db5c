"""Helion kernels that ship with lfbo-aot, each declared with the shapes that it serves.

Importing this package declares all of them; it needs torch and Helion.
"""

from __future__ import annotations

from .layer_norm import layer_norm
from .matmul import matmul
from .rms_norm import rms_norm
from .softmax import softmax
from .vector_add import vector_add

__all__ = ["layer_norm", "matmul", "rms_norm", "softmax", "vector_add"]
