"""Helion's own variables that touch the choice of a config: none bypasses what is stored."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
helion = pytest.importorskip("helion")
hl = pytest.importorskip("helion.language")

from helion.runtime.kernel import BoundKernel  # noqa: E402

import lfbo_aot  # noqa: E402
from lfbo_aot.registry.dims import Exact  # noqa: E402
from lfbo_aot.registry.dims import Range  # noqa: E402

pytestmark = pytest.mark.usefixtures("isolated", "own_catalog")

X = torch.ones(256)
STORED = {"block_sizes": [32], "num_warps": 2, "num_stages": 3, "pid_type": "flat"}


def scale(x: torch.Tensor, factor: float = 2.0) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] * factor
    return out


def declare():
    return lfbo_aot.kernel(
        dims={"n": Range(1, 4096), "dtype": Exact("float32")},
        shape=lambda x, factor: {"n": x.size(0), "dtype": x.dtype},
        package="mine",
    )(scale)


@pytest.fixture
def tuned(monkeypatch):
    """The kernels that Helion's tuner was asked for."""
    seen = []

    def autotune(bound, args, **_):
        seen.append(bound.kernel.name)
        bound.set_config(helion.Config(block_sizes=[64], num_warps=16))

    monkeypatch.setattr(BoundKernel, "autotune", autotune)
    return seen


VARIABLES = {
    "HELION_AUTOTUNE_EFFORT": "none",
    "HELION_DISALLOW_AUTOTUNING": "1",
    "HELION_SKIP_CACHE": "1",
    "HELION_ASSERT_CACHE_HIT": "1",
    "HELION_AUTOTUNE_CACHE": "StrictLocalAutotuneCache",
    "HELION_AUTOTUNE_CONFIG_OVERRIDES": '{"num_warps": 16}',
    "HELION_AUTOTUNER": "RandomSearch",
    "HELION_AUTOTUNER_INITIAL_POPULATION": "from_default",
    "HELION_AUTOTUNE_BEST_OF_K": "3",
    "HELION_AUTOTUNE_BUDGET_SECONDS": "1",
    "HELION_AUTOTUNE_HANDOFF": "1",
    "HELION_AUTOTUNE_FORCE_PERSISTENT": "1",
    "HELION_PERSISTENT_RESERVED_SMS": "8",
    "HELION_DISABLE_AUTOTUNER_HEURISTICS": "1",
    "HELION_AUTOTUNE_WITH_TORCH_COMPILE_FUSION": "1",
    "HELION_AOT_MODE": "evaluate",
    # Of earlier versions.
    "HELION_USE_DEFAULT_CONFIG": "1",
}


@pytest.mark.usefixtures("ran")
@pytest.mark.parametrize("stored", [True, False], ids=["stored", "nothing stored"])
@pytest.mark.parametrize("name", VARIABLES)
def test_no_variable_of_helions_bypasses_the_store(answers, tuned, monkeypatch, name, stored):
    monkeypatch.setenv(name, VARIABLES[name])
    if stored:
        answers.answer = lambda *args: ("key", STORED)
    made = declare()
    found = [made(X, 3.0), made(X), made.bind((X,))(X, 2.0)]
    default = made.bind((X,)).config_spec.default_config().config
    assert found == [STORED if stored else default] * 3
    assert tuned == []
    assert answers.asked


def test_forcing_and_asking_for_tuning_are_helions(answers, ran, tuned, monkeypatch):
    answers.answer = lambda *args: ("key", STORED)
    made = declare()
    made.bind((X,)).autotune((X,))
    assert made(X)["num_warps"] == 16
    assert tuned == ["scale"]
    monkeypatch.setenv("HELION_FORCE_AUTOTUNE", "1")
    made = declare()
    answers.asked.clear()
    assert made(X)["num_warps"] == 16
    assert tuned == ["scale"] * 2
    assert answers.asked == []
