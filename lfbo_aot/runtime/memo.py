"""Answers that were given, kept for the same question: what a warm look-up costs is decided here.

Two tables, by how a question is put: a dict of dims, by name and with nothing more; and all else that
can be compared, live tensors among it. Both are emptied when the store or the policy changes.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Hashable
from collections.abc import Mapping
from operator import itemgetter
from typing import TYPE_CHECKING
from typing import Any
from typing import NamedTuple

from lfbo_aot.registry.locks import ForkLock

if TYPE_CHECKING:
    from collections.abc import Callable

    from lfbo_aot.runtime.resolution import Resolution

    Pick = Callable[[Mapping[str, Any]], Any]

MOST = 1 << 14
"""Answers kept in a table; then it starts over."""
_SCALARS = frozenset((int, float, bool, str, type(None)))


class Kept(NamedTuple):
    """An answer to a question put as a dict of dims."""

    resolution: Resolution
    types: tuple[tuple[str, type], ...]
    """Of the values whose type must be compared too: True equals 1, and is another value."""


Named = tuple["Pick", int, "dict[Any, Mapping[str, Any]]", "dict[Any, Kept]"]
"""Of one kernel and arch: how to get the values out of a dict, how many there are, and by them the
configs for which they are enough, as their types needn't be compared, and all answers.

A plain tuple, which is unpacked in half the time that one with names takes.
"""

NAMED: dict[object, dict[object, Named]] = {}
OTHER: dict[Any, tuple[object, Resolution]] = {}

_lock = ForkLock()
_generation = 0
_named = 0
_mark = 0


def generation() -> int:
    """A number that changes whenever the store or the policy does."""
    return _generation


def mark() -> int:
    """A number for the store and the policy in force: the same again where they are put back."""
    return _mark


def forget(mark: int) -> None:
    """Give no answer again that was given before; `mark` stands for what is in force from now on."""
    global _generation, _named, _mark  # noqa: PLW0603 - the one place that holds them
    with _lock:
        _generation += 1
        _mark = mark
        _named = 0
        NAMED.clear()
        OTHER.clear()


def recall(kernel: object, shape: Mapping[str, Any], arch: object) -> Resolution | None:
    """What was answered for a kernel, a dict of dims and an arch."""
    try:
        pick, dims, _, answers = NAMED[kernel][arch]
        kept = answers[pick(shape)]
    except (KeyError, TypeError):
        return None
    if len(shape) != dims or any(type(shape[n]) is not kind for n, kind in kept.types):
        return None
    return kept.resolution


def keep(
    kernel: object, shape: Mapping[str, Any], arch: object, asked: Asked, resolution: Resolution
) -> None:
    """Keep an answer for `recall`; `asked` is what was seen when the question was put."""
    global _named  # noqa: PLW0603 - guarded by the lock
    names = asked.names
    if not names or len(shape) != len(names) or type(arch) is not str:
        return
    if not isinstance(kernel, Hashable):
        return
    values = itemgetter(*names)(shape)
    try:
        hash(values)
    except TypeError:  # an array of one number
        return
    # Numbers of other types that are equal are taken for the same size; a bool never is.
    types = tuple((name, type(shape[name])) for name in names if shape[name] in (0, 1))
    with _lock:
        if asked.generation != _generation:
            return
        if _named >= MOST:
            NAMED.clear()
            _named = 0
        _named += 1
        of_kernel = NAMED.setdefault(kernel, {})
        if arch not in of_kernel:
            of_kernel[arch] = itemgetter(*names), len(names), {}, {}
        _, _, configs, answers = of_kernel[arch]
        answers[values] = Kept(resolution, types)
        if not types:
            configs[values] = resolution.config


class Asked(NamedTuple):
    """What an answer that is kept must have come from."""

    generation: int
    names: tuple[str, ...] = ()
    """The kernel's dims, in declared order."""


def keep_other(
    question: object, environment: object, resolution: Resolution, generation: int
) -> None:
    """Keep an answer in `OTHER`, unless the store has changed since `generation`."""
    with _lock:
        if generation == _generation:
            if len(OTHER) >= MOST:
                OTHER.clear()
            OTHER[question] = environment, resolution


def question(
    kernel: object, shape: object, arch: object, policy: str | None, environment: object
) -> object:
    """What equal questions have in common; None where the answer depends on more than is written."""
    if isinstance(shape, Mapping):
        shape = (tuple(shape), *shape.values())
    elif not isinstance(shape, tuple):
        return None
    found = _parts(shape, arch)
    if found is None:
        return None
    key = kernel, arch, policy, id(environment), found
    try:
        hash(key)
    except TypeError:  # symbolic sizes
        return None
    return key


def _parts(values: tuple[Any, ...], arch: object) -> tuple[Any, ...] | None:
    """What of dims, or of live arguments, an answer depends on; None where it may depend on more.

    Of a tensor its shape, strides, dtype and device; of a plain value its type too, as True equals
    1 and is another value. Where no arch is named there must be a tensor to tell the device by.
    """
    torch: Any = sys.modules.get("torch")
    tensors: tuple[type, ...] = ()
    things: tuple[type, ...] = ()
    # AttributeError: it isn't loaded, or another thread is loading it.
    with contextlib.suppress(AttributeError):
        tensors, things = (torch.Tensor, torch.nn.Parameter), (torch.dtype, torch.device)
    told = type(arch) is str
    if not told and arch is not None:
        return None
    found: list[Any] = []
    for value in values:
        kind = type(value)
        if kind in tensors:
            found.append((value.shape, value.stride(), value.dtype, value.device))
            told = True
        elif kind in _SCALARS:
            found.append((kind, value))
        elif kind in things or (kind is tuple and all(type(name) is str for name in value)):
            found.append(value)
        else:
            return None
    return tuple(found) if told else None
