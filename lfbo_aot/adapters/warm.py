"""Small kernels that workers bind and compile before the first real one, to have all loaded.

The first code that a process generates takes seconds: for a kernel with a product of matrices once
more, whatever came before.
"""

from __future__ import annotations

from typing import Any

import helion
import helion.language as hl
import torch


@helion.kernel(static_shapes=True)  # type: ignore[untyped-decorator]
def scaled_exponentials(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Each row's exponentials, less its largest, times a weight for each column."""
    m, _n = x.size()
    out = torch.empty_like(x)
    for rows in hl.tile(m):
        values = x[rows, :].to(torch.float32)
        largest = torch.amax(values, dim=-1, keepdim=True)
        out[rows, :] = (torch.exp(values - largest) * weight[:]).to(x.dtype)
    return out


@helion.kernel(static_shapes=True)  # type: ignore[untyped-decorator]
def product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The matrix product."""
    m, k = x.size()
    n = y.size(1)
    out = torch.empty((m, n), dtype=x.dtype, device=x.device)
    for rows, columns in hl.tile([m, n]):
        total = hl.zeros([rows, columns], dtype=torch.float32)
        for depth in hl.tile(k):
            total = torch.addmm(total, x[rows, depth], y[depth, columns])
        out[rows, columns] = total.to(x.dtype)
    return out


CALLS: tuple[tuple[Any, tuple[tuple[int, ...], ...]], ...] = (
    (scaled_exponentials, ((64, 128), (128,))),
    (product, ((64, 128), (128, 64))),
)
"""Each kernel with the sizes of its arguments."""
