"""What code may do where a declaration is to follow from its text alone: names, and forms of syntax.

Lists of what is allowed, not of what isn't: what is missing here means that a module is imported to
learn what it declares, which is always right.
"""

from __future__ import annotations

import ast
import builtins
from typing import TYPE_CHECKING

from lfbo_aot.registry.syntax import bound_by

if TYPE_CHECKING:
    from collections.abc import Iterator

Refusal = tuple[ast.AST, str]


def _dotted(module: str, names: str) -> set[str]:
    return {f"{module}.{name}" for name in names.split()}


SAME = frozenset(
    # The names of a module, never the module: `dataclasses.inspect.os` is all of `os`.
    _dotted("abc", "ABC abstractmethod")
    | _dotted("collections", "Counter OrderedDict defaultdict deque namedtuple")
    | _dotted("collections.abc", "Callable Iterable Iterator Mapping Sequence")
    | _dotted("dataclasses", "KW_ONLY dataclass field replace")
    | _dotted("functools", "cache lru_cache partial reduce")
    | _dotted(
        "itertools",
        "accumulate chain chain.from_iterable combinations combinations_with_replacement count "
        "dropwhile filterfalse groupby islice pairwise permutations product repeat starmap "
        "takewhile zip_longest",
    )
    # Exact on every platform; logarithms and the like are the C library's.
    | _dotted("math", "ceil comb factorial floor gcd inf isqrt lcm perm prod sqrt trunc")
    | _dotted(
        "typing",
        "Any Callable ClassVar Dict Final Iterable Iterator List Literal Mapping NamedTuple Optional "
        "Sequence TYPE_CHECKING Tuple Union cast",
    )
)
"""Dotted names that mean the same everywhere."""
DTYPES = frozenset(
    _dotted(
        "torch",
        "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 half float double int "
        "long short",
    )
)
BUILTINS = frozenset((
    "abs", "all", "any", "bool", "classmethod", "dict", "divmod", "enumerate", "filter", "float",
    "frozenset", "int", "isinstance", "issubclass", "len", "list", "map", "max", "min", "object",
    "pow", "property", "range", "reversed", "round", "set", "slice", "sorted", "staticmethod",
    "sum", "super", "tuple", "zip", "Exception", "ValueError", "TypeError", "KeyError",
    "AssertionError", "NotImplementedError", "__name__",
))  # fmt: skip
_METHODS = {"__init__", "__post_init__", "__call__"}
"""Methods called by Python that may be defined; others change what syntax means."""
_MODULE_NAMES = {"__all__", "__author__", "__version__"}
_ORDERING = {"sorted", "len", "min", "max"}
"""What tells nothing of the order in which a set holds its elements."""
_ITERATING = _ORDERING | {"list", "tuple", "dict", "enumerate", "zip", "sum"}
_INSIDE = ("__", "gi_", "cr_", "ag_", "tb_", "f_", "co_")
"""What attributes start with that lead from a value to the interpreter."""
_STATEMENTS = (
    ast.Try, getattr(ast, "TryStar", ast.Try), ast.With, ast.AsyncWith, ast.Global, ast.Delete,
)  # fmt: skip
_DISPLAYS = (ast.Dict, ast.List, ast.Tuple, ast.ListComp, ast.DictComp, ast.GeneratorExp)
_ANNOTATING = (
    ast.Name, ast.Attribute, ast.Subscript, ast.BinOp, ast.BitOr, ast.Constant, ast.Tuple, ast.List,
    ast.Load,
)  # fmt: skip


def only_names_types(annotation: ast.expr) -> bool:
    """Whether evaluating an annotation does nothing: names, attributes, subscripts and unions."""
    return all(isinstance(node, _ANNOTATING) for node in ast.walk(annotation))


def refused(tree: ast.AST) -> Iterator[Refusal]:
    """The nodes of what runs that may do another thing elsewhere, whatever their names stand for."""
    above = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    texts = {
        node.body[0].value
        for node in ast.walk(tree)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        for reason in (
            *_statement(node),
            *_binding(node),
            *_attribute(node, above),
            *_text(node, texts),
            *_set(node, above),
            *_call(node),
        ):
            yield node, reason


def _statement(node: ast.AST) -> Iterator[str]:
    if isinstance(node, _STATEMENTS):
        yield f"{type(node).__name__.lower()} where it runs on import"
    if isinstance(node, ast.Assert) and any(
        isinstance(part, (ast.Call, ast.NamedExpr)) for part in ast.walk(node)
    ):
        yield "an assert that does something, which Python may leave out"


def _binding(node: ast.AST) -> Iterator[str]:
    """A name that is bound only later, or in one case, is the builtin until then."""
    if isinstance(node, ast.arg) and node.arg in _ITERATING:
        yield f"it binds {node.arg}"
    function = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    for name in bound_by(node):
        dunder = name.startswith("__") and name.endswith("__")
        if function and name in _METHODS:
            continue
        if hasattr(builtins, name) or (dunder and name not in _MODULE_NAMES):
            yield f"it binds {name}"


def _attribute(node: ast.AST, above: dict[ast.AST, ast.AST]) -> Iterator[str]:
    if not isinstance(node, ast.Attribute):
        return
    if node.attr.startswith(_INSIDE):
        yield f"it reads {node.attr}"
    if node.attr in ("format", "format_map"):
        yield f"{node.attr}() reads attributes that its text names"
    if not isinstance(node.ctx, ast.Load) and getattr(node.value, "id", "") != "self":
        yield f"it sets the attribute {node.attr}"
    if node.attr in ("keys", "items"):
        call = above.get(node)
        if not (
            isinstance(call, ast.Call) and call.func is node and _goes_to(call, above, _ITERATING)
        ):
            yield f"{node.attr}() where it may be taken for a set"


def _text(node: ast.AST, documenting: set[ast.expr]) -> Iterator[str]:
    """Texts of values hold addresses, and differ between versions of Python."""
    if isinstance(node, ast.FormattedValue):
        yield "an f-string of a value"
    if isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes)):
        percent = "%" if isinstance(node.value, str) else b"%"
        if percent in node.value and node not in documenting:  # type: ignore[operator]
            yield "a text that may be a format"


def _set(node: ast.AST, above: dict[ast.AST, ast.AST]) -> Iterator[str]:
    held: ast.AST | None = node if isinstance(node, (ast.Set, ast.SetComp)) else None
    if isinstance(node, ast.Name) and node.id in ("set", "frozenset"):
        held = above.get(node)
        if not (isinstance(held, ast.Call) and held.func is node):
            yield f"{node.id} where it isn't called"
            return
    if held is None:
        return
    parent = above.get(held)
    looked_in = (
        isinstance(parent, ast.Compare)
        and held is not parent.left
        and len(parent.ops) == 1
        and isinstance(parent.ops[0], (ast.In, ast.NotIn))
    )
    if not looked_in and not _goes_to(held, above, _ORDERING):
        yield "the order of a set may count"


def _goes_to(node: ast.AST, above: dict[ast.AST, ast.AST], functions: set[str]) -> bool:
    """Whether a value is an argument of one of these functions only; or iterated, where those iterate."""
    parent = above.get(node)
    if isinstance(parent, (ast.For, ast.comprehension)):
        return functions is _ITERATING and node is parent.iter
    return (
        isinstance(parent, ast.Call)
        and node in parent.args
        and getattr(parent.func, "id", "") in functions
        # Elements of equal keys stay in the order in which they come.
        and (functions is _ITERATING or all(k.arg == "reverse" for k in parent.keywords))
    )


def _call(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "dict":
        for argument in node.args:
            zipped = isinstance(argument, ast.Call) and getattr(argument.func, "id", "") == "zip"
            if not (zipped or isinstance(argument, _DISPLAYS)):
                yield "dict() of what isn't written out"
