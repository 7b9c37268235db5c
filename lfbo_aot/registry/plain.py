"""Plain modules: what they declare follows from their own text, and can be known without a run.

A module is plain if its kernels are functions at its top level, each with `@lfbo_aot.kernel(...)`,
and if all that runs when it is imported, here and in the modules of its package that it imports,
computes with literals, the names defined there, and a few others that mean the same everywhere
(`registry.allowed`): some builtins, `Exact` and `Range`, torch's dtypes, and names such as
`math.prod` and `itertools.product`. Nothing else counts as known: no file, variable, device, version or other package, and no import by name. The
rule errs on one side: what isn't plain may declare the same every time, and is asked.
"""

from __future__ import annotations

import ast
import copy
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lfbo_aot.registry.allowed import BUILTINS
from lfbo_aot.registry.allowed import DTYPES
from lfbo_aot.registry.allowed import SAME
from lfbo_aot.registry.allowed import refused
from lfbo_aot.registry.reach import KERNELS
from lfbo_aot.registry.reach import LIBRARY
from lfbo_aot.registry.reach import origin
from lfbo_aot.registry.reach import surely_run
from lfbo_aot.registry.running import FUNCTIONS
from lfbo_aot.registry.running import identifiers
from lfbo_aot.registry.running import renamed
from lfbo_aot.registry.running import running
from lfbo_aot.registry.scope import SourceError
from lfbo_aot.registry.syntax import bound_in
from lfbo_aot.registry.syntax import uses

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Mapping

    from lfbo_aot.registry.reach import Reached

DECORATOR = "lfbo_aot.kernel"
NOT_RUN = ("shape", "inputs", "reference")
"""Functions that a declaration holds and doesn't call."""
_IMPORTED = {"torch", "helion", "triton", "numpy", "typing_extensions", LIBRARY}
"""Packages that may be imported besides the standard library's: they declare no kernel."""
_OURS = {f"{LIBRARY}.{name}" for name in ("Exact", "Range")}


class NotPlainError(SourceError):
    """What a module declares can't be known without a run."""


@dataclass(frozen=True, slots=True)
class Declared:
    """Where a kernel is declared: its module, and the function's name in it."""

    module: str
    name: str


def plain_kernels(modules: Mapping[str, Reached], first: str) -> dict[str, Declared]:
    """The kernels that importing `first` declares, by id; NotPlainError where that can't be told.

    `modules` is what `registry.reach` found for it.
    """
    found: dict[str, Declared] = {}
    read = {name: _Module(name, reached, modules) for name, reached in modules.items()}
    run = surely_run(modules, first)
    for module in read.values():
        for kernel_id, name in module.kernels():
            if module.name not in run:
                msg = f"{module.name}, which declares {kernel_id}, isn't imported in every case"
                raise NotPlainError(msg)
            if kernel_id in found:
                msg = f"{kernel_id} is declared twice"
                raise NotPlainError(msg)
            found[kernel_id] = Declared(module.name, name)
    called: set[str] = set()
    while True:
        trees = {name: module.running(called) for name, module in read.items()}
        now = called.union(*(identifiers(tree) for tree in trees.values()))
        # What is called here by another name, also through modules between, is called there by its own.
        now |= {there for tree in trees.values() for here, there in renamed(tree) if here in now}
        if now == called:
            break
        called = now
    for name, module in read.items():
        module.check(trees[name], read)
    return found


class _Module:
    """One module: what it binds, imports and declares."""

    def __init__(self, name: str, reached: Reached, modules: Mapping[str, Reached]) -> None:
        self.name = name
        self._tree = reached.tree
        self._package = reached.package
        self._modules = modules
        self.bound = {n for statement in self._tree.body for n in bound_in(statement)}
        self._defined = {
            name
            for statement in self._tree.body
            if not isinstance(statement, (ast.Import, ast.ImportFrom))
            for name in bound_in(statement)
        }
        self._imports: dict[str, set[str]] = {}
        for node in ast.walk(self._tree):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                for local, target in self._imported(node):
                    self._imports.setdefault(local, set()).add(target)

    def _imported(self, node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, str]]:
        for alias in node.names:
            if isinstance(node, ast.ImportFrom):
                base = ".".join(origin(node, self._package))
                yield alias.asname or alias.name, f"{base}.{alias.name}" if base else alias.name
            else:
                top = alias.name.partition(".")[0]
                yield alias.asname or top, alias.name if alias.asname else top

    def kernels(self) -> Iterator[tuple[str, str]]:
        """(id, name) of each function that is declared plainly."""
        for node in self._tree.body:
            if isinstance(node, FUNCTIONS):
                for decorator in filter(self._declares, node.decorator_list):
                    yield f"{self._prefix(decorator)}.{node.name}", node.name

    def _declares(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Call) and self._outside(node.func) == {DECORATOR}

    def _prefix(self, decorator: ast.expr) -> str:
        """What stands before the name in the id."""
        for keyword in getattr(decorator, "keywords", ()):
            if keyword.arg == "package":
                value = getattr(keyword.value, "value", None)
                if not isinstance(value, str):
                    raise self._refusal(keyword.value, "package= isn't written out")
                return value
            if keyword.arg is None:
                raise self._refusal(keyword.value, "the declaration takes **keywords")
        return self.name.partition(".")[0]

    def _outside(self, node: ast.expr) -> set[str]:
        """The dotted names of what an expression such as `lfbo_aot.kernel` may stand for."""
        attributes: list[str] = []
        while isinstance(node, ast.Attribute):
            attributes.insert(0, node.attr)
            node = node.value
        root = node.id if isinstance(node, ast.Name) else ""
        # A name that is bound otherwise too stands for nothing that can be told.
        targets = set() if root in self._defined else self._imports.get(root, set())
        return {".".join((target, *attributes)) for target in targets}

    def running(self, called: set[str]) -> ast.Module:
        """The module with only what runs: functions have a body where something is `called` so."""
        tree = copy.deepcopy(self._tree)
        free: set[ast.AST] = set()
        for node in tree.body:
            if isinstance(node, FUNCTIONS):
                declaring = list(filter(self._declares, node.decorator_list))
                if len(declaring) == len(node.decorator_list):
                    free.add(node)
                for decorator in declaring:
                    assert isinstance(decorator, ast.Call)  # noqa: S101 - as `_declares` says
                    decorator.func = ast.Constant(value=None)
                    decorator.keywords = [k for k in decorator.keywords if not _waits(k)]
        return running(tree, called, frozenset(free))

    def check(self, tree: ast.Module, read: Mapping[str, _Module]) -> None:
        """NotPlainError where what runs isn't known to mean the same everywhere."""
        for node, reason in refused(tree):
            raise self._refusal(node, reason)
        for node in ast.walk(tree):
            self._check_imports(node)
        for root, attributes in uses(tree):
            if not self._is_known(root, attributes, read, frozenset()):
                dotted = ".".join((root, *attributes))
                raise self._refusal(tree, f"{dotted} isn't known without a run")

    def _check_imports(self, node: ast.AST) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                self._check_import(node, alias.name)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(origin(node, self._package))
            star = any(alias.name == "*" for alias in node.names)
            if star and base not in self._modules:
                raise self._refusal(node, f"it imports all of {base}")
            for alias in node.names:
                self._check_import(node, f"{base}.{alias.name}")

    def _check_import(self, node: ast.AST, target: str) -> None:
        """Other packages may declare kernels, and hand them to this one."""
        top = target.partition(".")[0]
        if self._owner(target) is not None or top == self.name.partition(".")[0] != LIBRARY:
            return
        if f"{target}.".startswith(f"{LIBRARY}.{KERNELS}."):
            raise self._refusal(node, f"it imports {target}")
        if top not in _IMPORTED and top not in sys.stdlib_module_names:
            raise self._refusal(node, f"it imports {target}")

    def _is_known(
        self,
        root: str,
        attributes: tuple[str, ...],
        read: Mapping[str, _Module],
        seen: frozenset[tuple[str, str]],
    ) -> bool:
        """Whether `root.attributes`, as this module reads it, means the same everywhere."""
        if (self.name, root) in seen:
            return False  # modules that import it from each other
        seen |= {(self.name, root)}
        if root in self._imports:
            return all(
                self._is_known_target(".".join((target, *attributes)), read, seen)
                for target in self._imports[root]
            )
        if root in self.bound or root in BUILTINS:
            return True
        return any(m._is_known(root, attributes, read, seen) for m in self._starred(read))  # noqa: SLF001

    def _is_known_target(
        self, target: str, read: Mapping[str, _Module], seen: frozenset[tuple[str, str]]
    ) -> bool:
        owner = self._owner(target)
        if owner is not None:
            root, *attributes = target[len(owner) + 1 :].split(".")
            return not root or read[owner]._is_known(root, tuple(attributes), read, seen)  # noqa: SLF001
        return target in _OURS or target in DTYPES or target in SAME

    def _owner(self, target: str) -> str | None:
        """The module of this package that a dotted name is, or lies in."""
        while target and target not in self._modules:
            target = target.rpartition(".")[0]
        return target or None

    def _starred(self, read: Mapping[str, _Module]) -> Iterator[_Module]:
        """The modules of which this one imports all."""
        for node in self._tree.body:
            if isinstance(node, ast.ImportFrom) and any(a.name == "*" for a in node.names):
                base = ".".join(origin(node, self._package))
                if base in read:
                    yield read[base]

    def _refusal(self, node: ast.AST, reason: str) -> NotPlainError:
        line = getattr(node, "lineno", None)
        return NotPlainError(f"{self.name}{'' if line is None else f', line {line}'}: {reason}")


def _waits(keyword: ast.keyword) -> bool:
    """Whether a keyword of a declaration only names a function, or writes one out: nothing is run."""
    value = keyword.value
    if keyword.arg not in NOT_RUN:
        return False
    while isinstance(value, ast.Attribute):
        value = value.value
    if isinstance(value, ast.Lambda):
        return value is keyword.value and not (value.args.defaults or any(value.args.kw_defaults))
    return isinstance(value, ast.Name)
