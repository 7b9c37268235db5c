"""Layouts: the order in memory of tensors' dims, as entries keep it and look-ups compare it."""

from __future__ import annotations

from typing import TYPE_CHECKING
from typing import Any

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Iterator
    from collections.abc import Sequence

Layout = tuple[dict[str, Any], ...]
"""One item for each tensor among the arguments: `{"order": [0, 1], "contiguous": True}`."""


def describe_layout(args: Iterable[object]) -> Layout:
    """The layout of the tensors among `args`, in their order, as plain JSON data.

    `order` lists the dims from the outermost (largest stride) to the innermost. A contiguous tensor
    has them in order, whatever the strides of its dims of size 1 say.
    """
    return tuple(_describe(tensor) for tensor in tensors_in(args))


def tensors_in(args: Iterable[object]) -> Iterator[Any]:
    """The tensors among `args`, and in lists and tuples among them, in order."""
    for arg in args:
        if is_tensor(arg):
            yield arg
        elif isinstance(arg, (list, tuple)):
            yield from tensors_in(arg)


def is_tensor(value: object) -> bool:
    """Whether `value` looks like a torch tensor; nothing is imported to find out."""
    return all(hasattr(value, name) for name in ("shape", "dtype", "stride", "is_contiguous"))


def same_layout(stored: Sequence[Any], live: Layout) -> bool:
    """Whether tensors laid out like `live` are what an entry with the layout `stored` holds for."""
    return [dict(item) for item in stored] == list(live)


def layout_text(layout: Sequence[Any]) -> str:
    """A layout on one line: the order of each tensor's dims, `*` after one that isn't contiguous."""
    return " ".join(
        ",".join(map(str, item.get("order", ()))) + ("" if item.get("contiguous") else "*")
        for item in layout
    )


def _describe(tensor: Any) -> dict[str, Any]:
    dims = range(int(tensor.dim()))
    if tensor.is_contiguous():
        return {"order": list(dims), "contiguous": True}
    strides = tensor.stride()
    return {"order": sorted(dims, key=lambda d: (-int(strides[d]), d)), "contiguous": False}
