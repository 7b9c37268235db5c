"""Layouts: what of a call's arguments an entry holds for, besides the dims.

Of tensors the dtype and the order of their dims in memory; of plain arguments that no dim tells, the
value: a flag may change the code that is generated.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING
from typing import Any

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Iterator
    from collections.abc import Mapping
    from collections.abc import Sequence

Layout = tuple[dict[str, Any], ...]
"""One item for each tensor among the arguments, then one for each plain argument that counts.

`{"order": [0, 1], "contiguous": True, "dtype": "bfloat16"}`, `{"arg": "causal", "value": True}`
"""
_ARG = "arg"


def describe_layout(args: Iterable[object], fixed: Mapping[str, object] | None = None) -> Layout:
    """The layout of the tensors among `args`, in their order, as plain JSON data.

    `fixed` holds, by parameter, the arguments whose value counts, where it is a plain one.

    `order` lists the dims from the outermost (largest stride) to the innermost. A contiguous tensor
    has them in order, whatever the strides of its dims of size 1 say.
    """
    values = ((name, _plain(value)) for name, value in (fixed or {}).items())
    return (
        *(_describe(tensor) for tensor in tensors_in(args)),
        *({_ARG: name, "value": item} for name, value in values for item in value),
    )


def _plain(value: object) -> tuple[Any, ...]:
    """A plain value as JSON data; empty for a tensor and whatever else can't be written down."""
    value = getattr(value, "value", value) if type(value).__name__ == "ConstExpr" else value
    if value is None or type(value) in (bool, int, float, str):
        return (value,)
    if type(value).__module__ == "torch" and type(value).__name__ == "dtype":
        return (str(value),)
    if isinstance(value, (list, tuple)):
        items = [_plain(item) for item in value]
        return ([item[0] for item in items],) if all(items) else ()
    if isinstance(value, dict):
        pairs = {str(key): _plain(value[key]) for key in sorted(value, key=str)}
        return ({key: item[0] for key, item in pairs.items()},) if all(pairs.values()) else ()
    return ()


def tensors_in(args: Iterable[object]) -> Iterator[Any]:
    """The tensors among `args`, and in lists, tuples, dicts and dataclasses among them, in order."""
    for arg in args:
        if is_tensor(arg):
            yield arg
        elif isinstance(arg, (list, tuple)):
            yield from tensors_in(arg)
        elif isinstance(arg, dict):
            yield from tensors_in(arg[key] for key in sorted(arg, key=str))
        elif dataclasses.is_dataclass(arg) and not isinstance(arg, type):
            yield from tensors_in(getattr(arg, item.name) for item in dataclasses.fields(arg))


def is_tensor(value: object) -> bool:
    """Whether `value` looks like a torch tensor; nothing is imported to find out."""
    return all(hasattr(value, name) for name in ("shape", "dtype", "stride", "is_contiguous"))


def same_layout(stored: Sequence[Any], live: Layout) -> bool:
    """Whether tensors laid out like `live` are what an entry with the layout `stored` holds for.

    An item without a dtype, as older entries have them, holds for any.
    """
    return len(stored) == len(live) and all(map(_same, stored, live))


def _same(stored: Any, here: dict[str, Any]) -> bool:
    if _ARG in here:
        # True equals 1, and may be other code.
        same_kind = type(stored.get("value")) is type(here["value"])
        return same_kind and dict(stored) == here
    return {"dtype": here["dtype"], **stored} == here


def layout_text(layout: Sequence[Any]) -> str:
    """A layout on one line: of each tensor the order of its dims and its dtype.

    `0,1:bfloat16`, with `*` after the order of one that isn't contiguous: `1,0*:bfloat16`, and `/`
    where no dim has a stride of 1. Then the values that count: `causal=True`.
    """
    return " ".join(map(_text, layout))


def _text(item: Any) -> str:
    if _ARG in item:
        return f"{item[_ARG]}={item['value']!r}"
    order = ",".join(map(str, item.get("order", ())))
    dtype = f":{item['dtype']}" if "dtype" in item else ""
    apart = "" if item.get("unit", True) else "/"
    return order + ("" if item.get("contiguous") else "*") + apart + dtype


def _describe(tensor: Any) -> dict[str, Any]:
    dims = range(int(tensor.dim()))
    dtype = str(tensor.dtype).removeprefix("torch.")
    if tensor.is_contiguous():
        return {"order": list(dims), "contiguous": True, "dtype": dtype}
    strides = tensor.stride()
    order = sorted(dims, key=lambda d: (-int(strides[d]), d))
    found = {"order": order, "contiguous": False, "dtype": dtype}
    # Neighbours that lie apart are read in another way altogether.
    inner = [int(strides[d]) for d in dims if int(tensor.shape[d]) > 1]
    return found if 1 in inner else {**found, "unit": False}
