"""The tuning of one bucket: search, then the final choice, every step in the journal."""

from __future__ import annotations

import time
from dataclasses import dataclass
from dataclasses import replace
from typing import TYPE_CHECKING
from typing import Any

from lfbo_aot.search import LFBOOptions
from lfbo_aot.search import LFBOPatternSearch
from lfbo_aot.search import PatternSearch
from lfbo_aot.search import RandomSearch
from lfbo_aot.tuning import journaling
from lfbo_aot.tuning.final import Choice
from lfbo_aot.tuning.final import choose

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Mapping
    from collections.abc import Sequence

    from lfbo_aot.database.journal import Journal
    from lfbo_aot.registry.buckets import Bucket
    from lfbo_aot.registry.dims import Value
    from lfbo_aot.registry.spec import KernelSpec
    from lfbo_aot.search import Optimizer
    from lfbo_aot.tuning.devices.device import Config
    from lfbo_aot.tuning.devices.device import Device
    from lfbo_aot.tuning.devices.device import Opened
    from lfbo_aot.tuning.devices.device import Outcome
    from lfbo_aot.tuning.limits import Limits

ALGORITHMS: dict[str, Callable[..., Any]] = {
    "lfbo": LFBOPatternSearch,
    "pattern": PatternSearch,
    "random": RandomSearch,
}
FINALISTS = 10  # the default among them


@dataclass(frozen=True, slots=True)
class Task:
    """One bucket to tune: what, at which shape."""

    spec: KernelSpec
    bucket: Bucket
    shape: Mapping[str, Value]
    seeds: tuple[Config, ...] = ()
    """Winners of neighbouring buckets."""


@dataclass(frozen=True, slots=True)
class Found:
    """What the tuning of a bucket came to. `choice` is None where not even the default ran."""

    opened: Opened
    choice: Choice | None
    search: dict[str, Any]
    failures: dict[str, int]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """News of a search for whoever watches."""

    trials: int
    best_us: float | None
    default_us: float | None
    failures: Mapping[str, int]
    in_flight: int
    stage: str = "search"


class BucketSearch:
    """The search of one bucket on one device, from its journal's last record to its end.

    `limits` hold for the run; `seconds` is what this bucket's search may take of it.
    """

    def __init__(
        self,
        task: Task,
        device: Device,
        journal: Journal,
        *,
        seed: int,
        algorithm: str,
        limits: Limits,
        seconds: float | None = None,
        rounds: int,
        n_initial: int | None = None,
        fresh: bool = False,
        watch: Callable[[Step], None] = lambda _: None,
    ) -> None:
        self.task = task
        self._device = device
        self._rounds = rounds
        self._watch = watch
        self._progress = journaling.Progress()
        own = [r for r in journal.records() if r.get("bucket") == task.bucket.key]
        # A search that was interrupted goes on from the start that it had.
        before = {} if fresh else journaling.unfinished(own)
        seeds = before.get("seeds", list(task.seeds))
        n_initial = before.get("n_initial", n_initial)
        self.opened = device.open(task.spec, task.shape, seeds)
        # From here: how long workers take to start says nothing of the bucket.
        self._limits = limits.within(seconds)
        self._space = self.opened.space
        self._algorithm = algorithm
        self._seed = seed
        self._identity = self._describe(seeds) | {"n_initial": n_initial}
        options = LFBOOptions(max_trials=limits.trials, n_initial=n_initial)
        self._optimizer: Optimizer = ALGORITHMS[algorithm](self._space, seed, options)
        number, records = (0, []) if fresh else journaling.find_session(own, self._identity)
        if number:
            self._session = journaling.Session(journal, self._identity, number)
            if records[0].get("recalled"):
                self._recall([r for r in own if r["session"] < number])
            journaling.replay(self._optimizer, self._space, records, self._progress)
        else:
            number = journaling.next_number(list(journal.records()))
            self._session = journaling.Session(journal, self._identity, number)
            recalled = 0 if fresh else self._recall(own)
            self._session.opened(recalled)
        self._started = time.monotonic() - self._progress.seconds

    def run(self) -> Found:
        """Search until the optimizer or a limit ends it, then choose among the best."""
        ended = self._search()
        return self._finish(ended)

    def _describe(self, seeds: Sequence[Config]) -> journaling.Record:
        spec = self.task.spec
        return {
            "kernel": spec.kernel_id,
            "bucket": self.task.bucket.key,
            "device": str(self._device.id),
            "shape": dict(self.task.shape),
            "source": spec.source,
            "settings": dict(spec.settings),
            "policy": self.opened.policy,
            "versions": self.opened.versions,
            "space": self._space.to_json(),
            "algorithm": self._algorithm,
            "seed": self._seed,
            "trials": self._limits.trials,
            "seeds": list(seeds),
        }

    def _recall(self, records: Sequence[journaling.Record]) -> int:
        """Tell the optimizer what earlier sessions measured; how many trials that was."""
        known = journaling.recall(records, self._identity, self._space)
        for record in known:
            trial = journaling.to_trial(self._space, record)
            self._optimizer.tell(trial)
            journaling.note(self._progress, trial.point, {**record, "seconds": 0.0})
        self._progress.trials = 0  # they were paid for before
        return len(known)

    def _search(self) -> str:
        progress = self._progress
        for ticket, point in progress.outstanding.items():
            self._device.submit(ticket, point, self._best_us)
        while True:
            if self._limits.over():
                return "time"
            if not self._propose() and not progress.outstanding:
                limit = self._limits.trials
                return "trials" if limit and progress.trials >= limit else "converged"
            for outcome in self._device.wait(self._pause_s()):
                self._take(outcome)

    def _propose(self) -> bool:
        """Ask for as many points as the device has room for; whether there were any."""
        free = self._device.free()
        if free <= 0:
            return True
        points = self._optimizer.ask(free)
        if not points:
            return False
        first = self._progress.tickets + 1
        tickets = dict(enumerate(points, first))
        self._progress.tickets += len(points)
        self._session.asked(free, tickets)
        for ticket, point in tickets.items():
            self._progress.outstanding[ticket] = point
            self._device.submit(ticket, point, self._best_us)
        return True

    def _take(self, outcome: Outcome) -> None:
        point = self._progress.outstanding.pop(outcome.ticket, None)
        if point is None:
            return  # a straggler of a bucket before
        outcome = self._as_duplicate(outcome)
        record = journaling.trial_record(outcome.ticket, point, outcome, self.seconds)
        self._session.told(record)
        self._optimizer.tell(journaling.to_trial(self._space, record))
        journaling.note(self._progress, point, record)
        self._report("search")

    def _as_duplicate(self, outcome: Outcome) -> Outcome:
        """A config that was tried before under another point keeps its first reading."""
        if outcome.config is None:
            return outcome
        first = self._progress.by_config.get(journaling.config_key(outcome.config))
        if first is None or first["status"] != "ok":
            return outcome
        return replace(
            outcome,
            status="duplicate",
            latency_us=first.get("latency_us"),
            cut=bool(first.get("cut", False)),
        )

    @property
    def seconds(self) -> float:
        """Search time so far, earlier processes' included."""
        return time.monotonic() - self._started

    @property
    def _best_us(self) -> float | None:
        best = self._optimizer.best
        return best.latency_us if best is not None else None

    def _pause_s(self) -> float:
        left = self._limits.left_s
        return 1.0 if left is None else min(1.0, left + 0.01)

    def _report(self, stage: str) -> None:
        default = self._progress.configs.get(self._space.default)
        self._watch(
            Step(
                self._progress.trials,
                self._best_us,
                default["latency_us"] if default else None,
                dict(self._progress.failures),
                len(self._progress.outstanding),
                stage,
            )
        )

    def _finish(self, ended: str) -> Found:
        if ended == "time" and not self._others_timed:
            # Nothing was compared with the default: an entry would claim that something was.
            return self._found(None, ended, "the time was up before any candidate was measured")
        self._report("final")
        best = [self._progress.configs[t.point]["config"] for t in self._optimizer.top(FINALISTS)]
        finalists = [c for c in best if c != self.opened.default][: FINALISTS - 1]
        readings = self._device.final([self.opened.default, *finalists], self._rounds)
        choice = choose(readings, self.opened.default)
        reason = "" if choice is not None else "; ".join(r.error for r in readings if r.error)[:400]
        return self._found(choice, ended, reason)

    def _found(self, choice: Choice | None, ended: str, reason: str) -> Found:
        search = {
            "algorithm": self._algorithm,
            "trials": self._progress.trials,
            "seconds": round(self.seconds, 1),
            "seed": self._seed,
            "ended": ended,
        }
        return Found(self.opened, choice, search, dict(self._progress.failures), reason)

    @property
    def _others_timed(self) -> bool:
        """Whether anything but the default has run."""
        return any(point != self._space.default for point in self._progress.configs)

    def record_final(self, entry: dict[str, Any] | None, reason: str) -> None:
        """Close the session: the entry is what it came to."""
        self._session.finished(entry, reason)
