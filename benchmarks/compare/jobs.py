"""What there is to do, what of it is missing, and what comes next in the time that is left."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.compare.cases import ALONE
from benchmarks.compare.cases import CASES
from benchmarks.compare.cases import PATTERN
from benchmarks.compare.cases import SWEPT
from benchmarks.compare.records import has_result
from benchmarks.compare.records import last

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.compare.records import Record

SIDES = ("helion", "pattern", "ours", "control", "measure", "sweep", "flips")
TUNERS = ("helion", "pattern", "ours", "control")
"""The sides that end with a config, which `measure` then times together."""
ATTEMPTS = 2
"""A job that failed as often isn't begun again unless asked for."""
_NEEDS_S = {"ours": 150.0, "control": 40.0, "measure": 60.0, "sweep": 400.0, "flips": 400.0}
_NEEDS_S |= {"alone": 150.0, "remeasure": 90.0}
_TEARDOWN_S = 10.0
_ROOM = 1.3  # a job may take as much longer than the same one took before
_LONG = ("helion", "pattern", "sweep", "flips")


@dataclass(frozen=True, slots=True)
class Job:
    """One piece of work, done in one process of its own."""

    side: str
    kernel: str
    """A case's name, or the swept kernel's id, with the point where one is tuned alone."""

    def __str__(self) -> str:
        return f"{self.side} {self.kernel}"


def alone(point: int) -> str:
    """What stands for the kernel in a record of a bucket that was tuned alone."""
    return f"{SWEPT} m={point}"


def wanted(kernels: Sequence[str], sides: set[str], *, named: bool) -> list[Job]:
    """The jobs of these kernels and sides, in the order in which they are worth most.

    PatternSearch is a baseline for two kernels only, unless kernels are named. A side takes along
    what it can't do without.
    """
    found = [Job(side, kernel) for kernel in kernels for side in ("helion",) if side in sides]
    patterned = kernels if named else [k for k in kernels if k in PATTERN]
    found += [Job("pattern", kernel) for kernel in patterned if "pattern" in sides]
    if sides & {"sweep", "flips"}:
        found.append(Job("sweep", SWEPT))
    if "flips" in sides:
        found.append(Job("flips", SWEPT))
    for side in ("ours", "control"):
        found += [Job(side, kernel) for kernel in kernels if side in sides]
    if "sweep" in sides:
        found += [Job("alone", alone(point)) for point in ALONE]
    found += [Job("measure", kernel) for kernel in kernels if "measure" in sides]
    if sides & {"sweep", "flips"}:
        found.append(Job("remeasure", SWEPT))
    return found


def finals(records: Sequence[Record], job: Job) -> dict[str, Record]:
    """The records whose configs a measuring job times together, by label."""
    listed = list(records)
    if job.side == "measure":
        pairs = {side: last(listed, side, job.kernel) for side in TUNERS}
    else:
        pairs = {side: last(listed, side, SWEPT) for side in ("sweep", "flips")}
        pairs |= {f"alone {m}": last(listed, "alone", alone(m)) for m in ALONE}
    return {label: record for label, record in pairs.items() if record is not None}


def is_missing(job: Job, records: Sequence[Record], attempts: int = ATTEMPTS) -> bool:
    """Whether a job can be done and has no result yet that holds for the present finals."""
    mine = [r for r in records if r["side"] == job.side and r["kernel"] == job.kernel]
    if job.side in ("measure", "remeasure"):
        present = {label: r["run"] for label, r in finals(records, job).items()}
        if not present or set(present) <= {"control"}:
            return False
        mine = [r for r in mine if r.get("runs") == present]
    if any(has_result(r) for r in mine):
        return False
    return len(mine) < attempts


def needs_s(job: Job, records: Sequence[Record], budget_s: float) -> float:
    """The seconds that must be left for a job to be begun."""
    if job.side in ("helion", "pattern"):
        return budget_s + _TEARDOWN_S
    before = [r["wall_s"] for r in records if r["side"] == job.side and has_result(r)]
    return _ROOM * max(before) + _TEARDOWN_S if before else _NEEDS_S[job.side]


def pick(
    jobs: Sequence[Job], records: Sequence[Record], left_s: float, budget_s: float
) -> Job | None:
    """The next of these jobs that can end within `left_s`; None where there is none.

    Long ones come first: what they leave of a limit is filled with short ones, not the other way
    round. Measuring comes last, when there is nothing else to do in the time.
    """
    fitting = [job for job in jobs if needs_s(job, records, budget_s) <= left_s]
    return min(fitting, key=_rank, default=None)


def _rank(job: Job) -> int:
    """Ties keep the order of the jobs, as `min` takes the first."""
    if job.side in _LONG:
        return 0
    return 2 if job.side in ("measure", "remeasure") else 1


def names() -> tuple[str, ...]:
    """The cases that can be named."""
    return tuple(CASES)
