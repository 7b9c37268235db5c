"""The key of a kernel's specialisations: which calls may run one bound kernel, with one config.

Helion makes a bound kernel for each key of its own: with static shapes that holds every size,
stride and dtype, but of a number only its type; with dynamic ones hardly more than dtypes; and of
a device no more than its arch. What a config depends on beyond that, the key here adds.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING
from typing import Any

from lfbo_aot.errors import ShapeError
from lfbo_aot.registry.layout import tensors_in
from lfbo_aot.runtime import memo
from lfbo_aot.runtime.repeats import remembering

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Iterator
    from collections.abc import Sequence

    from lfbo_aot.registry.spec import KernelSpec
    from lfbo_aot.runtime.resolution import Resolution

    Key = Callable[..., Any]

DYNAMIC = "dynamic"
_MOST_SEEN = 4096
_NUMBERS = (int, float, bool)


class Dispatch:
    """Gives a kernel the cheapest key that keeps answers apart; `settle` may have to change it.

    `answer` looks the arguments of a call up; `author` is the key that the kernel came with.
    """

    def __init__(
        self,
        kernel: Any,
        spec: KernelSpec,
        answer: Callable[[tuple[Any, ...]], Resolution],
        author: Key | None = None,
    ) -> None:
        self._kernel = kernel
        self._spec = spec
        self._answer = answer
        self._author = author
        self._settled = False
        self._seen: dict[Any, Any] = {}
        self._fixed: frozenset[int] = frozenset()
        """The places of numbers for one value of which an entry holds, as no dim tells it."""
        self.tuning: Callable[[], bool] = lambda: False
        self.by_answer = not kernel.settings.static_shapes
        self._install(self._of_answer if self.by_answer else _constant)

    def settle(self, args: tuple[Any, ...]) -> None:
        """Choose the key for calls like this one, before Helion binds it; defaults are applied."""
        fixed = self._fixed.union(self._places_of_fixed(args))
        if self.by_answer and fixed == self._fixed:
            return
        if fixed != self._fixed or self._depends_on_numbers(args):
            self._fixed = fixed
            self.by_answer = True
            self._install(self._of_answer)
        elif not self._settled:
            names = _devices(args)
            if names is not None:
                self._settled = True
                if names:
                    self._install(_device_key(names))

    def _install(self, key: Key) -> None:
        author = self._author
        if author is not None:
            key, ours = lambda *args: (author(*args), ours(*args)), key
        else:
            key = remembering(self._kernel, key, self._reads if self.by_answer else lambda _: False)
        self._kernel._key_fn = key  # noqa: SLF001 - what `key=` sets
        if hasattr(self._kernel, "_prepared_call"):
            self._kernel._prepared_call = None  # noqa: SLF001 - made for calls without a key

    def _reads(self, place: int) -> bool:
        """Whether an answer may depend on the value in this place, of a plain argument."""
        read = self._spec.places_read
        return read is None or place in read or place in self._fixed

    def _places_of_fixed(self, args: Sequence[Any]) -> Iterator[int]:
        read = self._spec.places_read
        for place, arg in enumerate(args):
            told = read is None or place in read or type(arg) is float
            if not told and _holds_number(arg):
                yield place

    def _depends_on_numbers(self, args: Sequence[Any]) -> bool:
        """Whether the shape function reads an argument of which Helion's key holds the type only."""
        annotations = getattr(self._kernel, "_annotations", ())
        for index, arg in enumerate(args):
            if not self._reads(index):
                continue
            annotation = annotations[index] if index < len(annotations) else None
            if getattr(annotation, "__name__", "") != "ConstExpr" and _holds_number(arg):
                return True
        return False

    def _of_answer(self, *args: Any) -> Any:
        """The identity of the answer: the entry's layer and key; None for the default."""
        import torch

        if is_symbolic(args):
            return DYNAMIC
        if torch.compiler.is_compiling():
            # Where Dynamo traces into the call it can read a dict, and hardly more than that.
            return self._seen.get((memo.mark(), _metadata(args)), DYNAMIC)
        if self.tuning():
            return self._bucket(args)
        try:
            answer = self._answer(args)
            found = (memo.mark(), answer.layer, answer.key) if answer.config else None
        except ShapeError:
            found = None  # said, or raised, where the call is bound
        if len(self._seen) < _MOST_SEEN:
            self._seen[memo.mark(), _metadata(args)] = found
        return found

    def _bucket(self, args: tuple[Any, ...]) -> str | None:
        try:
            bucket = self._spec.bucket_for(self._spec.shape_of(*args))
        except (ShapeError, TypeError):
            return None
        return None if bucket is None else bucket.key


def _metadata(args: Sequence[Any]) -> tuple[Any, ...]:
    """What an answer may depend on, of arguments that aren't containers."""
    import torch

    found: list[Any] = []
    for arg in args:
        if isinstance(arg, torch.Tensor):  # hasattr is more than Dynamo can trace
            found += (arg.shape, arg.stride(), arg.dtype, arg.device)
        elif isinstance(arg, (int, float, bool, str)):
            found += (type(arg), arg)
        else:
            found.append(type(arg))
    return tuple(found)


def is_symbolic(args: Sequence[Any]) -> bool:
    """Whether a size of a tensor among the arguments, or a number, is a symbol of torch.compile."""
    import torch

    for arg in args:
        if isinstance(arg, torch.Tensor):
            for size in arg.shape:
                if type(size) is not int:
                    return True
        elif isinstance(arg, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return True
    return False


def _constant(*_: Any) -> int:
    """The key where Helion's own tells the answers of one store apart.

    Without a key alternating shapes are slow.
    """
    return memo.mark()


def _device_key(names: dict[Any, str]) -> Key:
    """By the identity of the first tensor's device."""

    def key(*args: Any) -> tuple[int, str | None]:
        for arg in args:
            found = names.get(getattr(arg, "device", None))
            if found is not None:
                return memo.mark(), found
        for arg in tensors_in(args):
            found = names.get(arg.device)
            if found is not None:
                return memo.mark(), found
        return memo.mark(), None

    return key


def _devices(args: Sequence[Any]) -> dict[Any, str] | None:
    """The identities of this host's devices; empty where all are one; None: nothing to ask for."""
    import torch

    from lfbo_aot.runtime import hardware

    # Asking initialises CUDA, which must not happen for tensors on the CPU: the process may fork.
    if all(tensor.device.type == "cpu" for tensor in tensors_in(args)):
        return None
    if hardware.uniform():
        return {}
    here = enumerate(hardware.identities())
    return {torch.device("cuda", index): str(device) for index, device in here}


def _holds_number(value: Any) -> bool:
    if type(value) in _NUMBERS:
        return True
    if isinstance(value, dict):
        return any(map(_holds_number, value.values()))
    if isinstance(value, (list, tuple)):
        return any(map(_holds_number, value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return any(_holds_number(getattr(value, field.name)) for field in fields)
    return False
