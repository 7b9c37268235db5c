"""Our tuner against Helion's own on one GPU: wall-clock, and latency of what each of them found.

    python benchmarks/compare_helion.py --run --out DIR [--kernel NAME ...] [--side SIDE ...]
        [--limit-s 540] [--slots N]
    python benchmarks/compare_helion.py --summary --out DIR [--json | --markdown]

Each tuner runs in a fresh process with empty caches, imports counted, from its start to its exit with
the config written: ours by `lfbo-aot tune` with nothing but the shape, Helion's at effort full with a
budget of eight minutes. Then all finals and the default are timed together, in shuffled rounds.

`--run` does what DIR's records lack, and begins nothing that can't end within `--limit-s`: run it
again to go on. Raw records are lines of DIR/records.jsonl, the tuners' own logs lie in DIR/raw.
`--side` is one of
    helion, pattern   Helion's LFBOTreeSearch (its default) and PatternSearch (for two kernels)
    ours, control     our tuner, and one that stops at once with Helion's default config
    measure           the finals of a kernel, timed together
    sweep             eight buckets in one command, and three of them alone
    flips             the same eight once more, with another seed
`--slots N` uses N GPUs, a job each, each kept to its share of the cores. `--device interpreter` tries
ours, control and measure on the CPU at small shapes: the times then mean nothing.
"""

from __future__ import annotations

import argparse
import functools
import json
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.compare import jobs
from benchmarks.compare import measuring
from benchmarks.compare import processes
from benchmarks.compare import records
from benchmarks.compare.runner import Runner
from benchmarks.compare.runner import make_slots
from benchmarks.compare.summary import summarize
from benchmarks.compare.table import markdown
from benchmarks.compare.tuners import Setup

RESULTS = Path(__file__).parent / "results" / "compare_helion"
ON_CPU = ("ours", "control", "measure")


def carry_out(args: argparse.Namespace) -> int:
    """Do what is missing; 0 where nothing is missing afterwards."""
    began = time.monotonic()
    on_cpu = args.device == "interpreter"
    sides = args.side or (ON_CPU if on_cpu else jobs.SIDES)
    if on_cpu and not set(sides) <= set(ON_CPU):
        msg = f"--device interpreter can try {', '.join(ON_CPU)}; not {', '.join(sides)}"
        raise SystemExit(msg)
    setup = Setup(args.out, args.device, args.budget_s, args.rounds, args.trials)
    kernels = args.kernel or jobs.names()
    wanted = jobs.wanted(kernels, set(sides), named=bool(args.kernel))
    if not on_cpu:
        print(measuring.warm_up(120.0), flush=True)
    runner = Runner(
        args.out,
        lambda job, slot, limit_s, held: measuring.carry_out(job, setup, slot, limit_s, held),
        limit_s=args.limit_s - (time.monotonic() - began),
        budget_s=args.budget_s,
        again=args.again,
        say=functools.partial(print, flush=True),
    )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        missing = runner.run(wanted, make_slots(args.slots))
    finally:
        processes.end_all()
    print("missing: " + (", ".join(map(str, missing)) or "nothing"))
    return int(bool(missing))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--run", action="store_true", help="do what DIR's records lack")
    what.add_argument("--summary", action="store_true", help="recompute from DIR's records")
    parser.add_argument("--out", type=Path, default=RESULTS, metavar="DIR")
    parser.add_argument("--kernel", action="append", choices=jobs.names())
    parser.add_argument("--side", action="append", choices=jobs.SIDES)
    parser.add_argument("--limit-s", type=float, default=540.0, help="of this command; default 540")
    parser.add_argument("--budget-s", type=float, default=480.0, help="of Helion; default 480")
    parser.add_argument("--rounds", type=int, default=200, help="of a measurement; default 200")
    parser.add_argument("--slots", type=int, default=1, help="GPUs, a job each; default 1")
    parser.add_argument("--trials", type=int, help="of our tuner; default: its own end")
    parser.add_argument("--device", choices=("gpu", "interpreter"), default="gpu")
    parser.add_argument("--again", action="store_true", help="do what has a result already, too")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--markdown", action="store_true", help="the default of --summary")
    args = parser.parse_args()
    args.out = args.out.absolute()
    if args.run:
        return carry_out(args)
    found = summarize(records.read(args.out))
    print(json.dumps(found, indent=1) if args.json else markdown(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
