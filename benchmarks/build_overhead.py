"""What the build step adds to a wheel build in which every key is checked in.

    python benchmarks/build_overhead.py [--rounds N] [--out FILE]

Run it with the Python of an environment that holds lfbo-aot, setuptools and pip, with or without
torch and Helion. It builds copies of examples/downstream without isolation, in turn: without the
build step (plain setuptools, the same files); with it, as the first build of a checkout; with it
again; and as the first build where the declarations don't say how they are known to hold, so that, with
torch, the kernels must be imported. Each round is one JSON line; the summary is the medians of the
differences to plain setuptools.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "examples" / "downstream"
PLAIN, FIRST, AGAIN = "plain setuptools", "first build", "next build"
ASKED = "first build, kernels imported"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, help="file that the raw rounds are appended to")
    args = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        plain, tuned, asked = projects(Path(folder))
        build(plain, Path(folder))  # so that none of those timed finds cold files
        for number in range(args.rounds):
            shutil.rmtree(Path(folder, "state"), ignore_errors=True)
            row = {
                PLAIN: build(plain, Path(folder)),
                FIRST: build(tuned, Path(folder)),
                AGAIN: build(tuned, Path(folder)),
                ASKED: build(asked, Path(folder)),
            }
            rows.append(row)
            print(f"round {number + 1}: " + ", ".join(f"{k} {v:.2f} s" for k, v in row.items()))
    if args.out is not None:
        with args.out.open("a") as out:
            for row in rows:
                where = {"python": platform.python_version(), "cores": os.cpu_count()}
                out.write(json.dumps({**where, "torch": has_torch(), "seconds": row}) + "\n")
    for kind in (FIRST, AGAIN, ASKED):
        extra = statistics.median(row[kind] - row[PLAIN] for row in rows)
        print(f"{kind}: {extra:.2f} s beyond plain setuptools (median of {len(rows)})")
    return 0


def projects(folder: Path) -> tuple[Path, Path, Path]:
    """The example as plain setuptools ships it, its database as package data; as it is; and asked."""
    ignored = shutil.ignore_patterns("__pycache__", "build", "*.egg-info", "dist", "wheels")
    tuned = Path(shutil.copytree(EXAMPLE, folder / "tuned-project", ignore=ignored))
    plain = Path(shutil.copytree(EXAMPLE, folder / "plain-project", ignore=ignored))
    shutil.move(plain / "tuned", plain / "mykern" / "tuned")
    table = plain / "pyproject.toml"
    text, _, _ = table.read_text().partition("[tool.lfbo_aot]")
    text = text.replace("lfbo_aot.build_meta", "setuptools.build_meta")
    table.write_text(text + '[tool.setuptools.package-data]\n"mykern" = ["tuned/**/*"]\n')
    asked = Path(shutil.copytree(tuned, folder / "asked-project"))
    for declaration in (asked / "tuned" / "kernels").iterdir():
        page = json.loads(declaration.read_text())
        del page["enumeration"]
        declaration.write_text(json.dumps(page, indent=2) + "\n")
    return plain, tuned, asked


def build(project: Path, folder: Path) -> float:
    """Seconds that one `pip wheel` of a clean checkout takes."""
    for left in (project / "build", folder / "out", *project.glob("*.egg-info")):
        shutil.rmtree(left, ignore_errors=True)
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation"]
    variables = {"LFBO_AOT_ARCHS": "cpu-interpreter", "LFBO_AOT_STATE": str(folder / "state")}
    began = time.perf_counter()
    subprocess.run(
        [*command, "--quiet", "--wheel-dir", str(folder / "out"), str(project)],
        env={**os.environ, **variables},
        stderr=subprocess.DEVNULL,
        check=True,
    )
    return time.perf_counter() - began


def has_torch() -> bool:
    import importlib.util

    return importlib.util.find_spec("torch") is not None


if __name__ == "__main__":
    sys.exit(main())
