"""The measuring jobs: finals of all sides timed together, in one process for a kernel."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING
from typing import Any

from benchmarks.compare import cases
from benchmarks.compare import processes
from benchmarks.compare import tuners
from benchmarks.compare.jobs import finals

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.compare.jobs import Job
    from benchmarks.compare.processes import Slot
    from benchmarks.compare.records import Record

# For each of the jobs that end with configs and with raw samples.
_TUNING = {
    "helion": tuners.tune_helion,
    "pattern": tuners.tune_helion,
    "control": tuners.tune_helion,
    "ours": tuners.tune_ours,
    "sweep": tuners.tune_sweep,
    "alone": tuners.tune_sweep,
    "flips": tuners.tune_sweep,
}
WARM = "import helion, helion.autotuner, sklearn.ensemble, torch, triton; torch.zeros(1).cuda()"
"""Run once before all else, so that no side is the first to read its libraries from the disk."""


def carry_out(
    job: Job, setup: tuners.Setup, slot: Slot, limit_s: float, records: Sequence[Record]
) -> Record:
    """Do a job within `limit_s` seconds. A child that fails is a record of a failure, no error."""
    if job.side in _TUNING:
        return _TUNING[job.side](job, setup, slot, limit_s)
    found = finals(records, job)
    if job.side == "measure":
        items, modules = _of_case(job, setup, found), [str(cases.MODULE)]
    else:
        items, modules = _of_sweep(found), ["lfbo_aot.kernels"]
    record = _measure(job, setup, slot, limit_s, {"items": items, "modules": modules})
    return record | {"runs": {label: final["run"] for label, final in found.items()}}


def warm_up(limit_s: float) -> str:
    """Read the libraries of both sides once; what there is to say of it."""
    with processes.fresh(processes.Slot()) as where:
        ended = processes.run([sys.executable, "-c", WARM], where, limit_s)
    how = "" if ended.code == 0 else f", and failed: {ended.errors[-1000:]}"
    return f"reading the libraries took {ended.wall_s:.1f} s{how}"


def _of_case(job: Job, setup: tuners.Setup, found: dict[str, Record]) -> list[dict[str, Any]]:
    case = cases.CASES[job.kernel]
    configs = {label: final["config"] for label, final in found.items()}
    return [{"kernel": case.kernel_id, "shape": dict(case.at(setup.device)), "configs": configs}]


def _of_sweep(found: dict[str, Record]) -> list[dict[str, Any]]:
    """An item for each bucket, with the config that each tune gave it."""
    items: dict[str, dict[str, Any]] = {}
    for label, final in found.items():
        for row in final["buckets"]:
            empty = {"kernel": cases.SWEPT, "shape": row["shape"], "configs": {}}
            item = items.setdefault(row["bucket"], empty)
            item["configs"][label.partition(" ")[0]] = row["config"]
    return [items[key] for key in sorted(items)]


def _measure(
    job: Job, setup: tuners.Setup, slot: Slot, limit_s: float, request: dict[str, Any]
) -> Record:
    with processes.fresh(slot) as where:
        asked, out = where.folder / "request.json", where.folder / "found.jsonl"
        request |= {"device": setup.device, "rounds": setup.rounds}
        asked.write_text(json.dumps(request))
        words = ["-m", "benchmarks.compare.measure_child", str(asked), str(out)]
        ended = processes.run([sys.executable, *words], where, limit_s)
        record = tuners.begin_record(job, ended, slot)
        lines = out.read_text().splitlines() if out.is_file() else []
    rows: list[Record] = [json.loads(line) for line in lines]
    if len(rows) != 1 + len(request["items"]):
        record["ended"] = "failed"
        return record
    if not any(row["samples_us"] for row in rows[1:]):
        record |= {"ended": "failed", "error": json.dumps([row["errors"] for row in rows[1:]])}
    return record | rows[0] | {"rounds": setup.rounds, "items": rows[1:]}
