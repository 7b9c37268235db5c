"""`kernel` and `register`: how a Helion kernel is declared, and gets its configs from the store."""

from __future__ import annotations

import dataclasses
import linecache
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from typing import Any

from lfbo_aot.errors import DeclarationError
from lfbo_aot.errors import suggestion
from lfbo_aot.registry import catalog
from lfbo_aot.registry.source import SourceError
from lfbo_aot.registry.source import source_digest
from lfbo_aot.registry.spec import KernelSpec
from lfbo_aot.registry.spec import make_spec
from lfbo_aot.runtime.serving import serve

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Mapping
    from collections.abc import Sequence

    from lfbo_aot.registry.dims import Dim
    from lfbo_aot.registry.dims import Value

    Shape = Callable[..., Mapping[str, object]]
    Inputs = Callable[[Mapping[str, Value], Any], Sequence[Any]]

_OURS = ("dims", "shape", "inputs", "reference", "tolerance", "small", "buckets", "mutates")
_FIXED = (
    "a fixed config leaves nothing to look up; for a kernel with a fixed config use helion.kernel, "
    "and to prefer one config of several put it in a database laid over the others (LFBO_AOT_PATH)"
)
_REFUSED = {
    "config": _FIXED,
    "configs": _FIXED,
    "key": "lfbo-aot makes the key itself, of the call's bucket; what else picks a config is a dim",
}
_PACKAGE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def kernel(
    bare: Any = None,
    /,
    *,
    dims: Mapping[str, Dim] | None = None,
    shape: Shape | None = None,
    inputs: Inputs | None = None,
    reference: Callable[..., Any] | None = None,
    tolerance: Mapping[Any, tuple[float, float]] | None = None,
    small: Sequence[Mapping[str, object]] = (),
    buckets: Sequence[Mapping[str, object]] | None = None,
    mutates: Sequence[str] = (),
    package: str | None = None,
    **settings: Any,
) -> Callable[[Callable[..., Any]], Any]:
    """A decorator that makes a function a `helion.Kernel` whose configs come from the store.

    `dims` says what a config depends on, and `shape` maps a call's arguments to the dims; it may
    read their sizes, strides, dtypes, devices and plain values, by which answers are remembered. A
    plain argument that it doesn't read is part of what an entry holds for. `inputs`,
    `reference`, `tolerance`, `small` and `mutates` are for tuning; without `inputs` the kernel can
    only be served. `buckets` lists boxes in place of the product of the dims' parts. `package`
    stands before the name in the kernel's id. The other keywords are Helion's settings.

    The kernel is called as any of Helion's. A stored config is compiled and loaded before it is
    set, at the first call of a specialisation; where that fails its alternates are tried, and then
    Helion's default is served. `kernel.prepare(*args)` gives a function for one call signature that
    skips dispatch. Call a kernel once before it is captured in a CUDA graph: under capture the
    first call compiles and loads as well, and operations of its host code are recorded twice.

    Inside torch.compile Helion's tuner is never reached. Where torch has Helion's hooks for Inductor
    (2.13) calls are captured whole: known sizes are served what is stored for them; where sizes are
    symbols (`dynamic=True`, a second size of one dim) a kernel with `static_shapes=False` is served
    Helion's default, said once with the reason `dynamic`, and Inductor refuses one with static
    shapes, as Helion has it. Elsewhere (2.11) Dynamo traces into the call, which works, for Helion's
    own kernels too, where the kernel was called with the same shape before; it runs what that
    call ran, with sizes as constants.

    Raises DeclarationError, naming the kernel, the dim and the source line. `dims` and `shape` are
    needed; that they can be left out, and `bare`, are there to say so.
    """
    if bare is not None:
        msg = "dims= and shape= are missing; write @lfbo_aot.kernel(dims=..., shape=...)"
        if hasattr(bare, "__code__"):
            raise _Place.of(bare, package).error(msg)
        raise DeclarationError(msg)

    def declare(function: Callable[..., Any]) -> Any:
        where = _Place.of(function, package)
        made = where.build(function, settings)
        _declare(
            made,
            where,
            dims=dims,
            shape=shape,
            inputs=inputs,
            reference=reference,
            tolerance=tolerance,
            small=small,
            buckets=buckets,
            mutates=mutates,
        )
        return made

    return declare


def register(
    existing: Any,
    *,
    dims: Mapping[str, Dim] | None = None,
    shape: Shape | None = None,
    inputs: Inputs | None = None,
    reference: Callable[..., Any] | None = None,
    tolerance: Mapping[Any, tuple[float, float]] | None = None,
    small: Sequence[Mapping[str, object]] = (),
    buckets: Sequence[Mapping[str, object]] | None = None,
    mutates: Sequence[str] = (),
    package: str | None = None,
) -> Any:
    """`existing`, a `helion.Kernel` that you can't edit, declared as by `kernel`; it is changed.

    Where it has a config of its own, that takes the place of Helion's default. Bound kernels made
    before keep what they have; calls of the kernel get new ones. A `key=` of its own still counts.
    Raises DeclarationError as `kernel` does.
    """
    import helion

    if type(existing) is not helion.Kernel:
        msg = f"register() takes a helion.Kernel, not {type(existing).__name__}"
        raise DeclarationError(msg)
    _declare(
        existing,
        _Place.of(existing.fn, package),
        dims=dims,
        shape=shape,
        inputs=inputs,
        reference=reference,
        tolerance=tolerance,
        small=small,
        buckets=buckets,
        mutates=mutates,
    )
    return existing


def _declare(helion_kernel: Any, where: _Place, **declared: Any) -> KernelSpec:
    spec = make_spec(
        kernel=helion_kernel,
        kernel_id=where.kernel_id,
        signature=helion_kernel.signature,
        place=(where.module, where.file, where.line),
        source=where.digest(helion_kernel.fn),
        settings=generation_settings(helion_kernel.settings),
        **declared,
    )
    catalog.add(spec)
    serve(helion_kernel, spec)
    return spec


def generation_settings(settings: Any) -> dict[str, Any]:
    """Those of a `helion.Settings` that change generated code, as JSON values."""
    index = settings.index_dtype
    return {
        "static_shapes": bool(settings.static_shapes),
        "fast_math": bool(settings.fast_math),
        "dot_precision": str(settings.dot_precision),
        "index_dtype": None if index is None else str(index).removeprefix("torch."),
        "backend": str(settings.backend),
    }


@dataclasses.dataclass(frozen=True, slots=True)
class _Place:
    """Where a kernel function is written, and what it is called there."""

    module: str
    file: str
    line: int
    kernel_id: str

    @classmethod
    def of(cls, function: Any, package: str | None) -> _Place:
        """The place of a plain function; DeclarationError where it is none."""
        code = getattr(function, "__code__", None)
        if code is None or not hasattr(function, "__qualname__"):
            msg = f"a kernel is declared on a plain function, not on {function!r}"
            raise DeclarationError(msg)
        file = str(code.co_filename)
        file = os.path.realpath(file) if Path(file).is_file() else file
        line = _line(file, int(code.co_firstlineno), str(function.__name__))
        module = _module(str(function.__module__))
        name = package or _package(module, file)
        place = cls(module, file, line, f"{name}.{function.__name__}")
        if not _PACKAGE.fullmatch(name):
            msg = f"package={name!r} must be an identifier, as in mykern"
            raise place.error(msg)
        return place

    def error(self, reason: str) -> DeclarationError:
        return DeclarationError(reason, kernel=self.kernel_id, place=f"{self.file}:{self.line}")

    def build(self, function: Callable[..., Any], settings: Mapping[str, Any]) -> Any:
        """The `helion.Kernel` of `function`."""
        import helion

        for name, reason in _REFUSED.items():
            if settings.get(name) is not None:
                msg = f"{name}= can't be given: {reason}"
                raise self.error(msg)
        known = {field.name for field in dataclasses.fields(helion.Settings)}
        known |= {"settings", "cute_structural_policy"}
        for name in settings:
            if name not in known:
                near = suggestion(name, {*known, *_OURS, "package"})
                msg = f"{name}= is neither ours nor one of Helion's settings. {near}".strip()
                raise self.error(msg)
        try:
            return helion.kernel(**settings)(function)
        except (TypeError, ValueError, AssertionError) as error:
            msg = f"Helion doesn't take it: {error or type(error).__name__}"
            raise self.error(msg) from error

    def digest(self, function: Any) -> str:
        """The digest of the function's source."""
        path = Path(self.file)
        text = None
        if not path.is_file():  # a notebook's cell, or a module in a zip file
            text = "".join(linecache.getlines(self.file, function.__globals__))
            if not text:
                msg = "its source can't be read, and both Helion and the database need it"
                raise self.error(msg)
        module = None if self.module == "__main__" else self.module
        try:
            return source_digest(path, function.__qualname__, module=module, text=text)
        except SourceError as error:
            raise self.error(str(error)) from error


def _line(file: str, first: int, name: str) -> int:
    """The line of `def`, which stands below the decorators."""
    defines = re.compile(rf"\s*(async\s+)?def\s+{re.escape(name)}\b")
    lines = linecache.getlines(file)
    for number in range(first, min(first + 200, len(lines) + 1)):
        if defines.match(lines[number - 1]):
            return number
    return first


def _module(name: str) -> str:
    """The module's dotted name; that of `python -m` where it is known."""
    if name == "__main__":
        spec = getattr(sys.modules.get(name), "__spec__", None)
        found = getattr(spec, "name", None)
        if found:
            return str(found).removesuffix(".__main__")
    return name


def _package(module: str, file: str) -> str:
    """The top-level package; of a script, or a file loaded by path, the file's stem."""
    top, dot, _ = module.partition(".")
    path = Path(file)
    by_path = not dot and path.name != "__init__.py" and path.suffix == ".py" and path.stem != top
    if module == "__main__" or by_path:
        stem = re.sub(r"\W", "_", path.stem)
        return stem if _PACKAGE.fullmatch(stem) else f"_{stem}"
    return top
