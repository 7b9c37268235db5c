"""A small kernel that the compile worker binds and compiles before the first real one.

The first code that a process generates and compiles takes seconds, of which most are for what the next
one finds loaded.
"""

from __future__ import annotations

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


SIZES = ((64, 128), (128,))
"""Of its arguments."""
