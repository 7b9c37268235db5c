from __future__ import annotations

import importlib.util
import inspect
import math
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from lfbo_aot.registry.devices import INTERPRETER
from lfbo_aot.registry.dims import Exact
from lfbo_aot.registry.dims import Range
from lfbo_aot.registry.spec import make_spec
from lfbo_aot.search import Choice
from lfbo_aot.search import Integer
from lfbo_aot.search import PowerOfTwo
from lfbo_aot.search import Space
from lfbo_aot.tuning.devices.device import Outcome
from lfbo_aot.tuning.devices.replay import Recording

SPACE = Space(
    (
        PowerOfTwo("block", 1, 256, 16, "block"),
        PowerOfTwo("warps", 1, 16, 4, "warps"),
        Integer("stages", 1, 4, 1),
        Choice("order", ("a", "b"), "a"),
    ),
    default=(16, 4, 1, "a"),
)


def config_of(point):
    """As a codec gives it: `order` changes nothing where there is one stage, so configs repeat."""
    block, warps, stages, order = point
    return {"block": block, "warps": warps, "stages": stages, "order": order if stages > 1 else "a"}


def latency_us(point):
    """A bowl whose minimum, 10, lies at block=64, warps=8, stages=3, order=b."""
    block, warps, stages, order = point
    cost = 0.2 * abs(math.log2(block) - 6) + 0.3 * abs(math.log2(warps) - 3)
    cost += 0.1 * abs(stages - 3) + (0.2 if order == "a" or stages == 1 else 0.0)
    return 10.0 * math.exp(cost)


def outcome_of(point):
    """Its outcome: of each status that a device reports, somewhere."""
    block, warps, stages, _ = point
    if block == 256 and warps == 1:
        return Outcome(0, "compile_timeout", config_of(point), compile_s=5.0, error="killed")
    if block == 256:
        return Outcome(0, "compile_error", config_of(point), compile_s=0.5, error="shared memory")
    if warps == 16 and stages == 4:
        return Outcome(0, "wrong_result", config_of(point), compile_s=0.5, error="result 0: 3 of 4")
    return Outcome(
        0,
        "ok",
        config_of(point),
        latency_us=round(latency_us(point), 4),
        launches=24,
        compile_s=0.25,
        time_s=0.25,
        resources={"shared": 64 * block, "regs": 32, "spills": 0, "threads": 32 * warps},
    )


def record(space=SPACE, outcome=outcome_of):
    """The recording of every point of the space."""
    found = {point: outcome(point) for point in space.points()}
    return Recording(
        space,
        config_of(space.default),
        found,
        layout=[{"order": [0, 1], "contiguous": True}],
        policy={"l2": "cold", "clock": "recorded"},
        versions={"helion": "1.5.0", "triton": "3.6.0"},
    )


def declare(kernel_id="pkg.norm", **changes):
    """A spec that needs no torch."""
    declared = {
        "dims": {"m": Range(1, 4096, edges=[64]), "dtype": Exact("float32", "bfloat16")},
        "shape": lambda x: {"m": x, "dtype": "float32"},
        "small": [{"m": 4, "dtype": "float32"}],
        **changes,
    }
    return make_spec(
        kernel=object(),
        kernel_id=kernel_id,
        signature=inspect.signature(lambda x: x),
        place=("pkg.ops", "/nowhere/pkg/ops.py", 7),
        source="sha256:50ce",
        settings={"static_shapes": True, "index_dtype": None},
        **declared,
    )


@pytest.fixture(autouse=True)
def _quick_disk(monkeypatch):
    """Hundreds of journals are written here; none has to survive the machine."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture(scope="session")
def space():
    return SPACE


@pytest.fixture(scope="session")
def recording():
    return record()


@pytest.fixture(scope="session")
def make_recording():
    return record


@pytest.fixture(scope="session")
def make_spec_of():
    return declare


@pytest.fixture(scope="session")
def bowl():
    """(outcome, config) of a point."""
    return outcome_of, config_of


@pytest.fixture
def spec():
    return declare()


@pytest.fixture(scope="session")
def changed():
    """A spec with other fields."""
    return replace


@pytest.fixture(scope="session")
def interpreter_id():
    return INTERPRETER


@pytest.fixture(scope="session")
def simulated():
    """The module beside this file: a pipeline with a simulated clock."""
    path = Path(__file__).with_name("simulated.py")
    spec = importlib.util.spec_from_file_location("simulated_pipeline_of_tests", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]
