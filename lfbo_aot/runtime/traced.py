"""What torch.compile does to a declared kernel, as far as serving has to know it.

Dynamo captures the call; Inductor then binds the kernel once more, with example tensors in place of
the real ones: a size that is a symbol is an arbitrary number there, and no answer is for it.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING
from typing import Any

from lfbo_aot.registry.layout import tensors_in

if TYPE_CHECKING:
    from collections.abc import Sequence

# On an example tensor: the dims whose size is a number, and not a symbol.
_STATIC_DIMS = "_helion_static_dims"


def lowered_symbolic(kernel: Any, args: Sequence[Any]) -> bool:
    """Whether these are Inductor's examples for sizes that it doesn't know.

    With static shapes they never are: Helion refuses symbolic sizes there.
    """
    if kernel.settings.static_shapes or not _lowering():
        return False
    return any(len(getattr(tensor, _STATIC_DIMS, ())) < tensor.dim() for tensor in tensors_in(args))


def _lowering() -> bool:
    """Whether Inductor lowers a graph in this thread."""
    virtualized: Any = sys.modules.get("torch._inductor.virtualized")
    if virtualized is None:
        return False
    return type(virtualized.V.graph).__name__ != "NullHandler"
