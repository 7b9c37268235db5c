"""Which of its parameters a function reads, told from its bytecode; nothing is run."""

from __future__ import annotations

import dis
from typing import TYPE_CHECKING
from typing import Any

if TYPE_CHECKING:
    from types import CodeType

_WATCHERS = frozenset(("locals", "vars", "eval", "exec", "dir", "_getframe", "currentframe"))


def places_read(function: Any) -> frozenset[int] | None:
    """The places of the parameters whose value a function reads; None where that can't be told."""
    code: CodeType | None = getattr(function, "__code__", None)
    if code is None or getattr(function, "__self__", None) is not None:
        return None
    variadic = 0x04 | 0x08  # *args, **kwargs
    if code.co_flags & variadic or _WATCHERS & {*code.co_names}:
        return None
    places = {name: at for at, name in enumerate(code.co_varnames[: code.co_argcount])}
    read: set[int] = set()
    for instruction in dis.get_instructions(code):
        name_of = instruction.opname
        if name_of in ("STORE_FAST", "DELETE_FAST"):
            continue
        # Loads, also two in one instruction, and what makes a variable that closures share.
        if any(part in name_of for part in ("FAST", "DEREF", "CLOSURE", "CELL")):
            names = instruction.argval
            for name in names if isinstance(names, tuple) else (names,):
                if name in places:
                    read.add(places[name])
    return frozenset(read)
