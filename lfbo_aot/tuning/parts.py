"""Which buckets take part where a kernel is to be served by few configs, and what serves them now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lfbo_aot.database.database import Database
from lfbo_aot.database.frozen import thaw
from lfbo_aot.tuning.journaling import config_key
from lfbo_aot.tuning.plan import make_plan

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Sequence
    from pathlib import Path

    from lfbo_aot.database.entry import Entry
    from lfbo_aot.registry.buckets import Bucket
    from lfbo_aot.registry.devices import DeviceId
    from lfbo_aot.registry.spec import KernelSpec
    from lfbo_aot.tuning.devices.device import Config
    from lfbo_aot.tuning.plan import Item


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked for, one of the two or both; see `cover.smallest_set`."""

    most: int | None = None
    regret: float | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """A bucket that takes part, with its entry in the database."""

    spec: KernelSpec
    bucket: Bucket
    entry: Entry

    @property
    def served(self) -> Config | None:
        """The config that its entry serves; None: Helion's default, at each shape its own."""
        return None if self.entry.default else thaw(self.entry.config)

    @property
    def own(self) -> Config | None:
        """The bucket's own best, where another config serves it by now; None for the default."""
        few = self.entry.search.get("few")
        if isinstance(few, dict) and "own" in few:
            own: Config | None = few["own"]
            return own
        return self.served

    @property
    def probes(self) -> list[dict[str, object]]:
        """The probe points at which its winner was measured."""
        rows = [thaw(row) for row in self.entry.probes]
        return [row["shape"] for row in rows if row.get("latency_us") is not None]


def groups_of(plan: Iterable[Item], device: DeviceId, into: Path) -> list[list[Part]]:
    """For each kernel with two or more, those of the plan's buckets that may take part.

    That is, with a measured entry in the database which holds for the kernel as it is now and isn't
    pinned.
    """
    items = list(plan)
    specs = {item.spec.kernel_id: item.spec for item in items}
    only = {(item.spec.kernel_id, item.bucket) for item in items}
    found: dict[str, list[Part]] = {kernel_id: [] for kernel_id in specs}
    for item in make_plan(list(specs.values()), device, Database(into), only=only):
        if item.held is not None and not item.held.pinned:
            found[item.spec.kernel_id].append(Part(item.spec, item.bucket, item.held))
    return [parts for parts in found.values() if len(parts) > 1]


def is_met(parts: Sequence[Part], wanted: Wanted) -> bool:
    """Whether there is nothing to measure: each bucket has its own best, and these are few enough.

    With a regret asked for, fewer than there are may always do.
    """
    count = len(distinct(part.served for part in parts))
    few = 1 if wanted.regret is not None or wanted.most is None else wanted.most
    return count <= few and all(key_of(part.served) == key_of(part.own) for part in parts)


def key_of(config: Config | None) -> str:
    """What tells configs apart; empty for the default."""
    return "" if config is None else config_key(config)


def distinct(configs: Iterable[Config | None]) -> list[Config | None]:
    """Each config once, in the order of their first places."""
    found: dict[str, Config | None] = {}
    for config in configs:
        found.setdefault(key_of(config), config)
    return list(found.values())
