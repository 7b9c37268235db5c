"""A callable for one call signature, which skips Helion's dispatch."""

from __future__ import annotations

import functools
import inspect
import math
from typing import TYPE_CHECKING
from typing import Any

from lfbo_aot.runtime import memo

if TYPE_CHECKING:
    from collections.abc import Callable

_OURS = "_aot_"  # what the names of what is checked against begin with
_FLOATS = (float, "float")  # an annotation is a text where the module says so


def prepare(kernel: Any, /, *args: Any, **kwargs: Any) -> Callable[..., Any]:
    """A function for calls like `kernel(*args, **kwargs)`, without what dispatch costs.

    It takes what the kernel takes, by position or by name, and defaults may be left out. Where a
    call has tensors of the same exact types, sizes, strides, dtypes and devices, and equal plain
    values, it goes straight to the function that Helion compiled. Every other call goes to the
    kernel itself, as do all of them after `kernel.reset()`, under another store or policy, where another config is set on the
    specialisation, and where Helion tells specialisations apart by more than these (pointers,
    contents): so it is never wrong, only not faster.

    The kernel is bound, and its config compiled, by `prepare` itself; nothing is launched. The
    function keeps no tensor alive. Raises what a call would raise while it is bound.
    """
    given = kernel.normalize_args(*args, **kwargs)
    bound = kernel.bind(given)
    checks = _checks(kernel, bound, given)
    if checks is None:
        return _forward(kernel)
    return _generate(kernel, bound, *checks)


def _forward(kernel: Any) -> Callable[..., Any]:
    @functools.wraps(kernel.fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        return kernel(*args, **kwargs)

    return call


def _checks(
    kernel: Any, bound: Any, args: tuple[Any, ...]
) -> tuple[list[str], dict[str, Any]] | None:
    """What tells a call like this one, as expressions and the values in them; None: no such thing."""
    plain = (
        bound._run is not None  # noqa: SLF001 - as Helion's own fast paths ask
        and all(map(_implied, kernel._specialize_extra.get(bound._base_spec_key, ())))  # noqa: SLF001
        and not kernel.settings.distributed
        and not kernel._declares_process_group  # noqa: SLF001
        and not bound.env._is_distributed  # noqa: SLF001
        and not any(name.startswith(_OURS) for name in kernel.signature.parameters)
    )
    guard = _Guard()
    # Without an annotation that rules it out, a float may be a constant of the code.
    pairs = zip(kernel.signature.parameters, args, kernel._annotations, strict=True)  # noqa: SLF001
    if plain and all(guard.add(name, value, kind in _FLOATS) for name, value, kind in pairs):
        return (guard.checks, guard.known) if guard.tensors else None
    return None


def _implied(extractor: Any) -> bool:
    """Whether what Helion tells specialisations apart by follows from tensors' metadata."""
    return type(extractor).__name__ == "_PreparedMetadataSpecializationExtractor"


class _Guard:
    """The checks of one call's arguments, collected."""

    def __init__(self) -> None:
        self.checks: list[str] = []
        self.known: dict[str, Any] = {}
        self.tensors: list[tuple[str, Any]] = []

    def add(self, name: str, value: Any, number: bool) -> bool:
        """Check the argument called `name`; whether one like `value` can be checked at all.

        `number` says that a float is passed to the kernel, and isn't a constant of its code.
        """
        import torch

        kind = type(value)
        if kind is torch.Tensor or kind is torch.nn.Parameter:
            return self._tensor(name, value)
        if kind in (int, bool, str):
            self._compare(f"type({name})", kind, "is")
            self._compare(name, value)
        elif kind is float:
            # 0.0 equals -0.0, and nan nothing.
            self._compare(f"type({name})", kind, "is")
            self._compare(name, value)
            return number and not math.isnan(value)
        elif value is None or kind is torch.dtype:
            self._compare(name, value, "is")
        elif kind is torch.device:
            self._compare(name, value)
        else:
            return False
        return True

    def _tensor(self, name: str, tensor: Any) -> bool:
        self._compare(f"type({name})", type(tensor), "is")
        self._compare(f"{name}.shape", tensor.shape)
        if tensor.is_contiguous() and all(size > 1 for size in tensor.shape):
            self.checks.append(
                f"{name}.is_contiguous()"
            )  # leaves the strides no choice, and is quick
        else:
            self._compare(f"{name}.stride()", tensor.stride())
        self._compare(f"{name}.dtype", tensor.dtype, "is")
        self._compare(f"{name}.device", tensor.device)
        # Helion tells calls apart in which one tensor stands for two parameters.
        for other, earlier in self.tensors:
            self.checks.append(f"{name} {'is' if earlier is tensor else 'is not'} {other}")
        self.tensors.append((name, tensor))
        return not getattr(tensor, "_dynamo_static_indices", None)

    def _compare(self, expression: str, value: object, how: str = "==") -> None:
        name = f"_aot_{len(self.known)}"
        self.known[name] = value
        self.checks.append(f"{expression} {how} {name}")


def _generate(
    kernel: Any, bound: Any, checks: list[str], known: dict[str, Any]
) -> Callable[..., Any]:
    """The function that makes these checks, written out once: a loop would cost what it saves."""
    import torch

    names = list(kernel.signature.parameters)
    values = dict(known)
    parameters = []
    for at, (name, parameter) in enumerate(kernel.signature.parameters.items()):
        if parameter.default is inspect.Parameter.empty:
            parameters.append(name)
        else:
            values[f"_aot_default{at}"] = parameter.default
            parameters.append(f"{name}=_aot_default{at}")
    values |= {
        "_aot_kernel": kernel,
        "_aot_group": torch.distributed.GroupMember,
        "_aot_bound": bound,
        "_aot_run": bound._run,  # noqa: SLF001
        "_aot_reset": kernel._reset_generation,  # noqa: SLF001
        "_aot_special": kernel._specialization_generation,  # noqa: SLF001
        "_aot_mark": memo.mark,
        "_aot_marked": memo.mark(),
    }
    # First what changes for all calls, and last what differs most rarely.
    state = [
        "_aot_bound._run is _aot_run",
        "_aot_kernel._reset_generation == _aot_reset",
        "_aot_kernel._specialization_generation == _aot_special",
        "_aot_mark() == _aot_marked",
    ]
    passed = ", ".join(names)
    # Within a process group tensors may be of symmetric memory, and are another specialisation.
    alone = "_aot_group.WORLD is None"
    state.append(f"({alone} or not _aot_kernel._compute_is_distributed(({passed},)))")
    # Parameters' names come from the kernel's own signature, and values by name: no text of a
    # caller's is compiled here.
    made = "\n".join(
        [
            f"def call({', '.join(parameters)}):",
            f"    if {' and '.join([*checks, *state])}:",
            f"        return _aot_run({passed})",
            f"    return _aot_kernel({passed})",
        ]
    )
    exec(compile(made, f"<prepared {kernel.__name__}>", "exec"), values)  # noqa: S102
    call: Callable[..., Any] = values["call"]
    call.__name__ = kernel.__name__
    call.__qualname__ = kernel.__qualname__
    call.__doc__ = f"`{kernel.__name__}`, prepared for one call signature."
    return call
