"""The tuning jobs: a child process each, and what it found as a record."""

from __future__ import annotations

import gzip
import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING
from typing import Any

from benchmarks.compare import cases
from benchmarks.compare import curves
from benchmarks.compare import helion_child
from benchmarks.compare import processes
from benchmarks.compare import records

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.compare.jobs import Job
    from benchmarks.compare.processes import Ended
    from benchmarks.compare.processes import Slot
    from benchmarks.compare.records import Record

_OVERRUN_S = 60.0  # Helion looks at its budget between batches, and then measures its best again


@dataclass(frozen=True, slots=True)
class Setup:
    """How jobs are carried out."""

    folder: Path
    device: str = "gpu"
    """`gpu` or `interpreter`."""
    budget_s: float = 480.0
    """What Helion's tuners may take, from the start of the process."""
    rounds: int = 200
    trials: int | None = None
    """Of our tuner; None: as many as it wants."""


def tune_helion(job: Job, setup: Setup, slot: Slot, limit_s: float) -> Record:
    """Helion's tuner, or, for `control`, one that stops at once with the default config.

    Where the process has to be killed, what its trace had as its best stands as its final.
    """
    control = job.side == "control"
    with processes.fresh(slot) as where:
        if not control:
            where.extra |= helion_child.settings(job.side, where.folder)
        out = where.folder / "found.json"
        command = _python("benchmarks.compare.helion_child", job.kernel, str(out))
        command += ["--device", setup.device]
        command += ["--control"] if control else ["--budget-s", str(setup.budget_s)]
        at_most_s = limit_s if control else min(limit_s, setup.budget_s + _OVERRUN_S)
        ended = processes.run(command, where, at_most_s)
        record = begin_record(job, ended, slot) | _said_before_end(out)
        trace = where.folder / helion_child.TRACE
        log = curves.helion_log(trace, ended.started)
        if not control:
            record |= {"algorithm": log.algorithm, "trials": log.trials, "curve": log.curve}
            record["budget_s"] = setup.budget_s
            _keep(setup.folder, record["run"], [trace])
    if "config" in record:  # what happens after that is no matter of tuning
        record["ended"] = "finished"
        if not control and ended.wall_s > setup.budget_s:
            record["ended"] = "budget"
    elif record["ended"] == "killed" and (found := log.selected or log.best) is not None:
        record["config"] = found
    else:
        record["ended"] = "failed"
    return record


def _said_before_end(out: Path) -> Record:
    """What Helion's process has written: the config only where it came to one."""
    try:
        said: Record = json.loads(out.read_text())
    except (OSError, ValueError):
        return {}
    return said


def tune_ours(job: Job, setup: Setup, slot: Slot, limit_s: float) -> Record:
    """Our tuner on a case, by the command that a user would type."""
    case = cases.CASES[job.kernel]
    words = [case.kernel_id, *case.words(setup.device), "--module", str(cases.MODULE)]
    record, rows = _tune(job, setup, slot, limit_s, words)
    if rows:
        record |= {k: rows[0][k] for k in ("config", "latency_us", "default_us")}
        record["is_default"] = rows[0]["default"]
    return record


def tune_sweep(job: Job, setup: Setup, slot: Slot, limit_s: float) -> Record:
    """Buckets of the swept kernel in one command: all eight, or the one that is named."""
    seed = "1" if job.side == "flips" else "0"
    point = job.kernel.partition(" ")[2]
    words = [cases.SWEPT, *cases.SWEPT_WORDS, *point.split(), "--module", "lfbo_aot.kernels"]
    record, rows = _tune(job, setup, slot, limit_s, [*words, "--seed", seed])
    return record | {"seed": int(seed), "buckets": rows}


def _tune(
    job: Job, setup: Setup, slot: Slot, limit_s: float, words: Sequence[str]
) -> tuple[Record, list[dict[str, Any]]]:
    """The record of a `tune` command, and the rows of the buckets that it tuned."""
    with processes.fresh(slot) as where:
        into = where.folder / "tuned"
        command = _python("lfbo_aot.cli.main", "tune", *words, "--into", str(into), "--json")
        command += ["--device", setup.device]
        if setup.trials is not None:
            command += ["--trials", str(setup.trials)]
        if slot.cores is not None:  # a core for what isn't compiling
            command += ["--workers", str(max(1, len(slot.cores) - 1))]
        ended = processes.run(command, where, limit_s)
        record = begin_record(job, ended, slot)
        record |= _of_entries(into)
        said = _last_object(ended.output)
        tuned = [row for row in said.get("results", ()) if row["config"] is not None]
        # Exit status 1: some buckets came to nothing; the others are results all the same.
        record["ended"] = "finished" if tuned and ended.code in (0, 1) else "failed"
        if ended.code is None:
            record["error"] = f"killed at its limit of {limit_s:.0f} s"
        record["profile"] = said.get("profile")
        # As if the process had ended with its search: so the curve is never too early.
        offset_s = ended.wall_s - record.get("search_s", 0.0)
        state = where.folder / "state"
        record["curve"] = curves.our_curve(state, offset_s) if len(tuned) == 1 else []
        _keep(setup.folder, record["run"], sorted(state.glob("journals/**/*.jsonl")))
    return record, tuned


def begin_record(job: Job, ended: Ended, slot: Slot) -> Record:
    """A record of how a child ended, before what it found is added."""
    how = {None: "killed", 0: "finished"}.get(ended.code, "failed")
    return {
        **records.begin(job.side, job.kernel, ended.wall_s),
        "ended": how,
        "error": "" if ended.code == 0 else ended.errors[-2000:],
        "slot": slot.number,
        "cores": None if slot.cores is None else len(slot.cores),
    }


def _of_entries(into: Path) -> dict[str, Any]:
    """The device, the versions, and the trials and seconds of search that a database tells of."""
    from lfbo_aot.database.database import Database

    found: dict[str, Any] = {}
    database = Database(into)
    for arch in database.archs():
        for kernel_id in database.kernels():
            shard = database.shard(kernel_id, arch)
            if shard is None:
                continue
            for key in shard.keys:
                entry = shard.entry(key).to_json()
                found.setdefault("device", key.partition("|")[0])
                found.setdefault("versions", entry["versions"])
                for name, key_of in (("trials", "trials"), ("search_s", "seconds")):
                    found[name] = found.get(name, 0) + entry["search"].get(key_of, 0)
    return found


def _last_object(text: str) -> dict[str, Any]:
    """The JSON object that a command printed; empty where it printed none."""
    try:
        said = json.loads(text[text.index("{") :])
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def _python(module: str, *words: str) -> list[str]:
    return [sys.executable, "-m", module, *words]


def _keep(folder: Path, run: str, files: Sequence[Path]) -> None:
    """Keep the tuner's own log beside the records, compressed."""
    data = b"".join(path.read_bytes() for path in files if path.is_file())
    if data:
        raw = folder / "raw"
        raw.mkdir(parents=True, exist_ok=True)
        (raw / f"{run}.jsonl.gz").write_bytes(gzip.compress(data))
