"""The project's JSON text: compact, deterministic when written, strict when read."""

from __future__ import annotations

import json
from typing import Any


def dump_line(data: object) -> str:
    """`data` as one line of JSON in the order of its fields; ValueError on NaN and infinities."""
    return json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(", ", ": "))


def dump_page(data: object) -> str:
    """`data` as indented JSON that ends in a newline; ValueError on NaN and infinities."""
    return json.dumps(data, ensure_ascii=False, allow_nan=False, indent=2) + "\n"


def load(text: str) -> Any:
    """The data that `text` holds; ValueError on what isn't strict JSON.

    Also refused: NaN and infinities, a field that stands twice in one object, and nesting too deep
    to read.
    """
    try:
        return json.loads(text, parse_constant=_constant, object_pairs_hook=_object)
    except RecursionError:
        msg = "nested too deeply"
        raise ValueError(msg) from None


def _constant(name: str) -> float:
    msg = f"the number {name} isn't finite"
    raise ValueError(msg)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        msg = f"the field {twice!r} stands there twice"
        raise ValueError(msg)
    return found
