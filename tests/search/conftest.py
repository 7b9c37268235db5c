from __future__ import annotations

import importlib.util
import math
import sys
from pathlib import Path

import pytest

from lfbo_aot.search import Choice
from lfbo_aot.search import Condition
from lfbo_aot.search import Integer
from lfbo_aot.search import ListOf
from lfbo_aot.search import Permutation
from lfbo_aot.search import PowerOfTwo
from lfbo_aot.search import Space
from lfbo_aot.search import Trial

ROOT = Path(__file__).resolve().parents[2]


def tile_space() -> Space:
    """A space like a kernel's: every kind of tunable, a condition, a seed."""
    tunables = (
        PowerOfTwo("block_m", 1, 1024, 16, "block"),
        PowerOfTwo("block_n", 8, 2048, 64, "block"),
        PowerOfTwo("warps", 1, 32, 4, "warps"),
        Integer("stages", 1, 8, 1),
        Choice("pid", ("flat", "persistent", "interleaved"), "flat"),
        PowerOfTwo("multiplier", 1, 64, 1),
        Choice("flatten", (None, False, True), None),
        ListOf("indexing", Choice("", ("pointer", "descriptor"), "pointer"), 5),
        Permutation("order", 3),
    )
    default = (16, 64, 4, 1, "flat", 1, None, ("pointer",) * 5, (0, 1, 2))
    seed = (32, 128, 8, 2, "persistent", 4, True, ("descriptor",) * 5, (1, 0, 2))
    conditions = (Condition("multiplier", "pid", ("persistent", "interleaved")),)
    return Space(tunables, default, conditions, (seed,))


def tile_latency_us(point) -> float:
    """A smooth bowl with interactions; its minimum is 10."""
    block_m, block_n, warps, stages, pid, multiplier, flatten, indexing, order = point
    tile = math.log2(block_m * block_n)
    cost = 0.30 * abs(tile - 13) + 0.15 * abs(math.log2(block_n) - 8)
    cost += 0.25 * abs(math.log2(warps) - (tile - 10)) + 0.08 * abs(stages - 4)
    cost += 0.0 if pid == "persistent" else 0.2
    cost += 0.03 * abs(math.log2(multiplier) - 3) if pid != "flat" else 0.09
    cost += 0.0 if flatten is True else 0.05
    cost += 0.04 * indexing.count("pointer") + 0.05 * (order[0] != 1)
    return 10.0 * math.exp(cost)


def run_tile(point) -> Trial:
    """The bowl's trial: tiles beyond 2**18 elements don't compile."""
    if point[0] * point[1] > 1 << 18:
        return Trial(point, "compile_error")
    return Trial(point, "ok", tile_latency_us(point))


@pytest.fixture
def space():
    return tile_space()


@pytest.fixture
def run():
    return run_tile


@pytest.fixture(scope="session")
def recorded():
    """benchmarks/recorded.py: the repository isn't a package, so by its path."""
    path = ROOT / "benchmarks" / "recorded.py"
    spec = importlib.util.spec_from_file_location("recorded_trials_of_benchmarks", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
