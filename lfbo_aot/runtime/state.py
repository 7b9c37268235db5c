"""The store and the policy of this process: the only global state, each with one setter."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from lfbo_aot.database.store import Store
from lfbo_aot.database.store import default_store
from lfbo_aot.database.store import is_missing
from lfbo_aot.errors import DatabaseError
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


_lock = threading.RLock()
_chosen = _Chosen()
_store: Store | None = None


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
    global _store  # noqa: PLW0603
    with _lock:
        _store = None
        memo.forget()


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
    others = tuple(other for other in _chosen.databases if other != folder)
    return _choose(replace(_chosen, databases=(folder, *others)))


def use_policy(policy: str | None = None, *, on_miss: str | None = None) -> Restore:
    """Set the policy, `on_miss`, or both: from now on, or in a `with` block.

    What is left out stays as it is. Raises SettingError, with the nearest, on an unknown word.
    """
    chosen = _chosen
    if policy is not None:
        chosen = replace(chosen, policy=one_of("policy", policy, POLICIES))
    if on_miss is not None:
        chosen = replace(chosen, on_miss=one_of("on_miss", on_miss, ON_MISS))
    return _choose(chosen)


class Restore:
    """The outcome of a setter; as a context manager it puts back what was before."""

    def __init__(self, before: _Chosen) -> None:
        self._before = before

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        _choose(self._before)


def _choose(chosen: _Chosen) -> Restore:
    global _chosen  # noqa: PLW0603
    with _lock:
        before = _chosen
        _chosen = chosen
        refresh()
    return Restore(before)
