"""Recorded trials as a device: no process, no GPU, and a clock that only trials move on.

What a search would have found, and how a run goes on after any interruption, can be tried out a
thousand times from the trials of one run.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass
from dataclasses import field
from dataclasses import replace
from typing import TYPE_CHECKING
from typing import Any
from typing import Literal
from typing import TypeVar

from lfbo_aot.database.journal import Journal
from lfbo_aot.errors import TuningError
from lfbo_aot.registry.devices import DeviceId
from lfbo_aot.search import Space
from lfbo_aot.tuning.devices.device import FinalReading
from lfbo_aot.tuning.devices.device import OneStation
from lfbo_aot.tuning.devices.device import Opened
from lfbo_aot.tuning.devices.device import Outcome
from lfbo_aot.tuning.devices.device import with_default
from lfbo_aot.tuning.journaling import config_key

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Iterable
    from collections.abc import Mapping
    from collections.abc import Sequence
    from pathlib import Path

    from lfbo_aot.registry.dims import Value
    from lfbo_aot.registry.spec import KernelSpec
    from lfbo_aot.search import Point
    from lfbo_aot.tuning.devices.device import Config

Row = TypeVar("Row")

REPLAY = DeviceId("replay", "recorded trials")
TRIAL_S = 0.5  # what a trial takes whose record doesn't tell


@dataclass(frozen=True, slots=True)
class Recording:
    """The trials of one bucket."""

    space: Space
    default: Config
    """Of the space's default point."""
    outcomes: Mapping[Point, Outcome]
    """By canonical point; the tickets mean nothing."""
    layout: list[dict[str, Any]] = field(default_factory=list)
    policy: dict[str, str] = field(default_factory=lambda: {"clock": "recorded"})
    versions: dict[str, str] = field(default_factory=dict)


def read_journal(path: Path, bucket: str) -> Recording:
    """What a tuner's journal holds of a bucket: its last session's space, and every trial in it.

    Of several trials of a point the first one counts. Raises TuningError where the journal has none
    of the bucket, or its default config can't be told.
    """
    records = [r for r in Journal(path).records() if r.get("bucket") == bucket]
    opened = [r for r in records if r["kind"] == "open"]
    if not opened:
        msg = f"{path}: no trial of the bucket {bucket!r}"
        raise TuningError(msg)
    last = opened[-1]
    space = Space.from_json(last["space"])
    trials = [r for r in records if r["kind"] == "trial"]
    found = read_records(space, None, trials, _recorded)
    return replace(found, policy=last["policy"], versions=last["versions"])


def read_records(
    space: Space,
    default: Config | None,
    rows: Iterable[Row],
    read: Callable[[Row], tuple[Sequence[Any], Outcome]],
) -> Recording:
    """Records of any kind, which `read` turns into (point, outcome); those of another space are left.

    `default` is the config of the space's default point; None: as its record has it.
    """
    outcomes: dict[Point, Outcome] = {}
    for row in rows:
        point, outcome = read(row)
        try:
            outcomes.setdefault(space.canonical(point), outcome)
        except ValueError:
            continue
    if default is None:
        known = outcomes.get(space.default)
        if known is None or known.config is None:
            msg = "the records hold no trial of the default point, so its config isn't known"
            raise TuningError(msg)
        default = known.config
    return Recording(space, default, outcomes)


def _recorded(record: Mapping[str, Any]) -> tuple[Sequence[Any], Outcome]:
    names = ("status", "config", "latency_us", "cut", "launches", "resources", "error")
    times = ("codegen_s", "compile_s", "check_s", "time_s")
    known = {name: record[name] for name in (*names, *times) if name in record}
    return record["point"], Outcome(0, **known)


class ReplayDevice(OneStation):
    """Answers with what was recorded.

    `recordings` is one, or a function that finds the one of a (kernel, shape). A point that isn't
    recorded is answered by the `nearest` one that is, by their features, or is `invalid`.
    `parallel` trials run at a time; outcomes come in the order in which they would have ended.
    `noise` is the relative standard deviation of final readings, from a generator of its own.
    """

    def __init__(
        self,
        recordings: Recording | Callable[[KernelSpec, Mapping[str, Value]], Recording],
        *,
        unknown: Literal["nearest", "invalid"] = "invalid",
        parallel: int = 1,
        noise: float = 0.0,
        device_id: DeviceId = REPLAY,
    ) -> None:
        self.id = device_id
        self._find = recordings if callable(recordings) else lambda _spec, _shape: recordings
        self._unknown = unknown
        self._parallel = parallel
        self._noise = noise
        self._rng = random.Random(0)  # noqa: S311 - no secret
        self._now_s = 0.0
        self._running: list[tuple[float, Outcome]] = []
        self._waiting: deque[Outcome] = deque()
        self._recording: Recording | None = None

    def open(self, spec: KernelSpec, shape: Mapping[str, Value]) -> Opened:
        self._running.clear()
        self._waiting.clear()
        self._recording = found = self._find(spec, shape)
        return Opened(found.space, found.default, found.layout, found.policy, found.versions)

    def points(self, configs: Sequence[Config]) -> tuple[Point, ...]:
        outcomes = self._opened.outcomes
        known = {config_key(o.config): p for p, o in outcomes.items() if o.config}
        return tuple(known[key] for key in map(config_key, configs) if key in known)

    def free(self) -> int:
        return max(0, self._parallel - len(self._running) - len(self._waiting))

    def submit(self, ticket: int, point: Point, best_us: float | None) -> None:  # noqa: ARG002
        self._waiting.append(replace(self._outcome(point), ticket=ticket))
        self._start()

    def wait(self, timeout_s: float) -> list[Outcome]:
        ready = min(self._running, key=lambda pair: (pair[0], pair[1].ticket), default=None)
        if ready is None or ready[0] > self._now_s + timeout_s:
            self._now_s += timeout_s
            return []
        self._running.remove(ready)
        self._now_s = max(self._now_s, ready[0])
        self._start()
        return [ready[1]]

    def final_at(
        self,
        spec: KernelSpec,
        shape: Mapping[str, Value],
        configs: Sequence[Config],
        rounds: int,
        seconds: float | None = None,
    ) -> tuple[Config, list[FinalReading]]:
        main, self._recording = self._recording, self._find(spec, shape)
        try:
            default = self._opened.default
            return default, self.final(with_default(default, configs), rounds, seconds)
        finally:
            self._recording = main

    def final(
        self,
        configs: Sequence[Config],
        rounds: int,
        seconds: float | None = None,  # noqa: ARG002
    ) -> list[FinalReading]:
        known: dict[str, Outcome] = {}
        # Those that ran come first: of one config one point's trial may have failed.
        for recorded in sorted(self._opened.outcomes.values(), key=lambda o: o.status != "ok"):
            if recorded.config is not None:
                known.setdefault(config_key(recorded.config), recorded)
        readings = []
        for config in configs:
            outcome = known.get(config_key(config))
            if outcome is None or outcome.status != "ok" or outcome.latency_us is None:
                why = "never recorded" if outcome is None else f"{outcome.status}: {outcome.error}"
                readings.append(FinalReading(config, (), {}, why))
                continue
            samples = tuple(
                outcome.latency_us * max(0.01, self._rng.gauss(1.0, self._noise))
                for _ in range(rounds)
            )
            self._now_s += sum(samples) / 1e6
            readings.append(FinalReading(config, samples, outcome.resources))
        return readings

    def clock(self) -> float:
        """Simulated seconds since the device was made."""
        return self._now_s

    def close(self) -> None:
        """Nothing was started."""

    @property
    def _opened(self) -> Recording:
        if self._recording is None:
            msg = "no bucket is open"
            raise TuningError(msg)
        return self._recording

    def _start(self) -> None:
        while self._waiting and len(self._running) < self._parallel:
            outcome = self._waiting.popleft()
            self._running.append((self._now_s + cost_s(outcome), outcome))

    def _outcome(self, point: Point) -> Outcome:
        outcomes = self._opened.outcomes
        known = outcomes.get(point)
        if known is not None:
            return known
        if self._unknown == "invalid" or not outcomes:
            return Outcome(0, "invalid", error="not recorded")
        points = list(outcomes)
        features = self._opened.space.encode([point, *points])
        distances = ((features[1:] - features[0]) ** 2).sum(axis=1)
        return outcomes[points[int(distances.argmin())]]


def cost_s(outcome: Outcome) -> float:
    """The seconds that a recorded trial took."""
    parts = (outcome.codegen_s, outcome.compile_s, outcome.check_s, outcome.time_s)
    known = [part for part in parts if part is not None]
    return sum(known) if known else TRIAL_S
