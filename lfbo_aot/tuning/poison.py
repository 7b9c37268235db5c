"""Memory that is filled as it is allocated, so that nothing right can be left in it by chance."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING
from typing import Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_ALLOCATES = frozenset(
    ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided")
)


@contextlib.contextmanager
def nan_memory() -> Iterator[None]:
    """New tensors hold NaN; of integers, the largest one; of booleans, True. PyTorch's own means."""
    import torch
    from torch.utils import deterministic

    before = torch.are_deterministic_algorithms_enabled()
    warn = torch.is_deterministic_algorithms_warn_only_enabled()
    fill = deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    deterministic.fill_uninitialized_memory = True  # type: ignore[attr-defined]
    torch.use_deterministic_algorithms(mode=True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(mode=before, warn_only=warn)
        deterministic.fill_uninitialized_memory = fill  # type: ignore[attr-defined]


@contextlib.contextmanager
def zero_memory() -> Iterator[None]:
    """New tensors hold zeros: unlike what `nan_memory` leaves, whatever the dtype."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Zeros(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            result = func(*args, **(kwargs or {}))
            name = func.overloadpacket.__name__
            return result.zero_() if name in _ALLOCATES else result

    with Zeros():  # type: ignore[no-untyped-call]
        yield
