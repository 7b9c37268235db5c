"""Few configs: the smallest set that serves all buckets of a kernel, by measured cross-regret.

Every distinct winner is measured in every bucket, in one race with the bucket's own best and with
Helion's default, which counts as one config. `cover.smallest_set` then chooses, and the entries
whose config changes are written anew. Each keeps its own best in `search.few`, so that a later
choice starts from there again.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from dataclasses import dataclass
from dataclasses import field
from typing import TYPE_CHECKING

from joblib import Parallel
from joblib import delayed

from lfbo_aot.database.database import Database
from lfbo_aot.database.declaration import Declaration
from lfbo_aot.database.line import join_key
from lfbo_aot.database.merge import locked
from lfbo_aot.database.merge import real_path
from lfbo_aot.database.merge import write
from lfbo_aot.errors import DeviceLostError
from lfbo_aot.errors import TuningError
from lfbo_aot.tuning.cover import smallest_set
from lfbo_aot.tuning.crossed import Crossed
from lfbo_aot.tuning.crossed import cross
from lfbo_aot.tuning.parts import distinct
from lfbo_aot.tuning.parts import groups_of
from lfbo_aot.tuning.parts import is_met
from lfbo_aot.tuning.parts import key_of
from lfbo_aot.tuning.reassigned import reassign

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Sequence
    from pathlib import Path

    from lfbo_aot.database.entry import Entry
    from lfbo_aot.registry.buckets import Bucket
    from lfbo_aot.registry.devices import DeviceId
    from lfbo_aot.tuning.cover import Cover
    from lfbo_aot.tuning.devices.device import Config
    from lfbo_aot.tuning.devices.device import Station
    from lfbo_aot.tuning.limits import Limits
    from lfbo_aot.tuning.parts import Part
    from lfbo_aot.tuning.parts import Wanted
    from lfbo_aot.tuning.plan import Item
    from lfbo_aot.tuning.stations import Stations

logger = logging.getLogger(__name__)

_TIME = "the budget is spent"
_NO_STATION = "no station is left"


@dataclass(frozen=True, slots=True)
class Reduced:
    """What came of it for one kernel."""

    kernel_id: str
    buckets: int
    """How many take part."""
    before: int
    """Distinct configs that served them, the default being one; `after`: that do now."""
    after: int
    worst_regret: float | None = None
    """The largest cost over a bucket's own best, two standard errors added; None: not measured."""
    reached: bool = False
    """Whether all that was asked for holds now."""
    changed: Mapping[Bucket, Entry] = field(default_factory=dict)
    """The entries that were written anew."""
    failed: Mapping[Bucket, str] = field(default_factory=dict)
    """Why a bucket couldn't be measured; its entry is as it was."""
    reason: str = ""
    """Why all entries are as they were; empty where the choice was made."""


class Reduction:
    """Chooses for all kernels of a plan, on the stations of a run."""

    def __init__(
        self, wanted: Wanted, stations: Stations, *, count: int, limits: Limits, rounds: int
    ) -> None:
        self._wanted = wanted
        self._stations = stations
        self._count = count
        self._limits = limits
        self._rounds = rounds
        self._lock = threading.Lock()
        self._points_left = 0

    def run(self, plan: Sequence[Item], device: DeviceId, into: Path) -> list[Reduced]:
        """What came of each kernel with two or more buckets that take part, one after another.

        A kernel's entries are merged when its choice is made, and not before.
        """
        groups = groups_of(plan, device, into)
        left = [parts for parts in groups if not is_met(parts, self._wanted)]
        self._points_left = sum(1 + len(part.probes) for parts in left for part in parts)
        return [self._one(parts, device, into) for parts in groups]

    def _one(self, parts: Sequence[Part], device: DeviceId, into: Path) -> Reduced:
        before = len(distinct(part.served for part in parts))
        kernel_id = parts[0].spec.kernel_id
        if is_met(parts, self._wanted):
            return Reduced(kernel_id, len(parts), before, before, 0.0, reached=True)
        columns = distinct([*(p.own for p in parts), *(p.served for p in parts), None])
        configs = [column for column in columns if column is not None]
        carry = Parallel(n_jobs=self._count, require="sharedmem")
        crossed = carry(delayed(self._cross)(part, configs) for part in parts)
        failed = {p.bucket: c for p, c in zip(parts, crossed, strict=True) if isinstance(c, str)}
        measured = [c for c in crossed if isinstance(c, Crossed)]
        reason = next((r for r in (_TIME, _NO_STATION) if r in failed.values()), "")
        if not reason and len(measured) < 2:  # noqa: PLR2004 - one has its own best already
            reason = "fewer than two buckets could be measured"
        if reason:
            return Reduced(kernel_id, len(parts), before, before, failed=failed, reason=reason)
        cover = self._choose(measured, columns)
        anew = _anew(measured, cover, columns)
        changed = _keep(into, device, parts, anew)
        after = len(distinct(_served(changed.get(p.bucket, p.entry)) for p in parts))
        few = self._wanted.most is None or after <= self._wanted.most
        kept_own = all(key_of(p.served) == key_of(p.own) for p in parts if p.bucket in failed)
        return Reduced(
            kernel_id,
            len(parts),
            before,
            after,
            cover.worst_regret,
            reached=cover.reached and few and kept_own and len(changed) == len(anew),
            changed=changed,
            failed=failed,
        )

    def _cross(self, part: Part, configs: Sequence[Config]) -> Crossed | str:
        """The bucket's readings at the next free station, or why there are none."""
        with self._stations.one() as station:
            if station is None:
                return _NO_STATION
            with self._lock:
                points_left = -(-self._points_left // self._count)
                self._points_left -= 1 + len(part.probes)
            try:
                found = cross(
                    station,
                    part,
                    configs,
                    rounds=self._rounds,
                    limits=self._limits,
                    points_left=points_left,
                )
            except DeviceLostError as error:
                self._stations.lose(station, str(error))
                return self._failed(part, error)
            except TuningError as error:
                return self._failed(part, error)
            finally:
                _leave(station)
        return _TIME if found is None else found

    def _failed(self, part: Part, error: TuningError) -> str:
        logger.warning(
            "%s %s: not measured with other buckets' configs, its entry stays as it is: %s",
            part.spec.kernel_id,
            part.bucket.key,
            error,
        )
        return str(error)

    def _choose(self, measured: Sequence[Crossed], columns: Sequence[Config | None]) -> Cover:
        rows = [crossed.cells(columns) for crossed in measured]
        keys = [key_of(column) for column in columns]
        return smallest_set(
            [[None if cell is None else cell.middle for cell in row] for row in rows],
            error=[[0.0 if cell is None else cell.error for cell in row] for row in rows],
            own=[keys.index(key_of(crossed.part.own)) for crossed in measured],
            regret=self._wanted.regret,
            most=self._wanted.most,
        )


def _leave(station: Station) -> None:
    with contextlib.suppress(TuningError):
        station.leave()


def _anew(
    measured: Sequence[Crossed], cover: Cover, columns: Sequence[Config | None]
) -> dict[Bucket, Entry]:
    """The entries whose config changes. One that nothing in the set runs in stays as it is."""
    found: dict[Bucket, Entry] = {}
    for crossed, column, regret in zip(measured, cover.assignment, cover.regrets, strict=True):
        if column is None or key_of(columns[column]) == key_of(crossed.part.served):
            continue
        found[crossed.part.bucket] = reassign(
            crossed,
            columns[column],
            regret=regret,
            configs=len(cover.configs),
            buckets=len(measured),
        )
    return found


def _keep(
    into: Path, device: DeviceId, parts: Sequence[Part], anew: Mapping[Bucket, Entry]
) -> dict[Bucket, Entry]:
    """Write entries in place of the kernel's old ones; gives those that were written.

    One that was pinned or replaced by someone else since it was read is left alone.
    """
    spec = parts[0].spec
    if not anew:
        return {}
    root = real_path(into)
    with locked(root):
        shard = Database(root).shard(spec.kernel_id, device.arch)
        kept: dict[Bucket, Entry] = {}
        for part in parts:
            key = join_key(device.name, part.bucket)
            if part.bucket not in anew:
                continue
            if shard is not None and key in shard.keys and shard.entry(key) == part.entry:
                kept[part.bucket] = anew[part.bucket]
            else:
                logger.warning("%s: changed meanwhile, and left alone", key)
        keyed = {(device, bucket): entry for bucket, entry in kept.items()}
        write(root, {spec.kernel_id: keyed}, [Declaration.of(spec)])
    return kept


def _served(entry: Entry) -> Config | None:
    return None if entry.default else dict(entry.config)
