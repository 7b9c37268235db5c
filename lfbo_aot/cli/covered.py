"""How well a store covers what is declared: each target, kernel and bucket, and why it isn't better."""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import field
from typing import TYPE_CHECKING
from typing import Any

from lfbo_aot.errors import DatabaseError
from lfbo_aot.registry.devices import INTERPRETER
from lfbo_aot.registry.devices import DeviceId
from lfbo_aot.runtime.lookup import look_up
from lfbo_aot.runtime.request import Request
from lfbo_aot.runtime.request import shape_text
from lfbo_aot.runtime.resolution import DEFAULT
from lfbo_aot.runtime.resolution import EXACT
from lfbo_aot.runtime.resolution import SERVED_BY
from lfbo_aot.runtime.resolution import Resolution

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Mapping
    from collections.abc import Sequence
    from pathlib import Path

    from lfbo_aot.database.store import Store
    from lfbo_aot.registry.buckets import Bucket
    from lfbo_aot.registry.devices import Target
    from lfbo_aot.registry.dims import Value
    from lfbo_aot.runtime.environment import Environment
    from lfbo_aot.tuning.standing import BucketStanding

MEASURED = "measured"
OUTDATED = "outdated"
"""Held, and not served: for another source, other settings, or more than the device has."""
FAILED = "failed"
MISSING = "missing"
NOTHING = "nothing is held"
STATES = (MEASURED, "same_arch", "imported", "transferred", OUTDATED, FAILED, MISSING)
_RANK = {status: rank for rank, status in enumerate((*SERVED_BY, DEFAULT))}
_SAID_ELSEWHERE = ("not checked:", "miss:")


@dataclass(frozen=True, slots=True)
class Declared:
    """A kernel that should be covered, and what its entries have to fit."""

    kernel_id: str
    buckets: tuple[Bucket, ...]
    environment: Environment
    small: tuple[Bucket, ...] = ()
    """What the interpreter is tuned at, where that is known."""

    def buckets_on(self, target: Target) -> tuple[Bucket, ...]:
        """Those that are tuned for `target`."""
        return self.small if target.arch == INTERPRETER.arch else self.buckets


@dataclass(frozen=True, slots=True)
class Row:
    """How one bucket is covered on one target."""

    target: str
    kernel_id: str
    bucket: str
    status: str
    """One of `STATES`: that of the worst of the bucket's tuning and probe points."""
    fresh: bool | None
    layer: str | None
    key: str
    """Of the entry that is served; empty where none is."""
    why: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The row with the names that all commands use."""
        return {
            "arch": self.target,
            "kernel": self.kernel_id,
            "bucket": self.bucket,
            "status": self.status,
            "fresh": self.fresh,
            "layer": self.layer,
            "key": self.key,
            "why": list(self.why),
        }


@dataclass(slots=True)
class Attempts:
    """What the journals of this machine tell of buckets that aren't held."""

    standings: Sequence[BucketStanding] = ()
    damage: tuple[str, ...] = ()
    _by_bucket: dict[tuple[str, str], list[BucketStanding]] = field(default_factory=dict)

    @classmethod
    def read(cls, state: Path) -> Attempts:
        """Those below the state folder."""
        from lfbo_aot.tuning.standing import read_standing

        found = read_standing(state)
        return cls(found.buckets, found.damage)

    def __post_init__(self) -> None:
        for standing in self.standings:
            key = standing.kernel_id, standing.bucket
            self._by_bucket.setdefault(key, []).append(standing)

    def at(self, kernel_id: str, bucket: Bucket, target: Target) -> BucketStanding | None:
        """The last known attempt at this bucket for `target`."""
        for standing in self._by_bucket.get((kernel_id, bucket.key), ()):
            device = _device(standing.device)
            if (
                device is not None
                and target.device in (None, device)
                and device.arch == target.arch
            ):
                return standing
        return None


def cover(
    store: Store, declared: Sequence[Declared], targets: Sequence[Target], attempts: Attempts
) -> Iterator[Row]:
    """A row for each target, kernel and bucket, as look-ups answer there under policy `any`."""
    for target in targets:
        for kernel in declared:
            for bucket in kernel.buckets_on(target):
                yield _row(store, kernel, bucket, target, attempts)


def _row(store: Store, kernel: Declared, bucket: Bucket, target: Target, attempts: Attempts) -> Row:
    found: list[tuple[Mapping[str, Value], Resolution]] = []
    for each in (bucket.point, *bucket.probes):
        found.append((each, _ask(store, kernel, each, target)))
        if found[-1][1].status == DEFAULT:
            break  # nothing can be worse
    point, worst = max(found, key=lambda pair: _RANK[pair[1].status])
    status, why = _state(worst, kernel, bucket, target, attempts)
    if worst.status != found[0][1].status:
        why.insert(0, f"at {shape_text(point)}")
    served = worst.entry is not None
    return Row(
        target=str(target),
        kernel_id=kernel.kernel_id,
        bucket=bucket.key,
        status=status,
        fresh=worst.fresh,
        layer=worst.layer,
        key=worst.key if served else "",
        why=tuple(why),
    )


def _ask(store: Store, kernel: Declared, point: Mapping[str, Value], target: Target) -> Resolution:
    if not _may_be_held(store, kernel.kernel_id, point, target):
        return Resolution()  # a look-up would search for the nearest key, to say so in its reason
    request = Request(kernel.kernel_id, dict(point), target, kernel.environment)
    return look_up(store, request, "any").resolution


def _may_be_held(store: Store, kernel_id: str, point: Mapping[str, Value], target: Target) -> bool:
    """Whether a layer has a box of the arch that holds `point`, or damage that may hide one."""
    for layer in store.layers:
        shard = layer.database.shard(kernel_id, target.arch)
        if shard is None:
            continue
        try:
            if shard.problems or any(shard.holding(name, point) for name in shard.device_names):
                return True
        except DatabaseError:
            return True
    return False


def _state(
    answer: Resolution, kernel: Declared, bucket: Bucket, target: Target, attempts: Attempts
) -> tuple[str, list[str]]:
    """One of `STATES`, and what there is to say of it."""
    why = [reason for reason in answer.reasons if not reason.startswith(_SAID_ELSEWHERE)]
    entry = answer.entry
    if entry is not None:
        if entry.default and entry.note:
            why.append(f"nothing but the default works: {entry.note}")
        if entry.status == MEASURED and target.device is None:
            return MEASURED, [reason for reason in why if not reason.startswith("same_arch:")]
        return MEASURED if answer.status == EXACT else answer.status, why
    attempt = attempts.at(kernel.kernel_id, bucket, target)
    if attempt is not None and attempt.status == FAILED:
        return FAILED, [f"on {attempt.device}: {attempt.reason or 'no reason is recorded'}", *why]
    if why:
        damaged = all(reason.startswith("damaged:") for reason in why)
        return (MISSING if damaged else OUTDATED), why
    if attempt is not None and attempt.status in ("running", "interrupted", "waiting"):
        return MISSING, [f"its tuning on {attempt.device} is {attempt.status}"]
    return MISSING, [NOTHING]


def _device(text: str) -> DeviceId | None:
    try:
        return DeviceId.parse(text)
    except ValueError:
        return None
