"""How exact the tuner's timings are: the error of quick, full and final readings, idle and under load.

    python benchmarks/clock.py --run [--out FILE] | --summary [--out FILE] [--json]

Each reading is made many times of one and the same config, interleaved with the others, on a machine
that is idle and on one whose cores all compile, as during a search. `events quick` and
`full` put two events around each of several launches in a row, `events final` around launches that are
waited for one by one, as the tuner does; `graph` replays launches and events captured in a CUDA graph.
A GPU is needed for `--run`; the records hold every reading.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import statistics
import sys
import time
from datetime import datetime
from datetime import timezone
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results" / "clock_h200.jsonl"
CASES = (
    ("rms_norm", {"m": 4, "n": 4096, "dtype": "bfloat16"}),
    ("rms_norm", {"m": 4096, "n": 4096, "dtype": "bfloat16"}),
    ("layer_norm", {"m": 4096, "n": 5120, "dtype": "bfloat16"}),
    ("matmul", {"m": 512, "n": 8192, "k": 8192, "dtype": "bfloat16"}),
)
REPEATS = 20
LAUNCHES = {"quick": 3, "full": 24, "final": 60}


def run(out: Path) -> None:
    """Make the readings and append them to `out`."""
    import torch

    from lfbo_aot.adapters import helion as seam
    from lfbo_aot.registry.discovery import load_kernels
    from lfbo_aot.tuning.bench import Bench
    from lfbo_aot.tuning.workers.gpu import EventClock

    clock = EventClock("cuda:0")
    specs = {spec.name: spec for spec in load_kernels(["lfbo_aot.kernels"])}
    head = {
        "date": datetime.now(tz=timezone.utc).isoformat("T", "seconds"),
        "device": torch.cuda.get_device_name(0),
        "versions": seam.versions(),
    }
    benches = []
    for name, shape in CASES:
        bench = Bench(specs[name], shape, "cuda:0", clock)
        bound = seam.bind(specs[name].kernel, bench.args)
        function, _ = seam.generate(bound, seam.default_config(bound))
        bench.time(function, 3)
        benches.append((name, shape, bench, function))
    for load in ("idle", "busy"):
        with Busy(os.cpu_count() or 1 if load == "busy" else 0):
            for name, shape, bench, function in benches:
                rows = readings(bench, function, clock)
                record = head | {"kernel": name, "shape": shape, "load": load, "readings": rows}
                with out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(record) + "\n")
                    file.flush()


class Busy:
    """Keeps so many cores busy while inside."""

    def __init__(self, cores: int) -> None:
        self._processes = [
            multiprocessing.get_context("spawn").Process(target=_spin, daemon=True)
            for _ in range(cores)
        ]

    def __enter__(self) -> None:
        for process in self._processes:
            process.start()
        if self._processes:
            time.sleep(3.0)

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()


def _spin() -> None:
    for number in itertools.count():
        hash(number)


def readings(bench: Any, function: Any, clock: Any) -> dict[str, list[float]]:
    """Medians in microseconds, `REPEATS` of each kind of reading, in turn."""
    found: dict[str, list[float]] = {}
    graphs = {n: graph_of(bench, function, clock, n) for n in LAUNCHES.values()}
    for _ in range(REPEATS):
        for kind, launches in LAUNCHES.items():
            if kind == "final":
                samples = bench.time(function, launches)
            else:
                samples = in_a_row(bench, function, clock, launches)
            found.setdefault(f"events {kind}", []).append(statistics.median(samples))
            samples = graphs[launches]()
            found.setdefault(f"graph {kind}", []).append(statistics.median(samples))
    return found


def in_a_row(bench: Any, function: Any, clock: Any, launches: int) -> list[float]:
    """The microseconds of each of several launches that are queued one behind the other."""
    import torch

    pairs = []
    torch.cuda._sleep(10_000_000)  # noqa: SLF001 - until all are queued
    for _ in range(launches):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        clock.evict()
        start.record()
        function(*bench.args)
        end.record()
        pairs.append((start, end))
    torch.cuda.synchronize()
    return [1000.0 * start.elapsed_time(end) for start, end in pairs]


def graph_of(bench: Any, function: Any, clock: Any, launches: int) -> Any:
    """A function that replays a captured series and gives the microseconds of each launch."""
    import torch

    args = bench.args
    pairs = [
        tuple(torch.cuda.Event(enable_timing=True, external=True) for _ in range(2))
        for _ in range(launches)
    ]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for start, end in pairs:
            clock.evict()
            start.record()
            function(*args)
            end.record()

    def replay() -> list[float]:
        graph.replay()
        torch.cuda.synchronize()
        return [1000.0 * start.elapsed_time(end) for start, end in pairs]

    return replay


def summarize(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each case and load: median and relative deviation (per cent) of each kind of reading."""
    rows = []
    for record in records:
        row: dict[str, Any] = {
            "kernel": record["kernel"],
            "shape": record["shape"],
            "load": record["load"],
        }
        for kind, values in record["readings"].items():
            middle = statistics.median(values)
            row[kind] = {
                "median_us": round(middle, 3),
                "deviation_percent": round(100 * statistics.pstdev(values) / middle, 2),
                "largest_percent": round(100 * max(abs(v / middle - 1) for v in values), 2),
            }
        rows.append(row)
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--run", action="store_true")
    parser.add_argument("--summary", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    if args.run:
        run(args.out)
    if args.summary:
        rows = summarize([json.loads(line) for line in args.out.read_text().splitlines()])
        if args.json:
            print(json.dumps(rows, indent=1))
        else:
            show(rows)
    return 0


def show(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        print(row["kernel"], row["shape"], row["load"])
        for kind in (k for k in row if isinstance(row[k], dict) and "median_us" in row[k]):
            of = row[kind]
            print(
                f"  {kind:14} {of['median_us']:9.3f} us, deviation {of['deviation_percent']:5.2f} %, "
                f"at most {of['largest_percent']:5.2f} %"
            )


if __name__ == "__main__":
    sys.exit(main())
