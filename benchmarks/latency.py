"""Default, tuned and PyTorch latency of every entry of a database, on the GPU here, in one run.

The three are measured in turn, round by round, each with a cold L2; ratios are medians of the
ratios within a round. Raw samples go to a JSON Lines file, a table to the standard output.

    python benchmarks/latency.py --database tuned --record benchmarks/results/latency_h200.jsonl
    python benchmarks/latency.py --summary benchmarks/results/latency_h200.jsonl
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import TYPE_CHECKING
from typing import Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Iterable

    from lfbo_aot.registry.spec import KernelSpec
    from lfbo_aot.tuning.workers.gpu import EventClock


def pytorch(kernel: str) -> Callable[..., Any] | None:
    """What a PyTorch user would call instead of the kernel."""
    import torch
    from torch.nn import functional

    return {
        "softmax": lambda x: torch.softmax(x, -1),
        "layer_norm": lambda x, w, b, eps: functional.layer_norm(x, x.shape[-1:], w, b, eps),
        "rms_norm": lambda x, w, eps: functional.rms_norm(x, x.shape[-1:], w, eps),
        "matmul": torch.matmul,
        "vector_add": torch.add,
    }.get(kernel)


def measure(spec: KernelSpec, bucket: Any, entry: Any, clock: EventClock, rounds: int) -> dict:
    """The interleaved samples of one entry, in microseconds."""
    from lfbo_aot.adapters import helion as seam
    from lfbo_aot.tuning.bench import Bench

    bench = Bench(spec, bucket.point, "cuda:0", clock)
    bound = seam.bind(spec.kernel, bench.args)
    default = seam.generate(bound, seam.default_config(bound))[0]
    bench.set_reference(lambda: default)
    data = entry.to_json()
    calls = {
        "default": default,
        "tuned": seam.generate(bound, data["config"])[0],
    }
    for name, call in calls.items():
        wrong, _ = bench.check(call)
        if wrong:
            msg = f"{spec.kernel_id} {bucket.key}: the {name} config's result is wrong: {wrong}"
            raise SystemExit(msg)
    library = pytorch(spec.name)
    if library is not None:
        calls["pytorch"] = library
    for call in calls.values():
        bench.time(call, 3)
    samples: dict[str, list[float]] = {name: [] for name in calls}
    names = list(calls)
    for _ in range(rounds):
        for name in names:
            samples[name] += [round(s, 3) for s in bench.time(calls[name], 1)]
        names = names[1:] + names[:1]
    return {
        "kernel": spec.kernel_id,
        "bucket": bucket.key,
        "shape": dict(bucket.point),
        "default": data["default"],
        "samples_us": samples,
    }


def record(database: Path, path: Path, rounds: int) -> None:
    import torch

    from lfbo_aot.adapters import helion as seam
    from lfbo_aot.database.database import Database
    from lfbo_aot.registry.discovery import load_kernels
    from lfbo_aot.runtime.hardware import current_device
    from lfbo_aot.tuning.workers.gpu import EventClock

    device = current_device()
    if device is None:
        msg = "no GPU here"
        raise SystemExit(msg)
    clock = EventClock("cuda:0")
    found = Database(database)
    with path.open("w") as file:
        head = {"device": str(device), "versions": seam.versions(), "policy": clock.policy}
        file.write(json.dumps({"head": head, "rounds": rounds}) + "\n")
        for spec in load_kernels():
            shard = found.shard(spec.kernel_id, device.arch)
            if shard is None:
                continue
            for bucket, key in shard.boxes(device.name):
                row = measure(spec, bucket, shard.entry(key), clock, rounds)
                file.write(json.dumps(row) + "\n")
                file.flush()
                torch.cuda.empty_cache()


def summary(lines: Iterable[str]) -> list[dict[str, Any]]:
    """One row an entry: medians in microseconds, and how much faster tuned is, paired."""
    rows = []
    for line in lines:
        row = json.loads(line)
        if "head" in row:
            continue
        samples = row["samples_us"]
        tuned = samples["tuned"]
        out = {key: row[key] for key in ("kernel", "bucket", "shape", "default")}
        out |= {f"{name}_us": round(statistics.median(s), 2) for name, s in samples.items()}
        for name in ("default", "pytorch"):
            if name in samples:
                ratios = [a / b for a, b in zip(samples[name], tuned, strict=True)]
                out[f"{name}_over_tuned"] = round(statistics.median(ratios), 3)
        rows.append(out)
    return rows


def table(rows: Iterable[dict[str, Any]]) -> str:
    """The rows as a Markdown table."""
    lines = [
        "| kernel | shape (m x n [x k]) | default us | tuned us | PyTorch us | over default |"
        " over PyTorch |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in rows:
        shape = " x ".join(str(v) for v in row["shape"].values() if isinstance(v, int))
        gain = f"{row['default_over_tuned']:.2f}x" + (" (the default)" if row["default"] else "")
        library = row.get("pytorch_us")
        lines.append(
            f"| {row['kernel'].rpartition('.')[2]} | {shape} | {row['default_us']:.1f} "
            f"| {row['tuned_us']:.1f} | {library:.1f} | {gain} "
            f"| {row['pytorch_over_tuned']:.2f}x |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--database", type=Path, default=Path("tuned"))
    parser.add_argument("--record", type=Path, help="measure, and write raw samples here")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--summary", type=Path, help="recompute from raw samples")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    path = args.summary or args.record
    if path is None:
        parser.error("give --record or --summary")
    if args.record:
        record(args.database, args.record, args.rounds)
    rows = summary(path.read_text().splitlines())
    print(json.dumps(rows, indent=1) if args.json else table(rows))


if __name__ == "__main__":
    main()
