"""How many trials a search needs, against its baselines, on problems made of recorded H200 trials.

    python benchmarks/search_efficiency.py --run --contenders main --seeds 20 --workers 2
    python benchmarks/search_efficiency.py --summary [--json] [--problems gaussian]
    python benchmarks/search_efficiency.py --models      # how well the fitted truths foretell
    python benchmarks/search_efficiency.py --figure
    python benchmarks/search_efficiency.py --stopping [--run --seeds 2 --first-seed 4]
    python benchmarks/search_efficiency.py --thinking

Runs are added to JSON Lines files, a line for each (contender, problem, seed); what is there already
isn't run again, so a run may be stopped at any time. docs/search.md says what was found.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy is loaded
os.environ.setdefault("LOKY_MAX_CPU_COUNT", "1")  # Helion's forest asks for all cores
os.environ.setdefault("PYTHONWARNINGS", "ignore:Loky-backed:UserWarning")

import argparse
import functools
import json
import multiprocessing
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.efficiency import contenders
from benchmarks.efficiency import figures
from benchmarks.efficiency import neighbours
from benchmarks.efficiency import problems
from benchmarks.efficiency import stopping

RESULTS = Path(__file__).parent / "results" / "search_efficiency"
LIMIT = 500
HELION = "helion:"
MAIN = (
    "lfbo",
    "pattern",
    "random",
    "helion:LFBOTreeSearch",
    "helion:LFBOPatternSearch",
    "helion:PatternSearch",
    "helion:DifferentialEvolution",
)
Task = tuple[str, str, int]


@functools.cache
def _problem(name: str) -> problems.Problem:
    return problems.problem(name)


def run_one(task: Task) -> dict[str, Any]:
    """The record of one run."""
    contender, name, seed = task
    begin = time.process_time()
    if contender.startswith(HELION):
        from benchmarks.efficiency import helion_contenders

        run = helion_contenders.theirs
    else:
        run = contenders.ours
    record = run(contender, _problem(name), seed, LIMIT)
    cpu_s = round(time.process_time() - begin, 2)
    return {"contender": contender, "problem": name, "seed": seed, **record, "cpu_s": cpu_s}


def file_of(contender: str, folder: Path) -> Path:
    """Where a contender's records lie."""
    return folder / f"{contender.replace(':', '-').replace('=', '-')}.jsonl"


def read(folder: Path) -> list[dict[str, Any]]:
    """All records."""
    lines = (line for path in sorted(folder.glob("*.jsonl")) for line in path.open())
    return [json.loads(line) for line in lines]


def tasks(names: list[str], chosen: list[str], seeds: range, folder: Path) -> list[Task]:
    """What is to be run and isn't there, seed by seed, so that records stay comparable."""
    there = {(r["contender"], r["problem"], r["seed"]) for r in read(folder)}
    wanted = ((c, p, s) for s in seeds for p in chosen for c in names)
    return [task for task in wanted if task not in there]


def run(given: argparse.Namespace) -> None:
    given.results.mkdir(parents=True, exist_ok=True)
    names = [n for c in given.contenders.split(",") for n in (MAIN if c == "main" else (c,))]
    chosen = [n for n in problems.names() if not given.problems or given.problems in n]
    todo = tasks(
        names, chosen, range(given.first_seed, given.first_seed + given.seeds), given.results
    )
    print(f"{len(todo)} runs", flush=True)
    with multiprocessing.get_context("spawn").Pool(given.workers) as pool:
        for record in pool.imap_unordered(run_one, todo):
            with file_of(record["contender"], given.results).open("a") as file:
                file.write(json.dumps(record, separators=(",", ":")) + "\n")


def show(table: dict[str, Any]) -> None:
    """The summary as a table of text: ratios with intervals, gaps to the optimum in per cent."""
    columns = {
        "trials/pattern": "trials_ratio_vs_pattern",
        "latency/pattern@200": "latency_ratio_vs_pattern_at_200",
        "trials/tree": "trials_ratio_vs_helion_lfbo_tree",
        "trials/default": "trials_ratio_vs_default",
        "latency/default@200": "latency_ratio_vs_default_at_200",
    }
    heads = " ".join(f"{head:>20}" for head in columns)
    print(f"{'contender':30} {'runs':>5} {'there':>5} {heads}   gap % at 50, 100, 200, 300")
    for name, row in table.items():
        cells = []
        for key in columns.values():
            found = row[key]
            text = "-" if found is None else "{ratio:.3f} {low:.3f}..{high:.3f}".format(**found)
            cells.append(f"{text:>20}")
        gaps = " ".join(f"{100 * gap:6.1f}" for gap in row["gap_to_optimum"].values())
        print(f"{name:30} {row['runs']:5} {row['reached_share']:5.2f} {' '.join(cells)} {gaps}")


def models() -> dict[str, Any]:
    """The held-out quality of every fitted truth, by problem."""
    from benchmarks.efficiency.models import quality

    made = (_problem(name) for name in problems.names())
    found = {}
    for p in made:
        if p.kind != "pool":
            numbers = quality(p.kind, p.data)
            rounded = {
                k: v if v is None or isinstance(v, int) else round(v, 3) for k, v in numbers.items()
            }
            found[p.name] = {"optimum_us": round(p.optimum_us, 2), **rounded}
    return found


def run_to_the_end(given: argparse.Namespace) -> None:
    """Record the searches that `stopping` looks at: alone, and with peers where there are any."""
    path = given.results / "stopping" / "runs.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    known = read(path.parent)
    there = {(r["problem"], r["seed"], r["peers"]) for r in known}
    for seed in range(given.first_seed, given.first_seed + given.seeds):
        for name in problems.names():
            for with_peers in (False, True):
                if (given.problems or "") not in name or (name, seed, with_peers) in there:
                    continue
                if with_peers and not neighbours.others(name):
                    continue
                record = stopping.run(name, seed, with_peers=with_peers)
                with path.open("a") as file:
                    file.write(json.dumps(record, separators=(",", ":")) + "\n")


def show_stopping(given: argparse.Namespace) -> None:
    """Trials and regret for each setting of `agree`."""
    records = read(given.results / "stopping")
    rows = stopping.table(records)
    worth = stopping.peers_worth(records)
    if given.json:
        print(json.dumps({"stopping": rows, "trials_ratio_of_peers": worth}, indent=1))
        return
    for row in rows:
        low, high = row["trials_quartiles"]
        print(
            f"{'peers' if row['peers'] else 'alone'} {row['kind']:9} agree={row['agree']!s:5}"
            f" {row['runs']:3} runs {row['trials']:6.1f} trials ({low:.0f} to {high:.0f})"
            f" regret {row['regret']:7.2%} 90 %: {row['regret_90']:7.2%}"
            f" worst {row['regret_worst']:7.2%}"
        )
    print("trials to within 3 % with peers, over those without:", worth)


def think(given: argparse.Namespace) -> None:
    """Measure how long the search thinks, and write it down."""
    from benchmarks.efficiency import thinking

    path = given.results / "thinking.json"
    rows = list(thinking.figures())
    path.write_text(json.dumps(rows, indent=1) + "\n")
    print(json.dumps(rows, indent=1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", action="store_true")
    parser.add_argument("--contenders", default="main", help="names with commas between, or main")
    parser.add_argument("--problems", help="only those whose name holds this")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--summary", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--models", action="store_true", help="also writes models.json")
    parser.add_argument("--figure", action="store_true", help="writes docs/figures/")
    parser.add_argument("--stopping", action="store_true", help="when a search should end")
    parser.add_argument("--thinking", action="store_true", help="how long the search thinks")
    given = parser.parse_args()
    if given.thinking:
        think(given)
    if given.stopping:
        if given.run:
            run_to_the_end(given)
        show_stopping(given)
        return
    if given.run:
        run(given)
    if given.models:
        text = json.dumps(models(), indent=1) + "\n"
        (given.results / "models.json").write_text(text)
        print(text, end="")
    if given.figure:
        from benchmarks.efficiency.drawing import draw

        draw(read(given.results))
    if given.summary:
        records = [r for r in read(given.results) if (given.problems or "") in r["problem"]]
        table = figures.summary(records)
        if given.json:
            print(json.dumps(table, indent=1))
        else:
            show(table)


if __name__ == "__main__":
    main()
