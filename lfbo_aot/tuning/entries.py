"""Entries on their way from a search into the database, and back as the start of another one."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from lfbo_aot.database.database import Database
from lfbo_aot.database.entry import Entry
from lfbo_aot.database.entry import SchemaError
from lfbo_aot.database.line import join_key
from lfbo_aot.errors import DatabaseError
from lfbo_aot.tuning.plan import neighbours

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from lfbo_aot.database.shard import Shard
    from lfbo_aot.registry.devices import DeviceId
    from lfbo_aot.tuning.plan import Item
    from lfbo_aot.tuning.task import Found


def check_shards(into: Path, device: DeviceId, items: Sequence[Item]) -> None:
    """Raise what a merge would, before hours are spent on what then can't be merged."""
    database = Database(into)
    wanted: dict[str, set[str]] = {}
    for item in items:
        wanted.setdefault(item.spec.kernel_id, set()).add(join_key(device.name, item.bucket))
    for kernel_id, keys in wanted.items():
        shard = database.shard(kernel_id, device.arch)
        if shard is None:
            continue
        for problem in shard.problems:
            raise DatabaseError(problem.file, problem.reason, problem.line)
        for key in shard.keys:
            if _read(shard, key) is None and key in keys:
                shard.entry(key)


def _read(shard: Shard, key: str) -> Entry | None:
    """The entry of `key`; None where a newer version wrote it. DatabaseError where it is damaged."""
    try:
        return shard.entry(key)
    except DatabaseError as error:
        if isinstance(error.__cause__, SchemaError) and error.__cause__.newer:
            return None
        raise


def make_entry(item: Item, found: Found) -> Entry | None:
    """The database's entry of what was found; None where nothing ran."""
    choice = found.choice
    if choice is None:
        return None
    return Entry(
        config=choice.config,
        alternates=choice.alternates,
        default=choice.is_default,
        latency_us=choice.latency_us,
        default_us=choice.default_us,
        spread=choice.spread,
        near_tie=choice.near_tie,
        probes=choice.probes,
        resources=choice.resources,
        source=item.spec.source,
        space=found.opened.space.digest,
        settings=item.spec.settings,
        layout=found.opened.layout,
        versions=found.opened.versions,
        policy=found.opened.policy,
        search=found.search,
        measured=dt.datetime.now(tz=dt.timezone.utc).date().isoformat(),
        note=choice.note or _note(found),
    )


def _note(found: Found) -> str | None:
    """Why nothing but the default is there, where no candidate ran."""
    if found.candidate_ran or not found.failures:
        return None
    counts = ", ".join(f"{n} {status}" for status, n in sorted(found.failures.items()))
    return f"no candidate ran: {counts}"


def seeds(into: Path, item: Item, device: DeviceId) -> tuple[dict[str, object], ...]:
    """The configs of the winners of the nearest buckets that the database holds for this kernel and device."""
    shard = Database(into).shard(item.spec.kernel_id, device.arch)
    if shard is None:
        return ()
    read = ((bucket, _read(shard, key)) for bucket, key in shard.boxes(device.name))
    known = [(bucket, entry) for bucket, entry in read if entry is not None]
    return tuple(dict(entry.to_json()["config"]) for entry in neighbours(item.bucket, known))
