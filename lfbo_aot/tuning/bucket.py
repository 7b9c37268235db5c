"""The tuning of one bucket: search, then the final choice, every step in the journal."""

from __future__ import annotations

import errno
import logging
import math
import tempfile
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING
from typing import Any

from lfbo_aot.search import LFBOOptions
from lfbo_aot.search import LFBOPatternSearch
from lfbo_aot.search import PatternSearch
from lfbo_aot.search import RandomSearch
from lfbo_aot.search.trial import FAILURES
from lfbo_aot.tuning import journaling
from lfbo_aot.tuning.ending import measure_again
from lfbo_aot.tuning.final import choose_for_bucket
from lfbo_aot.tuning.finalists import finalists
from lfbo_aot.tuning.judged import judged_by
from lfbo_aot.tuning.peering import context_of
from lfbo_aot.tuning.peering import find_peers
from lfbo_aot.tuning.peering import make_peers
from lfbo_aot.tuning.task import Found
from lfbo_aot.tuning.task import Step

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Sequence

    from lfbo_aot.search import Optimizer
    from lfbo_aot.tuning.book import Book
    from lfbo_aot.tuning.devices.device import Opened
    from lfbo_aot.tuning.devices.device import Outcome
    from lfbo_aot.tuning.devices.device import Station
    from lfbo_aot.tuning.final import Choice
    from lfbo_aot.tuning.limits import Limits
    from lfbo_aot.tuning.task import Manner
    from lfbo_aot.tuning.task import Task

ALGORITHMS: dict[str, Callable[..., Any]] = {
    "lfbo": LFBOPatternSearch,
    "pattern": PatternSearch,
    "random": RandomSearch,
}
FINALISTS = 10  # the default among them
_ENOUGH_FAILURES = 10
# Dozens of trials come back a second: a model is fitted for one and a half times as many as the
# published ten, has fewer trees, and no second one beside it for timeouts, else the search would
# take longer to think than to try.
_QUICK: dict[str, Any] = {
    "trees": 40,
    "refit_every": 15,
    "refit_growth": 0.1,
    "failure": "off",
}
_NO_SPACE = "No space left on device"
_RANKED = 200  # of the fastest trials, to choose finalists from

logger = logging.getLogger(__name__)


class BucketSearch:
    """The search of one bucket at one station, from its journal's last record to its end.

    `limits` hold for the run; `seconds` is what this bucket's search may take of it.
    """

    def __init__(
        self,
        task: Task,
        station: Station,
        opened: Opened,
        book: Book,
        *,
        manner: Manner,
        limits: Limits,
        seconds: float | None = None,
        watch: Callable[[Step], None] = lambda _: None,
    ) -> None:
        self.task = task
        self.opened = opened
        self._station = station
        self._book = book
        self._manner = manner
        self._watch = watch
        self._limits = limits.within(seconds)
        self._run_limits = limits
        own = book.of(task.bucket.key)
        asked = self._asked(limits.trials)
        # A search that was interrupted goes on from the start that it had.
        before = {} if manner.fresh else journaling.unfinished(own, asked)
        seeds = before.get("seeds", list(task.seeds))
        points = (*opened.space.seeds, *station.points(seeds))
        self._options = LFBOOptions(max_trials=limits.trials, **_QUICK)
        self._space = replace(opened.space, seeds=points)
        self._identity = asked | {
            "layout": list(opened.layout),
            "policy": opened.policy,
            "versions": opened.versions,
            "space": self._space.to_json(),
            "seeds": seeds,
        }
        found = find_peers(task.spec, self._identity, self._space, book)
        self._identity["peers"] = before.get("peers", found)
        if manner.fresh or not self._resume(own):
            self._begin(own, book.next_number())
        self.waited_s = 0.0
        """What it has waited for outcomes, in this process: the rest was its own work."""
        self._started = limits.clock() - self._progress.seconds

    def _asked(self, trials: int | None) -> journaling.Record:
        """What is to be searched and how, as far as that is known before the device is asked."""
        spec = self.task.spec
        return {
            "kernel": spec.kernel_id,
            "bucket": self.task.bucket.key,
            "device": str(self._station.id),
            "shape": dict(self.task.shape),
            "source": spec.source,
            "settings": dict(spec.settings),
            "judged_by": judged_by(spec),
            "algorithm": self._manner.algorithm,
            "seed": self._manner.seed,
            "trials": trials,
        }

    def _start_over(self) -> None:
        make = ALGORITHMS[self._manner.algorithm]
        spec = self.task.spec
        self._optimizer: Optimizer = make(
            self._space,
            self._manner.seed,
            self._options,
            context=context_of(spec, self.task.shape),
            peers=make_peers(spec, self._identity, self._space, self._book),
        )
        self._progress = journaling.Progress()

    def _resume(self, own: Sequence[journaling.Record]) -> bool:
        """Go on with the bucket's last session, if that is this one; whether it was."""
        records = journaling.session_records(own, self._identity)
        if not records:
            return False
        self._start_over()
        number = records[0]["session"]
        if records[0].get("recalled"):
            self._recall([r for r in own if r["session"] < number])
        if not journaling.replay(self._optimizer, self._space, records, self._progress):
            logger.warning(
                "%s: the search doesn't repeat what the journal holds; a new one starts from there",
                self.task.bucket.key,
            )
            return False
        self._session = journaling.Session(self._book, self._identity, number)
        return True

    def _begin(self, own: Sequence[journaling.Record], number: int) -> None:
        self._start_over()
        recalled = 0 if self._manner.fresh else self._recall(own)
        self._session = journaling.Session(self._book, self._identity, number)
        self._session.opened(recalled)

    def _recall(self, records: Sequence[journaling.Record]) -> int:
        """Tell the optimizer what earlier sessions measured; how many trials that was."""
        known = journaling.recall(records, self._identity, self._space)
        for record in known:
            trial = journaling.to_trial(self._space, record)
            self._optimizer.tell(trial)
            journaling.note(self._progress, trial.point, {**record, "seconds": 0.0})
        # They were paid for before.
        self._progress.trials = 0
        self._progress.recalled_failures = self._progress.failures
        self._progress.failures = {}
        self._progress.recalled = len(known)
        return len(known)

    def search(self) -> str:
        """Search until the optimizer or a limit ends it; says which did."""
        ended = self._search()
        self._report("final")
        return ended

    def _search(self) -> str:
        progress = self._progress
        for ticket, point in progress.outstanding.items():
            self._station.submit(ticket, point, self._best_us)
        while True:
            if self._limits.over():
                return "time"
            if not self._propose() and not progress.outstanding:
                limit = self._limits.trials
                return "trials" if limit and progress.trials >= limit else "converged"
            began = self._limits.clock()
            outcomes = self._station.wait(self._pause_s())
            self.waited_s += self._limits.clock() - began
            for outcome in outcomes:
                self._take(outcome)
            if not outcomes:
                self._report("search")  # whoever watches sees that it still runs

    def _propose(self) -> bool:
        """Ask for as many points as the device has room for; whether more may come of asking."""
        free = self._station.free()
        if free <= 0:
            return True
        if self._progress.dry:
            return False
        points = self._optimizer.ask(free)
        self._progress.dry = len(points) < free
        first = self._progress.tickets + 1
        tickets = dict(enumerate(points, first))
        self._progress.tickets += len(points)
        # Also where nothing came: asking may have drawn on its random state.
        self._session.asked(free, tickets)
        for ticket, point in tickets.items():
            self._progress.outstanding[ticket] = point
            self._station.submit(ticket, point, self._best_us)
        return not self._progress.dry

    def _take(self, outcome: Outcome) -> None:
        point = self._progress.outstanding.pop(outcome.ticket, None)
        if point is None:
            return  # a straggler of a bucket before
        if outcome.status in FAILURES and _NO_SPACE in outcome.error:
            # Nothing that is tried now would tell anything of itself.
            raise OSError(errno.ENOSPC, _NO_SPACE, tempfile.gettempdir())
        outcome = self._as_duplicate(_sound(outcome))
        record = journaling.trial_record(outcome.ticket, point, outcome, self.seconds)
        trial = journaling.to_trial(self._space, record)
        self._session.told(record)
        self._optimizer.tell(trial)
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
        return self._limits.clock() - self._started

    @property
    def thinking_s(self) -> float:
        """What the optimizer has taken to propose, in this process."""
        return float(getattr(self._optimizer, "thinking_s", 0.0))

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
                stage,
            )
        )

    def finish(self, ended: str) -> Found:
        """Choose among the best that were found."""
        if ended == "time" and not self._tells_something:
            # Nothing was compared with the default: an entry would claim that something was.
            return self._found(None, ended, "the time was up before any candidate was measured")
        ranked = self._optimizer.top(_RANKED)
        best = [
            self._progress.configs[trial.point]["config"]
            for trial in finalists(ranked, self._space, FINALISTS)
        ]
        few = [c for c in best if c != self.opened.default][: FINALISTS - 1]
        points = measure_again(
            self._station,
            self.task,
            self.opened.default,
            few,
            manner=self._manner,
            limits=self._run_limits,
        )
        choice = choose_for_bucket(points)
        errors = dict.fromkeys(r.error for r in points[0].readings if r.error)
        reason = "" if choice is not None else "; ".join(errors)[:400]
        return self._found(choice, ended, reason)

    def _found(self, choice: Choice | None, ended: str, reason: str) -> Found:
        progress = self._progress
        search = {
            "algorithm": self._manner.algorithm,
            "trials": progress.trials,
            "seconds": round(self.seconds, 1),
            "seed": self._manner.seed,
            "ended": ended,
        }
        if progress.recalled:
            search["recalled"] = progress.recalled
        failures = Counter(progress.recalled_failures) + Counter(progress.failures)
        return Found(self.opened, choice, search, dict(failures), self._candidate_ran, reason)

    @property
    def _candidate_ran(self) -> bool:
        return any(point != self._space.default for point in self._progress.configs)

    @property
    def _tells_something(self) -> bool:
        """Whether a candidate ran, or so many failed that more of them would tell nothing new."""
        return self._candidate_ran or len(self._progress.told) > _ENOUGH_FAILURES

    def record_final(self, entry: dict[str, Any] | None, reason: str) -> None:
        """Close the session: the entry is what it came to."""
        self._session.finished(entry, reason)


def _sound(outcome: Outcome) -> Outcome:
    """The outcome, or a `crash` where its latency is none."""
    latency_us = outcome.latency_us
    if outcome.status in FAILURES:
        return replace(outcome, latency_us=None, cut=False)
    if latency_us is not None and math.isfinite(latency_us) and latency_us > 0:
        return outcome
    error = f"it ran, and its latency was read as {latency_us} us"
    return replace(outcome, status="crash", latency_us=None, cut=False, error=error)
