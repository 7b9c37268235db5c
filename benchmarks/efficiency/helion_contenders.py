"""Helion's own searches, run on a problem through a `BenchmarkProvider` that replays.

Helion makes a kernel's search space when it is bound, and asks the device what it can do. Here there
is none, so in this process its questions are answered as an H200 does: tensor descriptors, host
descriptors and register limits yes, block pointers no, 65,536 registers a block. `generation` checks
that every fragment then equals the recorded one.

Compiler seeds are left out, as the recorded spaces have none and no contender gets any. Everything
else is Helion's: effort `full`, its population, its second measurements, its classifier.
"""

# ruff: noqa: SLF001 - Helion has no public way to answer for a device, or to stop a search

from __future__ import annotations

import functools
import json
import math
import random
from typing import TYPE_CHECKING
from typing import Any

import numpy as np
import torch
from helion import _compat
from helion import exc
from helion.autotuner import config_spec as helion_config_spec
from helion.autotuner.benchmark_provider import BenchmarkProvider
from helion.autotuner.benchmark_provider import BenchmarkResult
from helion.autotuner.differential_evolution import DifferentialEvolutionSearch
from helion.autotuner.effort_profile import get_effort_profile
from helion.autotuner.pattern_search import PatternSearch
from helion.autotuner.surrogate_pattern_search import LFBOPatternSearch
from helion.autotuner.surrogate_pattern_search import LFBOTreeSearch

import kernels
from benchmarks.efficiency import simulate
from benchmarks.recorded import space_records
from lfbo_aot.search import freeze
from lfbo_aot.search import thaw

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.efficiency.problems import Problem
    from lfbo_aot.search import Point

# Each with what is changed of its own defaults.
SEARCHES: dict[str, tuple[Any, dict[str, object]]] = {
    "helion:LFBOTreeSearch": (LFBOTreeSearch, {}),
    "helion:LFBOTreeSearch:start=15": (LFBOTreeSearch, {"initial_population": 15}),
    "helion:LFBOPatternSearch": (LFBOPatternSearch, {}),
    "helion:PatternSearch": (PatternSearch, {}),
    "helion:DifferentialEvolution": (DifferentialEvolutionSearch, {}),
}


class OverError(Exception):
    """The trials are used up."""


@functools.cache
def answer_as_h200() -> None:
    """Make Helion offer, in this process, the space that it offers on an H200."""
    _compat._supports_tensor_descriptor = lambda: True
    _compat._supports_host_tensor_descriptor = lambda: True
    _compat._supports_block_ptr = lambda: False
    _compat._supports_maxnreg = lambda: True
    helion_config_spec._regs_per_block = lambda: 65536  # type: ignore[attr-defined]


def _empty(*sizes: int) -> torch.Tensor:
    return torch.empty(sizes, dtype=torch.bfloat16)


def _arguments(kernel: str, shape: dict[str, Any]) -> tuple[Any, tuple[object, ...]]:
    if kernel == "softmax":
        return kernels.softmax, (_empty(shape["m"], shape["n"]),)
    if kernel == "layer_norm":
        n = shape["n"]
        return kernels.layer_norm, (_empty(shape["m"], n), _empty(n), _empty(n), 1e-5)
    m, n, k = shape["m"], shape["n"], shape["k"]
    return kernels.matmul, (_empty(m, k), _empty(k, n))


@functools.cache
def bound(pair: str) -> tuple[Any, tuple[object, ...]]:
    """The bound kernel of a recorded (kernel, shape), and its arguments."""
    answer_as_h200()
    record = space_records()[pair]
    kernel, arguments = _arguments(record["kernel"], record["shape"])
    made = type(kernel).bind(kernel, arguments)
    spec = made.config_spec
    spec.device, spec.target_device_capability = torch.device("cuda"), (9, 0)
    spec.compiler_seed_configs = []
    lows = [f["low"] for f in record["fragments"] if f["type"] == "BlockSizeFragment"]
    for block, low in zip(spec.block_sizes, lows, strict=False):
        block.min_size = low  # of a matmul's smallest tile Helion asks the device too
    found = [_described(fragment) for fragment in spec.create_config_generation().flat_spec]
    wanted = [_plain(fragment) for fragment in record["fragments"]]
    if found != wanted:
        msg = f"{pair}: Helion offers {found}, recorded was {wanted}"
        raise RuntimeError(msg)
    return made, arguments


_KEPT = ("type", "low", "high", "default_val", "choices", "length", "inner")


def _described(fragment: Any) -> dict[str, Any]:
    kind = type(fragment).__name__
    if kind == "ListOf":
        return {"type": kind, "length": fragment.length, "inner": _described(fragment.inner)}
    names = [name for name in _KEPT[1:5] if hasattr(fragment, name)]
    if kind == "PermutationFragment":
        names = ["length"]
    read = {name: getattr(fragment, name) for name in names}
    plain: dict[str, Any] = json.loads(json.dumps(read))
    return {"type": kind, **(plain if kind != "BooleanFragment" else {})}


def _plain(record: dict[str, Any]) -> dict[str, Any]:
    kept = {k: v for k, v in record.items() if k in _KEPT}
    return {**kept, "inner": _plain(kept["inner"])} if "inner" in kept else kept


class Compiled:
    """Stands for a compiled config where Helion holds one; it only knows its point."""

    def __init__(self, point: Point) -> None:
        self.point = point
        self.readings = 0

    def __call__(self, *_: object) -> None:
        msg = "a replayed config can't be run"
        raise RuntimeError(msg)


class Replay(BenchmarkProvider):  # type: ignore[misc]
    """Answers Helion's batches from a problem. Batches are compiled whole, then measured in turn."""

    mutated_arg_indices: Sequence[int] = ()

    def __init__(self, *, bench: simulate.Bench, generation: Any, **_: object) -> None:
        self._bench = bench
        self._generation = generation
        self._now = 0.0

    def setup(self) -> None:
        """Nothing to set up."""

    def cleanup(self) -> None:
        """Nothing to clean up."""

    def benchmark(
        self,
        configs: list[Any],
        *,
        desc: str = "",  # noqa: ARG002
        raise_if_no_viable_config: bool = True,  # noqa: ARG002
    ) -> list[BenchmarkResult]:
        """Readings of a batch; `OverError` once the trials are used up."""
        space = self._bench.problem.space
        points: list[Point | None] = []
        taken = set(self._bench.read)
        for config in configs:
            flat = self._generation.flatten(config)
            point = space.canonical(tuple(freeze(value) for value in flat))
            stand_in = point if point in taken else self._bench.stand_in(point, taken)
            points.append(stand_in)
            if stand_in is not None:
                taken.add(stand_in)
        fresh = [p for p in dict.fromkeys(points) if p is not None and p not in self._bench.read]
        self._now += simulate.batch_seconds(self._bench, fresh)
        return [self._one(config, p) for config, p in zip(configs, points, strict=True)]

    def _one(self, config: Any, point: Point | None) -> BenchmarkResult:
        if self._bench.over or point is None:
            raise OverError
        trial = self._bench.read.get(point)
        if trial is None:
            trial, seconds = self._bench.measure(point)
            self._now += seconds
            self._bench.record(trial, self._now)
        if self._bench.problem.kind == "pool":
            config = self._config(point) or config
        perf, status = math.inf, "error"
        if trial.latency_us is not None and trial.status == "ok":
            perf, status = trial.latency_us / 1000.0, "ok"
        return BenchmarkResult(config, Compiled(point), perf, status, trial.compile_s)

    def _config(self, point: Point) -> Any:
        try:
            return self._generation.canonicalize_flat([thaw(value) for value in point])[1]
        except exc.InvalidConfig:
            return None

    def benchmark_isolated(self, fns: list[Any], **_: object) -> list[float]:
        """Second readings, which Helion takes of those near the best: no trials, but time."""
        found = []
        for fn in fns:
            fn.readings += 1
            us = self._bench.again(fn.point, fn.readings)
            self._now += simulate.OVERHEAD_S + simulate.FULL_LAUNCHES * (
                us * 1e-6 + simulate.FLUSH_S
            )
            found.append(us / 1000.0)
        return found


def theirs(name: str, problem: Problem, seed: int, limit: int) -> dict[str, object]:
    """Run one of Helion's; the record, as `Bench.summary` gives it."""
    kernel, arguments = bound(problem.name.partition("/")[0])
    bench = simulate.Bench(problem, seed, limit)
    settings = kernel.settings
    settings.autotune_random_seed = seed
    settings.autotune_log_level = 0
    settings.autotune_progress_bar = False
    make, changed = SEARCHES[name]
    keywords = make.get_kwargs_from_profile(get_effort_profile("full"), settings)
    search = make(kernel, arguments, **{**keywords, **changed})
    search._benchmark_provider_cls = functools.partial(
        Replay, bench=bench, generation=search.config_gen
    )
    search.final_rebenchmark_best = lambda best: best  # the bench's ten finalists stand for it
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    torch.manual_seed(seed)
    try:
        search._prepare()
        search._autotune()
    except OverError:
        pass
    return bench.summary()
