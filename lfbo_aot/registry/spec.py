"""A kernel as declared: what its configs depend on, how to call it, and what it must compute."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field
from typing import TYPE_CHECKING
from typing import Any

from lfbo_aot.errors import DeclarationError
from lfbo_aot.errors import ShapeError
from lfbo_aot.errors import TuningError
from lfbo_aot.registry.buckets import Bucket
from lfbo_aot.registry.buckets import check_names
from lfbo_aot.registry.buckets import enumerate_buckets
from lfbo_aot.registry.layout import describe_layout
from lfbo_aot.registry.reads import places_read
from lfbo_aot.registry.values import Value
from lfbo_aot.registry.values import check_dtype
from lfbo_aot.registry.values import check_text
from lfbo_aot.registry.values import normalize_value

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Sequence

    from lfbo_aot.registry.dims import Dim
    from lfbo_aot.registry.layout import Layout

KERNEL_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")
LONGEST_ID = 200

# What a result may differ by, as (relative, absolute): a few units in the last place of the dtype,
# for sums of some thousand terms that are taken in another order.
TOLERANCE: Mapping[str, tuple[float, float]] = {
    "float64": (1e-7, 1e-7),
    "float32": (1e-4, 1e-4),
    "float16": (5e-3, 5e-3),
    "bfloat16": (2e-2, 2e-2),
}


@dataclass(frozen=True, slots=True, eq=False)
class KernelSpec:
    """One declared kernel. Made by `lfbo_aot.kernel` and `lfbo_aot.register`."""

    kernel_id: str
    dims: Mapping[str, Dim]
    """By name, in declared order."""
    buckets: tuple[Bucket, ...]
    shape: Callable[..., Mapping[str, object]]
    """The arguments of a call, defaults applied, to its dims."""
    inputs: Callable[[Mapping[str, Value], Any], Sequence[Any]] | None
    """(shape, device) to the arguments to tune with; None where a kernel is only served."""
    reference: Callable[..., Any] | None
    """What a call must equal; None: the kernel's own result with its default config."""
    tolerance: Mapping[str, tuple[float, float]]
    """(relative, absolute), by the result's dtype."""
    small: tuple[dict[str, Value], ...]
    """Shapes for the interpreter."""
    settings: Mapping[str, Any]
    """Those of Helion's settings that change generated code; JSON-able."""
    mutates: tuple[str, ...]
    """The arguments that a call writes."""
    kernel: Any
    """The `helion.Kernel`."""
    module: str
    file: str
    line: int
    source: str
    """`sha256:...`, see `registry.source`."""
    signature: inspect.Signature = field(repr=False)
    """The kernel function's."""
    places_read: frozenset[int] | None = None
    """The places of the arguments that `shape` may read; None where that can't be told."""

    @property
    def name(self) -> str:
        """The bare name: `layer_norm` of `lfbo_aot.layer_norm`."""
        return self.kernel_id.rpartition(".")[2]

    @property
    def place(self) -> str:
        """Where the kernel is written, as `file:line`."""
        return f"{self.file}:{self.line}"

    @property
    def small_buckets(self) -> tuple[Bucket, ...]:
        """An exact box for each shape of `small`."""
        return tuple(Bucket(tuple((n, shape[n]) for n in self.dims)) for shape in self.small)

    def shape_of(self, *args: Any, **kwargs: Any) -> dict[str, Value]:
        """The dims of a call with these arguments, in declared order.

        Raises ShapeError, naming the kernel and the dim, where `shape` fails, leaves a dim out,
        returns another one, or returns a value that no dim can have; TypeError where the arguments
        don't fit the kernel's parameters.
        """
        given = self._with_defaults(*args, **kwargs)
        try:
            found = self.shape(*given)
        except Exception as error:
            msg = f"its shape function failed: {type(error).__name__}: {error}"
            raise ShapeError(msg, kernel=self.kernel_id) from error
        if not isinstance(found, Mapping):
            msg = f"its shape function returned {type(found).__name__}, not a mapping of dims"
            raise ShapeError(msg, kernel=self.kernel_id)
        return self.normalize_shape(found)

    def layout_of(self, *args: Any, **kwargs: Any) -> Layout:
        """What of a call an entry holds for besides its dims: see `registry.layout`.

        That is the tensors' layout and the plain values that no dim tells: they may change the code.
        TypeError where the arguments don't fit the kernel's parameters.
        """
        given = self._with_defaults(*args, **kwargs)
        fixed = {}
        if self.places_read is not None:
            pairs = zip(self.signature.parameters.values(), given, strict=True)
            fixed = {
                parameter.name: value
                for place, (parameter, value) in enumerate(pairs)
                if place not in self.places_read and not _is_run_time(parameter, value)
            }
        return describe_layout(given, fixed)

    def _with_defaults(self, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return bound.args

    def normalize_shape(self, shape: Mapping[str, object]) -> dict[str, Value]:
        """`shape` in declared order with plain values; ShapeError where a dim is missing or wrong.

        The values may lie outside every bucket.
        """
        unknown = [name for name in shape if name not in self.dims]
        if unknown:
            msg = f"not a declared dim; declared: {', '.join(self.dims)}"
            raise ShapeError(msg, kernel=self.kernel_id, dim=unknown[0])
        found: dict[str, Value] = {}
        for name in self.dims:
            if name not in shape:
                msg = "declared, but not among the shape's dims: " + (", ".join(shape) or "none")
                raise ShapeError(msg, kernel=self.kernel_id, dim=name)
            try:
                found[name] = check_text(normalize_value(shape[name]))
            except DeclarationError as error:
                raise ShapeError(error.reason, kernel=self.kernel_id, dim=name) from None
        return found

    def bucket_for(self, shape: Mapping[str, Value]) -> Bucket | None:
        """The declared bucket that holds `shape`; None where none does."""
        return next((bucket for bucket in self.buckets if bucket.contains(shape)), None)

    def make_inputs(self, shape: Mapping[str, Value], device: Any) -> tuple[Any, ...]:
        """The arguments to tune with at `shape`; TuningError where none were declared, or wrong."""
        if self.inputs is None:
            msg = (
                f"kernel {self.kernel_id!r} ({self.place}) has no inputs=, so it can be served but "
                "not tuned; declare inputs=, a function of (shape, device) that returns arguments"
            )
            raise TuningError(msg)
        args = self.inputs(dict(shape), device)
        if not isinstance(args, (tuple, list)):
            msg = f"inputs= of kernel {self.kernel_id!r} must return a tuple, not {type(args)}"
            raise TuningError(msg)
        made = self.shape_of(*args)
        if made != dict(shape):
            msg = (
                f"inputs= of kernel {self.kernel_id!r} made arguments of shape {made} when asked "
                f"for {dict(shape)}; its entries would answer for the wrong shape"
            )
            raise TuningError(msg)
        return tuple(args)


def make_spec(
    *,
    kernel: Any,
    kernel_id: str,
    signature: inspect.Signature,
    place: tuple[str, str, int],
    source: str,
    settings: Mapping[str, Any],
    dims: Mapping[str, Dim] | None,
    shape: Callable[..., Mapping[str, object]] | None,
    buckets: Sequence[Mapping[str, object]] | None = None,
    inputs: Callable[[Mapping[str, Value], Any], Sequence[Any]] | None = None,
    reference: Callable[..., Any] | None = None,
    tolerance: Mapping[Any, tuple[float, float]] | None = None,
    small: Sequence[Mapping[str, object]] = (),
    mutates: Sequence[str] = (),
) -> KernelSpec:
    """The checked spec of a kernel; `place` is its module, file and line.

    Raises DeclarationError naming the kernel, the dim where one is at fault, and `file:line`.
    """
    module, file, line = place
    try:
        _check_id(kernel_id)
        if not isinstance(dims, Mapping):
            given = "is missing" if dims is None else f"is {dims!r}"
            msg = f"dims= {given}; it takes a mapping such as {{'m': Range(1, 65536, factor=4)}}"
            raise DeclarationError(msg)  # noqa: TRY301 - the kernel and the place are added below
        if shape is None:
            msg = "shape= is missing; it must be a function of the kernel's arguments to its dims"
            raise DeclarationError(msg)  # noqa: TRY301
        _check_callables(signature, shape, inputs, reference)
        read = places_read(shape)
        if read is None:
            _refuse_unseen(signature)
        found = enumerate_buckets(dims, buckets)
        return KernelSpec(
            kernel_id=kernel_id,
            dims=dict(dims),
            buckets=found,
            shape=shape,
            inputs=inputs,
            reference=reference,
            tolerance=_tolerance(tolerance or {}),
            small=tuple(_small(dims, item, i) for i, item in enumerate(small)),
            settings=dict(settings),
            mutates=_mutates(signature, mutates),
            kernel=kernel,
            module=module,
            file=file,
            line=line,
            source=source,
            signature=signature,
            places_read=read,
        )
    except DeclarationError as error:
        raise DeclarationError(
            error.reason, kernel=kernel_id, dim=error.dim, place=f"{file}:{line}"
        ) from None


def _is_run_time(parameter: inspect.Parameter, value: object) -> bool:
    """Whether Helion passes a value to the compiled kernel, in place of making code for it."""
    return type(value) is float and "constexpr" not in str(parameter.annotation).lower()


def _refuse_unseen(signature: inspect.Signature) -> None:
    """DeclarationError where `shape` may or may not read an argument that may change the code."""
    for parameter in signature.parameters.values():
        words = set(re.findall(r"\w+", str(parameter.annotation)))
        plain = words & {"int", "bool", "str"} and "Tensor" not in words
        if plain or type(parameter.default) in (int, bool, str):
            msg = (
                f"it can't be seen whether shape= reads {parameter.name!r}, which may change the "
                "code that is generated; make shape= a function with the kernel's parameters, "
                "without *args and functools.partial"
            )
            raise DeclarationError(msg)


def _check_id(kernel_id: str) -> None:
    """DeclarationError unless files can be called after the kernel: its id names them."""
    if not KERNEL_ID.fullmatch(kernel_id) or len(kernel_id) > LONGEST_ID:
        msg = (
            f"the id {kernel_id!r} can't be the name of a file of the database; ids are made of "
            f"ASCII letters, digits, '_' and dots, {LONGEST_ID} at most"
        )
        raise DeclarationError(msg)


def _check_callables(
    signature: inspect.Signature,
    shape: object,
    inputs: object,
    reference: object,
) -> None:
    count = len(signature.parameters)
    _accepts("shape", shape, count, "the kernel's arguments: " + ", ".join(signature.parameters))
    if inputs is not None:
        _accepts("inputs", inputs, 2, "shape and device")
    if reference is not None:
        _accepts("reference", reference, count, "the kernel's arguments")


def _accepts(what: str, function: object, count: int, meaning: str) -> None:
    """DeclarationError unless `function` can be called with `count` positional arguments."""
    if not callable(function):
        msg = f"{what}= must be a function of {meaning}"
        raise DeclarationError(msg)
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return  # a built-in that doesn't tell
    try:
        signature.bind(*[None] * count)
    except TypeError as error:
        msg = f"{what}={what}{signature} can't take {meaning} ({count} of them): {error}"
        raise DeclarationError(msg) from None


def _small(dims: Mapping[str, Dim], item: Mapping[str, object], index: int) -> dict[str, Value]:
    """A small shape in declared order. Its values may lie outside what the dims declare."""
    what = f"small[{index}]"
    if not isinstance(item, Mapping):
        msg = f"{what} is {item!r}; expected a mapping of dims to values"
        raise DeclarationError(msg)
    check_names(what, dims, item)
    shape: dict[str, Value] = {}
    for name in dims:
        try:
            value = check_text(normalize_value(item[name]))
            check_dtype(name, value)
        except DeclarationError as error:
            msg = f"{what}: {error.reason}"
            raise DeclarationError(msg, dim=name) from None
        shape[name] = value
    return shape


def _tolerance(given: Mapping[Any, tuple[float, float]]) -> dict[str, tuple[float, float]]:
    found = dict(TOLERANCE)
    for key, pair in given.items():
        dtype = normalize_value(key)
        check_dtype("dtype", dtype)
        numbers = tuple(pair) if isinstance(pair, (tuple, list)) else ()
        if len(numbers) != 2 or not all(  # noqa: PLR2004 - relative and absolute
            isinstance(n, (int, float)) and 0 <= n < float("inf") for n in numbers
        ):
            msg = f"tolerance={pair!r} for {dtype} must be (relative, absolute), both 0 or more"
            raise DeclarationError(msg)
        found[str(dtype)] = (float(numbers[0]), float(numbers[1]))
    return found


def _mutates(signature: inspect.Signature, names: Sequence[str]) -> tuple[str, ...]:
    given = (names,) if isinstance(names, str) else tuple(names)
    for name in given:
        if name not in signature.parameters:
            known = ", ".join(signature.parameters)
            msg = f"mutates= names {name!r}, which isn't a parameter; there are: {known}"
            raise DeclarationError(msg)
    return given
