"""The figure of the curves: how far the best is above the optimum, over trials."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from typing import Any

import matplotlib as mpl
import numpy as np

from benchmarks.efficiency import figures

if TYPE_CHECKING:
    from collections.abc import Iterable

PATH = Path(__file__).resolve().parents[2] / "docs" / "figures" / "search_efficiency.svg"
SHOWN = {
    "lfbo": ("lfbo-aot, LFBO Pattern Search", "#d62728", "-"),
    "lfbo:published": ("lfbo-aot, as published", "#d62728", ":"),
    "pattern": ("lfbo-aot, Pattern Search", "#7f7f7f", "-"),
    "random": ("random", "#bcbd22", "-"),
    "helion:LFBOTreeSearch": ("Helion LFBOTreeSearch", "#1f77b4", "-"),
    "helion:LFBOPatternSearch": ("Helion LFBOPatternSearch", "#1f77b4", "--"),
    "helion:PatternSearch": ("Helion PatternSearch", "#7f7f7f", "--"),
}
MOST_TRIALS = 300
PROBLEMS_A_KIND = 5
_CEILING = 10.0  # times the optimum, where nothing has worked yet


def draw(records: Iterable[dict[str, Any]], path: Path = PATH) -> None:
    """Write the figure: for each kind of problem, means over seeds and problems."""
    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "lfbo-aot"  # the same bytes from the same records
    from matplotlib import pyplot as plt

    found = figures.by_contender(records)
    kinds = ("pool", "boosting", "gaussian")
    shape, axes = plt.subplots(1, len(kinds), figsize=(12, 3.8), sharey=True)
    trials = np.arange(1, MOST_TRIALS + 1)
    for kind, ax in zip(kinds, axes, strict=True):
        for name, (label, colour, style) in SHOWN.items():
            runs = {p: r for p, r in found.get(name, {}).items() if p.endswith(kind)}
            if len(runs) == PROBLEMS_A_KIND:  # means over other problems don't compare
                ax.plot(trials, _curve(runs), style, color=colour, label=label, linewidth=1.4)
        ax.set_title({"pool": "recorded configs", "gaussian": "Gaussian processes"}.get(kind, kind))
        ax.set_xlabel("trials")
        ax.set_yscale("log")
        ax.grid(alpha=0.3)
    axes[0].set_ylabel("best latency / optimum")
    axes[0].set_yticks([1, 1.1, 1.3, 2, 3, 5], ["1", "1.1", "1.3", "2", "3", "5"])
    axes[0].minorticks_off()
    axes[0].set_ylim(1.0, 6.0)
    axes[-1].legend(fontsize=7, loc="upper right")
    shape.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    shape.savefig(path, metadata={"Date": None})


def _curve(runs: figures.Runs) -> np.ndarray[Any, np.dtype[np.float64]]:
    logs = []
    for by_seed in runs.values():
        for record in by_seed.values():
            row = np.full(MOST_TRIALS, _CEILING)
            for number, latency in record["curve"]:
                row[number - 1 :] = min(latency / record["optimum_us"], _CEILING)
            logs.append(np.log(row))
    return np.exp(np.mean(logs, axis=0))
