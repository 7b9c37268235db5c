"""Which of its parameters a function reads, told from its bytecode; nothing is run."""

from __future__ import annotations

import dis
import inspect
from typing import TYPE_CHECKING
from typing import Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import CodeType

_WATCHERS = frozenset(("locals", "vars", "eval", "exec", "dir", "_getframe", "currentframe"))


def places_read(function: Any) -> frozenset[int] | None:
    """The places of the arguments whose value a function reads; None where that can't be told."""
    if not hasattr(function, "__code__") and not hasattr(function, "__func__"):
        function = getattr(function, "__call__", None)  # noqa: B004 - the method, of an object
    bound = getattr(function, "__func__", None)
    code: CodeType | None = getattr(bound or function, "__code__", None)
    if code is None or code.co_flags & inspect.CO_VARKEYWORDS or _WATCHERS & {*code.co_names}:
        return None
    own = 0 if bound is None else 1  # `self` comes before the arguments
    names = code.co_varnames[: code.co_argcount]
    places = {name: at - own for at, name in enumerate(names)}
    rest = code.co_varnames[code.co_argcount + code.co_kwonlyargcount :][:1]
    variadic = bool(code.co_flags & inspect.CO_VARARGS)
    read: set[int] = set()
    for name in _loaded(code):
        if variadic and name in rest:
            return None
        if name in places:
            read.add(places[name])
    return frozenset(read - {-1})


def _loaded(code: CodeType) -> Iterator[str]:
    """The variables that a function reads, those too that closures share."""
    for instruction in dis.get_instructions(code):
        name_of = instruction.opname
        if name_of in ("STORE_FAST", "DELETE_FAST"):
            continue
        if any(part in name_of for part in ("FAST", "DEREF", "CLOSURE", "CELL")):
            names = instruction.argval
            yield from names if isinstance(names, tuple) else (names,)
