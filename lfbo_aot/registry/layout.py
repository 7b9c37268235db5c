"""Layouts: tensors' dtypes and the order of their dims in memory, in entries and in look-ups."""

from __future__ import annotations

from typing import TYPE_CHECKING
from typing import Any

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Iterator
    from collections.abc import Sequence

Layout = tuple[dict[str, Any], ...]
"""One item for each tensor among the arguments.

`{"order": [0, 1], "contiguous": True, "dtype": "bfloat16"}`
"""


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
    """Whether tensors laid out like `live` are what an entry with the layout `stored` holds for.

    An item without a dtype, as older entries have them, holds for any.
    """
    return len(stored) == len(live) and all(
        {"dtype": here["dtype"], **item} == here for item, here in zip(stored, live, strict=True)
    )


def layout_text(layout: Sequence[Any]) -> str:
    """A layout on one line: of each tensor the order of its dims and its dtype.

    `0,1:bfloat16`, with `*` after the order of one that isn't contiguous: `1,0*:bfloat16`.
    """
    return " ".join(map(_text, layout))


def _text(item: Any) -> str:
    order = ",".join(map(str, item.get("order", ())))
    dtype = f":{item['dtype']}" if "dtype" in item else ""
    return order + ("" if item.get("contiguous") else "*") + dtype


def _describe(tensor: Any) -> dict[str, Any]:
    dims = range(int(tensor.dim()))
    dtype = str(tensor.dtype).removeprefix("torch.")
    if tensor.is_contiguous():
        return {"order": list(dims), "contiguous": True, "dtype": dtype}
    strides = tensor.stride()
    order = sorted(dims, key=lambda d: (-int(strides[d]), d))
    return {"order": order, "contiguous": False, "dtype": dtype}
