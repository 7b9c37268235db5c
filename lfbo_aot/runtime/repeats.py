"""Helion's fast path for calls that are made again and again, for kernels that have a key.

Without a key Helion remembers the last call: the same shape is quick, and alternating ones are slow,
as each change makes that memory anew. With a key it has no such memory: every call looks its bound
kernel up, which takes some microseconds more, and tens of them where one of the kernel's configs
makes Helion look at more than the arguments' metadata. Here a kernel with a key has the memory, of
several calls at a time.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING
from typing import Any

from lfbo_aot.runtime import memo

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger(__name__)

TICK = 32
"""Of so many calls that aren't remembered, the last one is remembered from then on."""
MOST = 64
"""Calls that are remembered; of more the oldest are forgotten, and ever more rarely."""
_PATIENCE = 1 << 16
_PLAIN = frozenset((int, float, bool, str, type(None)))


def remembering(
    kernel: Any, key: Callable[..., Any], reads: Callable[[int], bool]
) -> Callable[..., Any]:
    """`key`, which has `kernel` remember some of the calls that it is asked about.

    `key` must be a function of what Helion's memory compares (types, sizes, strides, dtypes and
    devices of the arguments, and texts), and of the numbers in places for which `reads` is true.
    """
    from torch.compiler import is_compiling

    memory = Memory(kernel, reads)
    left = tick = TICK

    def call(*args: Any) -> Any:
        nonlocal left, tick
        found = key(*args)
        if is_compiling():
            return found
        if kernel._prepared_call is None and memory:  # noqa: SLF001 - dropped at each new shape
            kernel._prepared_call = memory  # noqa: SLF001
        left -= 1
        if left <= 0:
            left = tick  # set first: what follows asks for the key too
            full = len(memory) >= MOST
            if not memory.add(args) or full:
                left = tick = min(2 * tick, _PATIENCE)
        return found

    return call if hasattr(kernel, "_prepared_call") else key


class Memory:
    """Calls that Helion needn't dispatch; stands where Helion keeps the one that it remembers.

    Helion asks `matches`, and runs `bound` in the same thread.
    """

    def __init__(self, kernel: Any, reads: Callable[[int], bool]) -> None:
        self._kernel = kernel
        self._reads = reads
        self._generation: tuple[int, int] = (-1, -1)
        self._calls: dict[Any, Any] = {}
        self._slot: Callable[[tuple[Any, ...]], Any] = _no_slot
        self._found = threading.local()

    def __len__(self) -> int:
        return len(self._calls)

    @property
    def bound(self) -> Any:
        """The bound kernel of the call that `matches` was last asked about in this thread."""
        return self._found.bound

    def matches(self, kernel: Any, args: tuple[Any, ...]) -> bool:
        """Whether `args` are a remembered call's, as Helion compares them."""
        if self._generation[1] != memo.mark():
            return False  # another store, or another policy
        try:
            call = self._calls.get(self._slot(args))
        except (AttributeError, IndexError, TypeError):
            return False  # other arguments than any that is remembered
        if call is None or not call.matches(kernel, args):
            return False
        self._found.bound = call.bound
        return True

    def add(self, args: tuple[Any, ...]) -> bool:
        """Remember a call; False where calls like it can't be."""
        try:
            with self._kernel._bind_lock:  # noqa: SLF001 - Helion's own, as all below
                generation = (self._kernel._reset_generation, memo.mark())  # noqa: SLF001
                if self._generation != generation:
                    self._generation = generation
                    self._calls = {}
                if not self._calls:
                    places = len(self._kernel.signature.parameters)
                    self._slot = _slot(args, self._reads, places)
                slot = self._slot(args)
                held = self._calls.get(slot)
                if held is not None and held.matches(self._kernel, args):
                    return True
                call = _remembered(self._kernel, args)
                if call is None:
                    return False
                calls = dict(self._calls)  # others read it meanwhile
                if len(calls) >= MOST:
                    del calls[next(iter(calls))]
                calls[slot] = call
                self._calls = calls
                self._kernel._prepared_call = self  # noqa: SLF001
        except Exception:
            # A memory that can't be made leaves calls as quick as they were.
            logger.debug("kernel %s: no fast path", self._kernel.name, exc_info=True)
            return False
        return True


def _no_slot(_: tuple[Any, ...]) -> None:
    raise IndexError


def _slot(
    args: tuple[Any, ...], reads: Callable[[int], bool], places: int
) -> Callable[[tuple[Any, ...]], Any]:
    """What to tell calls apart by: the sizes of the tensor that is the first in this one, and values.

    Those in all places that count, whatever stands there now: another call may have a number where
    this one has None. TypeError where what stands there can't be told.
    """
    first = next(place for place, arg in enumerate(args) if hasattr(arg, "stride"))
    counted = [place for place in range(places) if reads(place)]
    if not counted:
        return lambda args: args[first].shape

    def slot(args: tuple[Any, ...]) -> Any:
        found: list[Any] = [args[first].shape]
        for place in counted:
            if place >= len(args):
                break
            value = args[place]
            kind = type(value)
            if kind in _PLAIN:
                found.append((kind, value))
            elif hasattr(value, "stride"):
                found.append(kind)  # Helion compares the rest of it
            else:
                raise TypeError
        return tuple(found)

    return slot


def _remembered(kernel: Any, args: tuple[Any, ...]) -> Any:
    """Helion's memory of a call; None where it makes none."""
    from helion.runtime.kernel import _PreparedCall
    from torch import distributed

    bound = kernel.bind(args)
    entry = kernel._fast_dispatch_key_and_guards(args)  # noqa: SLF001
    if entry is None or bound._run is None:  # noqa: SLF001
        return None
    if not bound.env.backend.supports_eager_prepared_call:
        return None
    if kernel._prepare_dispatch_entry(args, bound, entry) is None:  # noqa: SLF001 - it changed
        return None
    grouped = distributed.is_initialized()
    return _PreparedCall(
        bound,
        args,
        dist_initialized=grouped,
        extra_guards=entry.extra_guards,
        is_distributed=kernel._compute_is_distributed(args, dist_initialized=grouped),  # noqa: SLF001
    )
