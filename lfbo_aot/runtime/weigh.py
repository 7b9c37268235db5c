"""An entry weighed against what was asked: what was compared, and whether it may be served."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lfbo_aot.registry.devices import DeviceId
from lfbo_aot.registry.devices import limits_of
from lfbo_aot.registry.layout import layout_text
from lfbo_aot.registry.layout import same_layout
from lfbo_aot.runtime import environment
from lfbo_aot.runtime.resolution import DIFFERS
from lfbo_aot.runtime.resolution import EQUAL
from lfbo_aot.runtime.resolution import EXACT
from lfbo_aot.runtime.resolution import HARD
from lfbo_aot.runtime.resolution import IMPORTED
from lfbo_aot.runtime.resolution import INFO
from lfbo_aot.runtime.resolution import REFUSED
from lfbo_aot.runtime.resolution import SAME_ARCH
from lfbo_aot.runtime.resolution import SERVED
from lfbo_aot.runtime.resolution import SERVED_BY
from lfbo_aot.runtime.resolution import SOFT
from lfbo_aot.runtime.resolution import TRANSFERRED
from lfbo_aot.runtime.resolution import UNCHECKED
from lfbo_aot.runtime.resolution import Check
from lfbo_aot.runtime.resolution import Considered

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lfbo_aot.database.entry import Entry
    from lfbo_aot.database.store import Layer
    from lfbo_aot.registry.limits import Limits
    from lfbo_aot.runtime.request import Request

_STATUS = {"measured": EXACT, "imported": IMPORTED, "transferred": TRANSFERRED}
_RANK = {status: rank for rank, status in enumerate(SERVED_BY)}
_FRESHNESS = {True: 0, None: 1, False: 2}
_FRESH = {True: "fresh", None: "not checked", False: "stale"}
_RESOURCES = ("shared", "threads", "registers")

Rank = tuple[bool, int, int]


@dataclass(frozen=True, slots=True)
class Weighed:
    """An entry whose box holds the shape, and how it may be served."""

    considered: Considered
    entry: Entry
    reasons: tuple[str, ...]
    """What is to be said of it where it is served."""
    misfit: tuple[str, ...]
    """Those of the obstacles that are the kernel's: another source, other settings."""
    soft: tuple[str, ...]
    """What makes it stale."""

    @property
    def obstacles(self) -> tuple[str, ...]:
        """Why it isn't served; empty where it is."""
        return self.considered.why

    @property
    def rank(self) -> Rank:
        """Of several, the one with the least is served: pinned, then status, then freshness."""
        found = self.considered
        return not found.pinned, _RANK[found.status], _FRESHNESS[found.fresh]

    @property
    def is_final(self) -> bool:
        """Whether it is served before any other entry of its device and layer that isn't pinned."""
        found = self.considered
        best = found.status in (EXACT, SAME_ARCH) and found.fresh is not False
        return best and not self.obstacles

    def gives_way_to(self, other: Weighed) -> str:
        """Why `other` is served in place of this one."""
        mine, its = self.considered, other.considered
        if mine.pinned != its.pinned:
            return "pinned: the other one is"
        if mine.status != its.status:
            return f"status: {mine.status} comes after {its.status}"
        if mine.fresh != its.fresh:
            text = f"freshness: {_FRESH[mine.fresh]} comes after {_FRESH[its.fresh]}"
            return text + "".join(f"; {reason}" for reason in self.soft)
        if mine.layer != its.layer:
            return f"layer: {its.layer} comes first"
        return f"device: {its.key.partition('|')[0]} comes first"


def weigh(
    layer: Layer, key: str, entry: Entry, request: Request, *, measured_on: DeviceId, policy: str
) -> Weighed:
    """How `entry` of `layer` fits `request` under `policy`."""
    status = _STATUS[entry.status]
    asked = request.target.device
    own = measured_on == asked
    reasons: list[str] = []
    if not own:
        status = SAME_ARCH if status == EXACT else status
        reasons.append(f"{SAME_ARCH}: measured on {measured_on}")
    facts = list(environment.check(entry, request.environment))
    soft = tuple(map(_told, (c for c in facts if c.kind == SOFT and c.verdict == DIFFERS)))
    misfit = tuple(map(_told, (c for c in facts if c.forbids)))
    skipped = [c.name for c in facts if c.verdict == UNCHECKED]
    fresh = None if environment.VERSIONS in skipped else not soft
    fits = [*_layout(entry, request), *_resources(entry, request)]
    served = policy in SERVED_BY[status] and not (policy == EXACT and fresh is False)
    obstacles = [*misfit, *(_told(c, str(asked)) for c in fits if c.forbids)]
    if not served:
        obstacles.insert(len(misfit), _refused_by(policy, status, soft))
    checks = (
        Check("device", str(measured_on), str(request.target), _device(asked, own=own), INFO),
        Check("policy", status, policy, EQUAL if served else DIFFERS, HARD),
        *facts,
        *fits,
    )
    considered = Considered(
        layer=layer.name,
        path=str(layer.database.path),
        outcome=REFUSED if obstacles else SERVED,
        why=tuple(obstacles),
        key=key,
        arch=measured_on.arch,
        entry=entry,
        status=status,
        fresh=fresh,
        pinned=entry.pinned and (own or asked is None),
        checks=checks,
    )
    reasons += soft
    if skipped:
        reasons.append(f"not checked: {', '.join(skipped)}")
    return Weighed(considered, entry, tuple(reasons), misfit, soft)


def _told(check: Check, device: str = "") -> str:
    """A difference in words, with both values."""
    name, entry, here = check[:3]
    if name in _RESOURCES:
        return f"resources: {name} entry={entry} limit={here} of {device}"
    section, dot, setting = name.partition(".")
    if dot:
        return f"{section}: {setting}: entry={entry!r} here={here!r}"
    return f"{name}: entry={entry} here={here}"


def _refused_by(policy: str, status: str, soft: tuple[str, ...]) -> str:
    if policy not in SERVED_BY[status]:
        return f"policy: {policy} doesn't serve {status}"
    return f"policy: {policy} doesn't serve stale entries; {', '.join(soft)}"


def _device(asked: DeviceId | None, *, own: bool) -> str:
    if asked is None:
        return UNCHECKED
    return EQUAL if own else DIFFERS


def _layout(entry: Entry, request: Request) -> Iterator[Check]:
    stored = layout_text(entry.layout)
    live = request.layout
    if live is None:
        yield Check("layout", stored, None, UNCHECKED, HARD)
    else:
        same = same_layout(entry.layout, live)
        yield Check("layout", stored, layout_text(live), EQUAL if same else DIFFERS, HARD)


def _resources(entry: Entry, request: Request) -> Iterator[Check]:
    """What of the entry's resources the device asked about has."""
    limits = _limits(request)
    threads = entry.resources.get("threads")
    registers = entry.resources.get("regs")
    # On AMD a thread's registers aren't drawn from one file for the block.
    if not request.target.arch.startswith("sm") or threads is None or registers is None:
        in_block = None
    else:
        in_block = registers * threads
    needs = (
        ("shared", entry.resources.get("shared"), limits.shared_per_block if limits else None),
        ("threads", threads, limits.threads_per_block if limits else None),
        ("registers", in_block, limits.registers_per_block if limits else None),
    )
    for name, needed, limit in needs:
        verdict = UNCHECKED
        if needed is not None and limit is not None:
            verdict = EQUAL if needed <= limit else DIFFERS
        yield Check(name, needed, limit, verdict, HARD)


def _limits(request: Request) -> Limits | None:
    """The limits of the device asked about; the driver's word where the table doesn't know it."""
    device = request.target.device
    if device is None:
        return None
    return request.environment.limits or limits_of(device)
