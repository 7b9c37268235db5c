"""Combining: the entries and declarations of other databases, merged into one by a rule."""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import field
from typing import TYPE_CHECKING

from lfbo_aot.database import rules
from lfbo_aot.database.contents import Contents
from lfbo_aot.database.contents import Place
from lfbo_aot.database.contents import folder_files
from lfbo_aot.database.contents import read_files
from lfbo_aot.database.merge import locked
from lfbo_aot.database.merge import real_path
from lfbo_aot.database.merge import write
from lfbo_aot.errors import DatabaseError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Sequence
    from pathlib import Path

    from lfbo_aot.database.declaration import Declaration
    from lfbo_aot.database.entry import Entry
    from lfbo_aot.registry.buckets import Bucket
    from lfbo_aot.registry.devices import DeviceId

ADDED = "added"
REPLACED = "replaced"
KEPT = "kept"
EQUAL = "equal"
REFUSED = "refused"
CONFLICT = "conflict"
WHAT = (ADDED, REPLACED, KEPT, EQUAL, REFUSED, CONFLICT)


@dataclass(frozen=True, slots=True)
class Change:
    """What became of one key, or, without a device and a bucket, of a kernel's declaration."""

    what: str
    """One of `WHAT`. `kept`: another database had something else; `equal`: all had the same."""
    kernel_id: str
    device: DeviceId | None
    bucket: Bucket | None
    source: str
    """The database that it now comes from, or that was refused."""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a merge did, sorted by kernel, device and bucket."""

    changes: tuple[Change, ...]
    written: bool
    """False where there were conflicts: nothing was touched."""

    def of(self, *what: str) -> list[Change]:
        """The changes of these kinds."""
        return [change for change in self.changes if change.what in what]

    @property
    def complete(self) -> bool:
        """Whether all that the sources hold was considered, and written where the rule says so."""
        return self.written and not self.of(REFUSED, CONFLICT)


@dataclass(slots=True)
class _Plan:
    """What is to be written, and what to say of it."""

    rule: str
    into: Contents
    sources: tuple[Contents, ...]
    """Those that are merged, without `into`."""
    changes: list[Change] = field(default_factory=list)
    declarations: dict[str, Declaration] = field(default_factory=dict)
    entries: dict[str, dict[tuple[DeviceId, Bucket], Entry]] = field(default_factory=dict)

    @property
    def all(self) -> tuple[Contents, ...]:
        return (self.into, *self.sources)


def combine(into: Path, sources: Sequence[Contents], rule: str) -> Outcome:
    """Merge what `sources` hold into the database at `into`, which is made where it isn't there.

    The rules are described in `lfbo_aot.database.rules`. What can't be merged is refused, and the
    rest goes on: a line of a newer schema, an entry whose kernel no database declares, and one whose
    dims aren't those of the declaration that is kept. With rule `error`, keys and declarations that
    differ are conflicts, and nothing is written. The outcome depends on what the databases hold, and
    not on their order. Raises DatabaseError where `into` is damaged or can't be written.
    """
    into = real_path(into)
    try:
        with locked(into):
            plan = _Plan(rule, read_files(str(into), folder_files(into)), tuple(sources))
            for kernel_id in sorted({k for contents in plan.all for k in _kernels(contents)}):
                _plan_kernel(plan, kernel_id)
            written = not any(change.what == CONFLICT for change in plan.changes)
            if written:
                new = [plan.declarations[kernel_id] for kernel_id in sorted(plan.declarations)]
                write(into, plan.entries, new)
    except OSError as error:
        raise DatabaseError(into, f"can't be written: {error.strerror or error}") from error
    return Outcome(tuple(plan.changes), written)


def _kernels(contents: Contents) -> set[str]:
    return {*contents.kernels(), *(place.kernel_id for place in contents.unread)}


def _plan_kernel(plan: _Plan, kernel_id: str) -> None:
    declaration = _plan_declaration(plan, kernel_id)
    places = {
        place
        for contents in plan.sources
        for place in (*contents.entries, *contents.unread)
        if place.kernel_id == kernel_id
    }
    for place in sorted(places, key=lambda p: p.order):
        _plan_entry(plan, place, declaration)


def _plan_declaration(plan: _Plan, kernel_id: str) -> Declaration | None:
    """The declaration to keep, which is noted for writing; None where nobody declares the kernel."""
    claims = [
        (contents, contents.declarations[kernel_id], _last_day(contents, kernel_id))
        for contents in plan.all
        if kernel_id in contents.declarations
    ]
    if not claims:
        return None
    mine = plan.into.declarations.get(kernel_id)
    chosen = _with_enumeration(_declaration_to_keep(plan, kernel_id, claims), claims)
    # How a build knows that a declaration holds differs by who wrote it: no reason for a conflict.
    others = [c for c, found, _ in claims if found.bare().dumps() != chosen.bare().dumps()]
    source = next(c.name for c, found, _ in claims if found.dumps() == chosen.dumps())

    def note(what: str, reason: str = "") -> None:
        plan.changes.append(Change(what, kernel_id, None, None, source, reason))

    if others and plan.rule == rules.ERROR:
        names = ", ".join(sorted(c.name for c in others))
        note(CONFLICT, f"declared otherwise in {names}: {_how_declarations_differ(claims)}")
    elif mine is None:
        note(ADDED)
    elif mine.bare().dumps() != chosen.bare().dumps():
        note(REPLACED, f"its entries are newer; {_how_declarations_differ(claims)}")
    elif others:
        note(KEPT, _how_declarations_differ(claims))
    if mine is None or mine.dumps() != chosen.dumps():
        plan.declarations[kernel_id] = chosen
    return chosen


def _declaration_to_keep(
    plan: _Plan, kernel_id: str, claims: Sequence[tuple[Contents, Declaration, str]]
) -> Declaration:
    """The one of the newest entries; of equally new ones the one that is there stays."""
    chosen = rules.choose_declaration([(found, day) for _, found, day in claims])
    mine = plan.into.declarations.get(kernel_id)
    if mine is None:
        return chosen
    newest = max(day for *_, day in claims)
    holds = any(place.kernel_id == kernel_id for place in (*plan.into.entries, *plan.into.unread))
    # Under other dims its own lines couldn't be reached any more; a merge throws nothing away.
    other_dims = tuple(mine.dims) != tuple(chosen.dims)
    if _last_day(plan.into, kernel_id) == newest or (holds and other_dims):
        return mine
    return chosen


def _with_enumeration(
    chosen: Declaration, claims: Sequence[tuple[Contents, Declaration, str]]
) -> Declaration:
    """The same, with how to know that it holds, where any database that declares the same says so."""
    if chosen.enumeration is not None:
        return chosen
    same = [found for _, found, _ in claims if found.bare().dumps() == chosen.dumps()]
    return max(same, key=lambda found: (found.enumeration is not None, found.dumps()))


def _how_declarations_differ(claims: Sequence[tuple[Contents, Declaration, str]]) -> str:
    pages = [found.bare().to_json() for _, found, _ in claims]
    names = [name for name in pages[0] if any(page[name] != pages[0][name] for page in pages)]
    if "dims" not in names and any(list(p["dims"]) != list(pages[0]["dims"]) for p in pages):
        names.append("dims")  # the same ones in another order
    return f"{', '.join(names)} differ{'s' if names in (['source'], ['schema']) else ''}"


def _last_day(contents: Contents, kernel_id: str) -> str:
    """The last day on which an entry of the declared source was measured; empty without any."""
    source = contents.declarations[kernel_id].source
    return max(
        (
            entry.measured
            for place, entry in contents.entries.items()
            if place.kernel_id == kernel_id and entry.source == source
        ),
        default="",
    )


def _plan_entry(plan: _Plan, place: Place, declaration: Declaration | None) -> None:
    claims: dict[str, Entry] = {}
    mine = plan.into.entries.get(place)
    for contents in plan.sources:
        reason = _refusal(plan, contents, place, declaration)
        if reason:
            plan.changes.append(Change(REFUSED, *place, contents.name, reason))
        elif place in contents.entries:
            claims[contents.name] = contents.entries[place]
    if not claims or declaration is None:
        return
    everyone = [*([mine] if mine is not None else []), *claims.values()]
    differing = [entry for entry in everyone if entry != everyone[0]]

    def note(what: str, source: str, reason: str = "") -> None:
        plan.changes.append(Change(what, *place, source, reason))

    if differing and plan.rule == rules.ERROR:
        owned = {**({} if mine is None else {plan.into.name: mine}), **claims}
        note(CONFLICT, next(iter(owned)), _conflict(owned, declaration))
        return
    kept = rules.choose(plan.rule, everyone, declaration) if differing else everyone[0]
    lost = next((entry for entry in everyone if entry != kept), None)
    reason = "" if lost is None else rules.why(plan.rule, kept, lost, declaration)
    if mine is not None and kept == mine:
        note(KEPT if differing else EQUAL, plan.into.name, reason)
        return
    source = min(name for name, entry in claims.items() if entry == kept)
    note(ADDED if mine is None else REPLACED, source, reason)
    plan.entries.setdefault(place.kernel_id, {})[place.device, place.bucket] = kept


def _conflict(owned: Mapping[str, Entry], declaration: Declaration) -> str:
    """Where else the key is held, and what the rule `best` would do."""
    kept = rules.choose(rules.BEST, list(owned.values()), declaration)
    lost = next(entry for entry in owned.values() if entry != kept)
    source = next(name for name, entry in owned.items() if entry == kept)
    reason = rules.why(rules.BEST, kept, lost, declaration)
    others = ", ".join(sorted(list(owned)[1:]))
    return f"held otherwise in {others}; best would keep that of {source}: {reason}"


def _refusal(plan: _Plan, contents: Contents, place: Place, declaration: Declaration | None) -> str:
    """Why what `contents` hold for `place` can't be merged; empty where it can, or isn't there."""
    if place in contents.unread:
        return contents.unread[place]
    if place not in contents.entries:
        return ""
    if declaration is None:
        return f"no database declares the kernel {place.kernel_id!r}"
    if place.bucket.names != tuple(declaration.dims):
        names, declared = ", ".join(place.bucket.names), ", ".join(declaration.dims)
        return f"its dims are {names}; the declaration that is kept has {declared}"
    if place in plan.into.unread:
        return f"{plan.into.name} holds one of a newer version: {plan.into.unread[place]}"
    return ""


def by_device(changes: Sequence[Change]) -> Mapping[tuple[str, str], Mapping[str, int]]:
    """How many changes of each kind there are, by kernel and device; declarations aside."""
    counts: dict[tuple[str, str], dict[str, int]] = {}
    for change in changes:
        if change.device is not None:
            row = counts.setdefault((change.kernel_id, str(change.device)), {})
            row[change.what] = row.get(change.what, 0) + 1
    return counts
