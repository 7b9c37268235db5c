"""The store and the policy of this process: the only global state, each with one setter."""

from __future__ import annotations

import itertools
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lfbo_aot.database.store import Store
from lfbo_aot.database.store import default_store
from lfbo_aot.database.store import is_missing
from lfbo_aot.errors import DatabaseError
from lfbo_aot.registry.locks import ForkLock
from lfbo_aot.runtime import memo
from lfbo_aot.runtime import settings as environment_settings
from lfbo_aot.runtime.settings import ON_MISS
from lfbo_aot.runtime.settings import POLICIES
from lfbo_aot.runtime.settings import one_of

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self


@dataclass(frozen=True, slots=True)
class _Chosen:
    """What the program set; None stands for what the environment variables say."""

    databases: tuple[Path, ...] = ()
    policy: str | None = None
    on_miss: str | None = None

    def over(self, other: _Chosen) -> _Chosen:
        """What holds where this was set after `other`."""
        others = tuple(path for path in other.databases if path not in self.databases)
        policy, on_miss = self.policy or other.policy, self.on_miss or other.on_miss
        return _Chosen((*self.databases, *others), policy, on_miss)


_lock = ForkLock()
_base = _Chosen()
"""What was set for good: nobody is left who could put it back."""
_changes: list[tuple[weakref.ref[Restore], _Chosen]] = []
"""What was set since, the last one last."""
_chosen = _Chosen()
_store: Store | None = None
_refreshed = 0
_marks: dict[tuple[_Chosen, int], int] = {}
"""Numbers for what was in force so far: bound kernels are kept by them."""
_next_mark = itertools.count(1)


def store() -> Store:
    """The databases that look-ups go through, those of `use_database` first."""
    global _store  # noqa: PLW0603 - the one place that holds it
    found = _store
    if found is None:
        with _lock:
            found = default_store(environment_settings.current())
            for path in reversed(_chosen.databases):
                found = found.over(path)
            _store = found
    return found


def policy() -> str:
    """The policy of look-ups that aren't given one: `exact`, `compatible` or `any`."""
    return _chosen.policy or environment_settings.current().policy


def on_miss() -> str:
    """What a look-up does where nothing is served: `default`, `error` or `tune`."""
    return _chosen.on_miss or environment_settings.current().on_miss


def refresh() -> None:
    """Read the databases again: for a process that has merged into one of them."""
    global _refreshed  # noqa: PLW0603
    with _lock:
        _refreshed += 1
        _marks.clear()  # none of them comes back
        _renew()


def _renew() -> None:
    global _store, _chosen, _base  # noqa: PLW0603
    while _changes and _changes[0][0]() is None:
        _base = _changes.pop(0)[1].over(_base)
    chosen = _base
    for _, change in _changes:
        chosen = change.over(chosen)
    _chosen, _store = chosen, None
    key = chosen, _refreshed
    if key not in _marks:
        _marks[key] = next(_next_mark)
    memo.forget(_marks[key])


def use_database(path: Path | str) -> Restore:
    """Lay the database at `path` over the rest: from now on, or in a `with` block.

    Several stay one over the other, the last one first. Raises DatabaseError where it is no folder.
    """
    folder = Path(path).expanduser().absolute()
    if is_missing(folder):
        msg = (
            "no such folder; a database is a folder that holds kernels/ and a folder for each arch"
        )
        raise DatabaseError(folder, msg)
    return _choose(_Chosen(databases=(folder,)))


def use_policy(policy: str | None = None, *, on_miss: str | None = None) -> Restore:
    """Set the policy, `on_miss`, or both: from now on, or in a `with` block.

    What is left out stays as it is. Raises SettingError, with the nearest, on an unknown word.
    """
    return _choose(
        _Chosen(
            policy=None if policy is None else one_of("policy", policy, POLICIES),
            on_miss=None if on_miss is None else one_of("on_miss", on_miss, ON_MISS),
        )
    )


class Restore:
    """The outcome of a setter; as a context manager it takes back what that set, and nothing else.

    So blocks of several threads, which may end in any order, leave nothing behind. What is set holds
    for all threads.
    """

    __slots__ = ("__weakref__",)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with _lock:
            _changes[:] = [change for change in _changes if change[0]() is not self]
            _renew()


def _choose(change: _Chosen) -> Restore:
    restore = Restore()
    with _lock:
        _changes.append((weakref.ref(restore), change))
        _renew()
    return restore
