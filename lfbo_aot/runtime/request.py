"""What is asked: the kernel, the shape and the target of a look-up, checked and made plain."""

from __future__ import annotations

import contextlib
import numbers
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field
from dataclasses import replace
from typing import TYPE_CHECKING
from typing import Any

from lfbo_aot.errors import DatabaseError
from lfbo_aot.errors import DeclarationError
from lfbo_aot.errors import DeviceUnavailableError
from lfbo_aot.errors import ShapeError
from lfbo_aot.errors import UnknownNameError
from lfbo_aot.registry import catalog
from lfbo_aot.registry.buckets import part_text
from lfbo_aot.registry.devices import INTERPRETER
from lfbo_aot.registry.devices import Target
from lfbo_aot.registry.devices import check_arch
from lfbo_aot.registry.devices import parse_target
from lfbo_aot.registry.dims import Range
from lfbo_aot.registry.dims import check_dtype
from lfbo_aot.registry.dims import check_text
from lfbo_aot.registry.dims import normalize_value
from lfbo_aot.registry.layout import Layout
from lfbo_aot.registry.layout import is_tensor
from lfbo_aot.registry.layout import tensors_in
from lfbo_aot.runtime.environment import Environment

if TYPE_CHECKING:
    from lfbo_aot.database.store import Store
    from lfbo_aot.registry.buckets import Bucket
    from lfbo_aot.registry.dims import Dim
    from lfbo_aot.registry.dims import Value

_INT: frozenset[type] = frozenset((int,))
_MOST_BITS = 4096  # what Python writes as text, it does up to some thousand digits

Dims = Mapping[str, frozenset[type]]
"""The dims of a kernel in declared order, each with the types that its values have."""


@dataclass(frozen=True, slots=True)
class Request:
    """A look-up in plain terms."""

    kernel_id: str
    shape: dict[str, Value]
    target: Target
    environment: Environment
    layout: Layout | None = None
    """Of the live tensors; None where there are none."""
    declared: Sequence[Bucket | str] | None = None
    """The buckets declared for the target, or their keys; None where that isn't known."""
    damage: tuple[DatabaseError, ...] = field(default=())
    """What was found broken while the declaration was read."""

    @property
    def shape_key(self) -> str:
        """The shape as it would stand in a key."""
        return "|".join(f"{name}={part_text(value)}" for name, value in self.shape.items())

    @property
    def key(self) -> str:
        """The key that is looked up, for messages; a bare arch has no device to name."""
        device = self.target.device
        return f"{device.name if device else '*'}|{self.shape_key}"


def make_request(
    store: Store,
    kernel: object,
    shape: object,
    arch: object,
    environment: Environment | None,
) -> Request:
    """What `resolve` was asked, checked; `arch` is text, a DeviceId, a Target, a torch.device or None.

    Raises UnknownNameError and AmbiguousKernelError for the kernel, a dim or the arch, ShapeError
    for a dim that is missing or of a wrong type, DeviceUnavailableError where no arch is given and
    none can be told.
    """
    if isinstance(kernel, str):
        return _by_name(store, kernel, shape, arch, environment or Environment())
    spec: Any = getattr(kernel, "lfbo_aot_spec", None)
    if spec is None:
        kind, hint = "kernel", "Pass a name, or a kernel made by lfbo_aot.kernel or .register."
        raise UnknownNameError(kind, repr(kernel), (), hint)
    # What the kernel itself knows is checked; versions are the caller's to give.
    given = environment or Environment()
    given = Environment(
        source=spec.source if given.source is None else given.source,
        settings=spec.settings if given.settings is None else given.settings,
        versions=given.versions,
        limits=given.limits,
    )
    args = _live(shape)
    dims = _declared_dims(spec.dims)
    request = Request(
        kernel_id=spec.kernel_id,
        shape=spec.shape_of(*args) if args else _plain(spec.kernel_id, dims, shape),
        target=_target(store, arch, args),
        environment=given,
        layout=spec.layout_of(*args) if args else None,
    )
    return replace(request, declared=_declared_for(spec, request.target))


def _by_name(
    store: Store, name: str, shape: object, arch: object, environment: Environment
) -> Request:
    specs = {spec.kernel_id: spec for spec in catalog.specs()}
    kernel_id = store.find(name, specs)
    request = Request(kernel_id, {}, _target(store, arch, ()), environment)
    declaration, damage = store.declaration(kernel_id)
    declared: Any = declaration or specs.get(kernel_id)
    if declared is not None:
        dims = _declared_dims(declared.dims)
        request = replace(request, declared=_declared_for(declared, request.target))
    else:
        dims = _dims_of_keys(store, kernel_id, request.target.arch)
    request = replace(request, damage=damage)
    # With neither a declaration nor a key that can be read, nothing is known, and nothing held.
    return replace(request, shape=_plain(kernel_id, dims, shape)) if dims else request


def _declared_for(declared: Any, target: Target) -> Sequence[Bucket | str] | None:
    """What a KernelSpec or a Declaration says of a target: the interpreter has shapes of its own."""
    if target.device != INTERPRETER:
        buckets: Sequence[Bucket | str] = declared.buckets
        return buckets
    if hasattr(declared, "small_buckets"):
        small: Sequence[Bucket | str] = declared.small_buckets
        return small
    known = declared.enumeration
    return None if known is None else known.small


def shape_text(shape: Mapping[str, Value]) -> str:
    """`m=4096 causal=true`, as the command line takes it."""
    return " ".join(f"{name}={part_text(value)}" for name, value in shape.items())


def _plain(kernel_id: str, dims: Dims, shape: object) -> dict[str, Value]:
    """`shape` in declared order with plain values, each checked against its dim's types."""
    if isinstance(shape, Mapping):
        given: Mapping[Any, object] = shape
        unknown = [str(name) for name in shape if name not in dims]
        if unknown:
            kind = f"dim of kernel {kernel_id!r}:"
            raise UnknownNameError(kind, unknown[0], dims, f"Declared: {', '.join(dims)}.")
        missing = [name for name in dims if name not in shape]
        if missing:
            msg = f"missing from the shape; the kernel's dims are {', '.join(dims)}"
            raise ShapeError(msg, kernel=kernel_id, dim=missing[0])
    elif isinstance(shape, Sequence) and not isinstance(shape, str):
        if len(shape) != len(dims):
            msg = f"{len(shape)} values for {len(dims)} dims, which are {', '.join(dims)}"
            raise ShapeError(msg, kernel=kernel_id)
        given = dict(zip(dims, shape, strict=True))
    else:
        msg = (
            f"the shape is a {type(shape).__qualname__}; "
            f"pass a mapping of dims, or a tuple of values in the order {', '.join(dims)}"
        )
        raise ShapeError(msg, kernel=kernel_id)
    return {name: _value(kernel_id, name, given[name], types) for name, types in dims.items()}


def _value(kernel_id: str, name: str, given: object, types: frozenset[type]) -> Value:
    given = _whole(given)
    try:
        value = check_text(normalize_value(given))
        if isinstance(value, int) and value.bit_length() > _MOST_BITS:
            msg = f"a number of {value.bit_length()} bits is no size"
            raise ShapeError(msg, kernel=kernel_id, dim=name)
        if type(value) not in types:
            expected = " or ".join(sorted(kind.__name__ for kind in types))
            msg = f"{given!r} is {type(value).__name__}; the dim takes {expected}"
            raise ShapeError(msg, kernel=kernel_id, dim=name)
        check_dtype(name, value)
    except DeclarationError as error:
        raise ShapeError(error.reason, kernel=kernel_id, dim=name) from None
    return value


def _whole(given: object) -> object:
    """A number that equals a whole one as that: equal questions must get equal answers."""
    if isinstance(given, numbers.Number) and not isinstance(given, int):
        number: Any = given
        with contextlib.suppress(ArithmeticError, ValueError, TypeError):
            whole = int(number.real)
            return whole if whole == number else given
    return given


def _declared_dims(dims: Mapping[str, Dim]) -> Dims:
    # The parts of a range needn't be made to know what lies in them.
    return {n: _INT if type(d) is Range else _types(d.parts()) for n, d in dims.items()}


def _types(parts: Sequence[object]) -> frozenset[type]:
    return frozenset(type(p) if isinstance(p, (bool, str)) else int for p in parts)


def _dims_of_keys(store: Store, kernel_id: str, arch: str) -> Dims:
    """The dims that a kernel's keys show, where no layer declares it; those of `arch` first."""
    for layer in store.layers:
        database = layer.database
        for name in sorted(database.archs(), key=lambda a: (a != arch, a)):
            buckets = _buckets(database.shard(kernel_id, name))
            if buckets:
                like = [b for b in buckets if b.names == buckets[0].names]
                columns = zip(*(b.parts for b in like), strict=True)
                return {col[0][0]: _types([part for _, part in col]) for col in columns}
    return {}


def _buckets(shard: Any) -> list[Bucket]:
    if shard is None:
        return []
    try:
        return [bucket for name in shard.device_names for bucket, _ in shard.boxes(name)]
    except DatabaseError:
        # A file that can't be read shows no dims; the look-up itself reports it.
        return []


class Live(tuple[Any, ...]):
    """The arguments of a call, whatever is among them: a call need not have a tensor to be one."""

    __slots__ = ()


def _live(shape: object) -> tuple[Any, ...]:
    """The live arguments of a call; empty where `shape` holds dims."""
    if isinstance(shape, Live):
        return tuple(shape)
    if is_tensor(shape):
        return (shape,)
    if isinstance(shape, (tuple, list)) and next(tensors_in(shape), None) is not None:
        return tuple(shape)
    return ()


def find_target(store: Store, arch: object) -> Target:
    """The target that `arch` writes, as text, as a DeviceId or as a Target.

    Raises UnknownNameError, with the nearest, where it is neither an arch that could be nor one that
    a layer holds.
    """
    target = parse_target(str(arch))
    try:
        return check_arch(target)
    except UnknownNameError:  # only then are layers looked at
        held = {name for layer in store.layers for name in layer.database.archs()}
        return check_arch(target, held)


def _target(store: Store, arch: object, args: tuple[Any, ...]) -> Target:
    from lfbo_aot.runtime import hardware

    if type(arch).__module__ == "torch" and type(arch).__name__ == "device":
        try:
            device = hardware.device_from_torch(arch)
        except (RuntimeError, AssertionError) as error:
            msg = f"torch can't tell what {arch} is: {error}"
            raise DeviceUnavailableError(msg) from error
        return Target(device.arch, device)
    if arch is not None:
        return find_target(store, arch)
    tensor = next(tensors_in(args), None)
    here = hardware.device_of(tensor) if tensor is not None else hardware.current_device()
    if here is None:
        msg = (
            "no arch is given, and none can be told: torch isn't loaded, or sees no device. "
            "Pass arch=, such as 'sm90/NVIDIA H200' or 'sm90'."
        )
        raise DeviceUnavailableError(msg)
    return Target(here.arch, here)
