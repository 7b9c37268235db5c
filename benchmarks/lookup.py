"""What look-ups cost: warm ones, the first one in a process, many processes beside a merge.

    python benchmarks/lookup.py [--json] [--record] [--without calls]

Ratios are of one run. On a machine with a GPU the host time of kernels' calls is measured too
(benchmarks/lookup_calls.py). `--record` appends the raw records to benchmarks/results/lookup.jsonl.
"""

from __future__ import annotations

import argparse
import datetime as dt
import gc
import json
import multiprocessing
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import timeit
from pathlib import Path
from typing import Any

import lfbo_aot
from lfbo_aot.database.declaration import Declaration
from lfbo_aot.database.entry import Entry
from lfbo_aot.database.merge import merge
from lfbo_aot.registry.buckets import enumerate_buckets
from lfbo_aot.registry.devices import DeviceId
from lfbo_aot.registry.dims import Exact
from lfbo_aot.registry.dims import Range
from lfbo_aot.runtime import state

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT))  # for the other benchmark; lfbo_aot is what is installed
RESULTS = ROOT / "benchmarks" / "results" / "lookup.jsonl"
H200 = DeviceId("sm90", "NVIDIA H200")
SHAPE = {"m": 4096, "n": 5120, "dtype": "bfloat16"}
DIMS = {
    "m": Range(1, 1 << 20, factor=2),
    "n": Exact(*(256 * i for i in range(1, 11))),
    "dtype": Exact("bfloat16"),
}
ENTRIES, KERNELS = 200, 100
PROCESSES, LOOKUPS = 8, 100_000
REPEATS = 50

Record = dict[str, Any]

# In a process of its own: imports and the scan of entry points are done by another look-up.
_FIRST = """
import gc, json, sys, time, tracemalloc
import lfbo_aot
device = "sm90/NVIDIA H200"
lfbo_aot.resolve("layer_norm", (4096, 5120, "bfloat16"), device)
root, traced = sys.argv[1], sys.argv[2] == "traced"
gc.collect()
if traced:
    tracemalloc.start()
begin = time.perf_counter()
lfbo_aot.use_database(root)
found = lfbo_aot.resolve("lib.kernel_050", {"m": 3000, "n": 512, "dtype": "bfloat16"}, device)
ms = (time.perf_counter() - begin) * 1e3
kib = tracemalloc.get_traced_memory()[1] / 1024 if traced else None
print(json.dumps({"ms": ms, "kib": kib, "status": found.status}))
"""


def entry(warps: int) -> Entry:
    """An entry as a tuning run makes it."""
    config = {
        "block_sizes": [warps, 1],
        "indexing": ["pointer", "tensor_descriptor", "pointer"],
        "load_eviction_policies": ["", "last"],
        "num_stages": 4,
        "num_warps": warps,
        "pid_type": "flat",
        "range_unroll_factors": [0],
        "reduction_loops": [None],
    }
    return Entry(
        config=config,
        alternates=[{**config, "num_warps": n} for n in (1, 2)],
        latency_us=25.6,
        default_us=34.0,
        spread=0.011,
        probes=[{"shape": {**SHAPE, "m": m}, "regret": 0.01, "default_us": 30.0} for m in (1, 64)],
        resources={"shared": 32768, "regs": 64, "spills": 0, "threads": 32 * warps},
        source="sha256:50ce",
        space="sha256:5bace",
        settings={"static_shapes": True, "fast_math": False, "dot_precision": "tf32"},
        layout=[{"order": [0, 1], "contiguous": True, "dtype": "bfloat16"}],
        versions={"helion": "1.5.0", "triton": "3.6.0", "torch": "2.11.0", "runtime": "13.0"},
        policy={"l2": "cold", "clock": "events", "inputs": "normal"},
        search={"algorithm": "lfbo", "trials": 412, "seconds": 31.2, "seed": 0},
        measured="2026-12-01",
    )


def write_database(root: Path, kernels: int, warps: int = 4, entries: int = ENTRIES) -> None:
    """A database of `kernels` kernels, each with a shard of `entries` entries."""
    buckets = enumerate_buckets(DIMS)[:entries]
    declared = {"source": "sha256:50ce", "settings": {"static_shapes": True}}
    held = {(H200, bucket): entry(warps) for bucket in buckets}
    names = [f"lib.kernel_{at:03d}" for at in range(kernels)]
    declarations = [
        Declaration(name, DIMS, tuple(bucket.key for bucket in buckets), **declared)
        for name in names
    ]
    merge(root, dict.fromkeys(names, held), declarations)


def ns_of(statement: str, names: dict[str, Any], calls: int = 20_000) -> dict[str, float]:
    """Nanoseconds of a statement: the least and the median of the repeats."""
    times = timeit.repeat(statement, globals=names, number=calls, repeat=REPEATS)
    return {"min": min(times) / calls * 1e9, "median": statistics.median(times) / calls * 1e9}


def warm_by_name() -> list[Record]:
    """A repeated look-up by name, and a look-up of a prepared key in a dict."""
    device = str(H200)
    key = ("layer_norm", device, *SHAPE.values())
    names = {
        "get_config": lfbo_aot.get_config,
        "name": "layer_norm",
        "shape": dict(SHAPE),
        "device": device,
        "key": key,
        "table": {key: lfbo_aot.get_config("layer_norm", SHAPE, device)},
    }
    return [
        {"what": "prepared key in a dict", "ns": ns_of("table[key]", names)},
        {"what": "get_config by name", "ns": ns_of("get_config(name, shape, device)", names)},
    ]


def warm_live() -> list[Record]:
    """A repeated look-up from live tensors, and reading their sizes."""
    try:
        import torch
        from lfbo_aot.kernels.layer_norm import layer_norm
    except ImportError as error:
        return [{"what": "get_config from tensors", "skipped": str(error)}]
    where = "cuda" if torch.cuda.is_available() else "cpu"
    x, w, b = (torch.empty(*size, device=where) for size in ((256, 512), (512,), (512,)))
    names = {"get_config": lfbo_aot.get_config, "kernel": layer_norm, "args": (x, w, b)}
    names |= {"x": x, "w": w, "b": b}
    lfbo_aot.get_config(layer_norm, (x, w, b))
    sizes = "(x.size(0), x.size(1), w.size(0), b.size(0))"
    return [
        {"what": "reading the tensors' sizes", "ns": ns_of(sizes, names)},
        {"what": "get_config from tensors", "ns": ns_of("get_config(kernel, args)", names)},
    ]


def first_lookups(root: Path, repeats: int = 15) -> list[Record]:
    """The first look-up of fresh processes: milliseconds, and once the memory that it took."""
    found: list[Record] = []
    for turn in range(repeats + 1):
        mode = "traced" if turn == repeats else "timed"
        command = [sys.executable, "-c", _FIRST, str(root), mode]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=_clean())
        found.append({"what": f"first look-up, {mode}", **json.loads(done.stdout)})
    return found


def _clean() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LFBO_AOT_")}
    paths = [path for path in (kept.get("PYTHONPATH"), str(ROOT)) if path]
    return {**kept, "PYTHONPATH": os.pathsep.join(paths)}


def beside_a_merge(root: Path) -> Record:
    """Forked readers that read the files anew for each look-up, while merges rewrite them."""
    write_database(root, 1, warps=1, entries=20)
    context = multiprocessing.get_context("fork")
    gate, outcomes = context.Event(), context.Queue()
    share = LOOKUPS // PROCESSES
    readers = [
        context.Process(target=_read, args=(root, share, gate, outcomes)) for _ in range(PROCESSES)
    ]
    for reader in readers:
        reader.start()
    gate.set()
    begin, merges = time.perf_counter(), 0
    while any(reader.is_alive() for reader in readers) and outcomes.qsize() < PROCESSES:
        merges += 1
        buckets = enumerate_buckets(DIMS)[:20]
        held = {(H200, bucket): entry(1 if merges % 2 else 2) for bucket in buckets}
        merge(root, {"lib.kernel_000": held}, [])
    seconds = time.perf_counter() - begin
    seen = [outcomes.get() for _ in readers]
    for reader in readers:
        reader.join()
    return {
        "what": "readers beside a merge",
        "processes": PROCESSES,
        "lookups": sum(sum(counts.values()) for counts, _ in seen),
        "answers": {k: sum(counts.get(k, 0) for counts, _ in seen) for k in ("1", "2", "other")},
        "errors": sum(errors for _, errors in seen),
        "merges": merges,
        "seconds": seconds,
    }


def _read(root: Path, count: int, gate: Any, outcomes: Any) -> None:
    lfbo_aot.use_database(root)
    counts: dict[str, int] = {}
    errors = 0
    gate.wait()
    for at in range(count):
        state.refresh()
        try:
            shape = {"m": 1 + at % 2, "n": 256, "dtype": "bfloat16"}
            found = lfbo_aot.resolve("lib.kernel_000", shape, str(H200))
            warps = str(found.config.get("num_warps"))
            key = warps if found.status == "exact" and warps in ("1", "2") else "other"
            counts[key] = counts.get(key, 0) + 1
        except Exception:  # noqa: BLE001 - what is counted
            errors += 1
    outcomes.put((counts, errors))


def calls() -> list[Record]:
    """The host time of kernels' calls, on a GPU."""
    try:
        import torch
    except ImportError as error:
        return [{"what": "calls", "skipped": str(error)}]
    if not torch.cuda.is_available():
        return [{"what": "calls", "skipped": "no GPU"}]
    from benchmarks.lookup_calls import host_times

    return [{"what": "call", **record} for record in host_times()]


def figures(records: list[Record]) -> Record:
    """The figures that the records give."""
    by = {record["what"]: record for record in records}
    found: Record = {}
    if "get_config by name" in by:
        ns, base = by["get_config by name"]["ns"], by["prepared key in a dict"]["ns"]
        found["by_name_ns"] = round(ns["min"], 1)
        found["by_name_over_dict"] = round(ns["min"] / base["min"], 2)
    if "ns" in by.get("get_config from tensors", {}):
        ns, base = by["get_config from tensors"]["ns"], by["reading the tensors' sizes"]["ns"]
        found["live_beyond_sizes_us"] = round((ns["min"] - base["min"]) / 1e3, 3)
    timed = [r["ms"] for r in records if r["what"] == "first look-up, timed"]
    if timed:
        found["first_lookup_ms"] = round(statistics.median(timed), 3)
        found["first_lookup_ms_min"] = round(min(timed), 3)
        found["first_lookup_kib"] = round(by["first look-up, traced"]["kib"], 1)
    if "readers beside a merge" in by:
        beside = by["readers beside a merge"]
        found["beside_a_merge"] = {
            name: beside[name] for name in ("lookups", "merges", "errors", "answers")
        }
    ours = [record for record in records if record["what"] == "call"]
    if ours:
        from benchmarks.lookup_calls import figures as call_figures

        found["calls"] = call_figures(ours)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--record", action="store_true", help=f"append to {RESULTS}")
    parser.add_argument("--without", nargs="*", default=[], choices=["calls", "merge", "first"])
    args = parser.parse_args()
    import logging

    logging.disable()
    with tempfile.TemporaryDirectory() as folder:
        records = warm_by_name() + warm_live()
        if "first" not in args.without:
            write_database(Path(folder) / "many", KERNELS)
            gc.collect()
            records += first_lookups(Path(folder) / "many")
        if "merge" not in args.without:
            records.append(beside_a_merge(Path(folder) / "merged"))
    if "calls" not in args.without:
        records += calls()
    found = figures(records)
    host = {
        "day": dt.datetime.now(dt.timezone.utc).date().isoformat(),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
    }
    if args.record:
        with RESULTS.open("a") as file:
            for record in [{"what": "run", **host, "figures": found}, *records]:
                file.write(json.dumps(record) + "\n")
    if args.json:
        print(json.dumps({**host, **found}))
    else:
        for name, value in found.items():
            print(f"{name:24} {value}")


if __name__ == "__main__":
    main()
