"""Helion's own tuner on one case, in a process of its own; or one that stops at once.

Run as `python -m benchmarks.compare.helion_child CASE OUT ...`; OUT gets a JSON object. What Helion
is to do is told by its environment variables, as any user would; see `settings`.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

from benchmarks.compare.cases import CASES

NAMES = {"helion": "LFBOTreeSearch", "pattern": "PatternSearch"}
TRACE = "tune.trace.jsonl"


def settings(side: str, folder: Path) -> dict[str, str]:
    """Helion's environment variables for one side of the comparison; its logs go to `folder`.

    Everything else is left as Helion has it. The trace, of one line a trial, is flushed as it
    grows, so it is whole where the process has to be killed.
    """
    return {
        "HELION_AUTOTUNER": NAMES[side],
        "HELION_AUTOTUNE_EFFORT": "full",
        "HELION_AUTOTUNE_LOG": str(folder / "tune"),
        "HELION_AUTOTUNE_LOG_DETAILS": "1",
        "HELION_AUTOTUNE_PROGRESS_BAR": "0",
        "HELION_SKIP_CACHE": "1",
    }


def make_kernel(spec: Any) -> Any:
    """The kernel of a case as a plain `helion.Kernel`, with the settings that ours has."""
    import helion

    from lfbo_aot.runtime.kernel import generation_settings

    made = helion.kernel()(spec.kernel.fn)
    if generation_settings(made.settings) != dict(spec.settings):
        msg = (
            f"{spec.kernel_id}: Helion's defaults differ from the settings that it is declared with"
        )
        raise SystemExit(msg)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case", choices=CASES)
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", choices=("gpu", "interpreter"), default="gpu")
    parser.add_argument("--control", action="store_true", help="write the default config, and stop")
    parser.add_argument("--budget-s", type=float, help="seconds, from the start of the process")
    parser.add_argument(
        "--started", type=float, default=time.time(), help="that start's epoch time"
    )
    args = parser.parse_args()
    if args.device == "interpreter":
        from lfbo_aot.adapters import interpreter

        interpreter.prepare()
    case = CASES[args.case]

    from benchmarks.compare import compared
    from lfbo_aot.adapters import helion as seam

    versions = seam.versions()  # imports Helion
    imported = time.time()
    spec = getattr(compared, case.name).lfbo_aot_spec
    if args.budget_s is not None:
        left_s = args.budget_s - (imported - args.started)
        os.environ["HELION_AUTOTUNE_BUDGET_SECONDS"] = str(max(1, int(left_s)))
    kernel = make_kernel(spec)
    made = spec.make_inputs(case.at(args.device), "cuda" if args.device == "gpu" else "cpu")
    inputs = kernel.normalize_args(*made)
    bound = kernel.bind(inputs)
    default = seam.default_config(bound)
    begun = time.time()
    found = {
        "default": default,
        "versions": versions,
        "device": device_name(args.device),
        "imports_s": round(imported - args.started, 2),
        "start_s": round(begun - args.started, 2),
        "seed": None if args.control else kernel.settings.autotune_random_seed,
    }
    args.out.write_text(json.dumps(found))  # for a process that is killed before its end
    found["config"] = default if args.control else bound.autotune(inputs).config
    found["tuner_s"] = round(time.time() - begun, 2)
    args.out.write_text(json.dumps(found))


def device_name(kind: str) -> str:
    """The product name of the device."""
    import torch

    return torch.cuda.get_device_name() if kind == "gpu" else "Triton interpreter"


if __name__ == "__main__":
    main()
