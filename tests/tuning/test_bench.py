from __future__ import annotations

import inspect

import pytest
import torch

from lfbo_aot.errors import TuningError
from lfbo_aot.registry.dims import Exact
from lfbo_aot.registry.spec import make_spec
from lfbo_aot.tuning.bench import Bench
from lfbo_aot.tuning.bench import Entrant
from lfbo_aot.tuning.bench import race

SHAPE = {"n": 4}


class Clock:
    """Every call takes as many microseconds as calls were made before it."""

    policy = {"clock": "counted"}

    def __init__(self):
        self.calls = 0

    def time_us(self, call, launches):
        found = []
        for _ in range(launches):
            call()
            found.append(float(self.calls))
            self.calls += 1
        return found

    def settle(self):
        pass


class Kernel:
    def normalize_args(self, *args):
        return args


def make_bench(
    inputs=lambda shape, _: (torch.arange(float(shape["n"])), 2.0),
    reference=lambda x, k: x * k,
    mutates=(),
):
    spec = make_spec(
        kernel=Kernel(),
        kernel_id="pkg.scale",
        signature=inspect.signature(lambda x, k: None),
        place=("pkg.ops", "/nowhere/pkg/ops.py", 7),
        source="sha256:50ce",
        settings={},
        dims={"n": Exact(4)},
        shape=lambda x, k: {"n": x.shape[0]},
        inputs=inputs,
        reference=reference,
        mutates=mutates,
    )
    return Bench(spec, SHAPE, "cpu", Clock())


def no_default():
    msg = "not asked for"
    raise AssertionError(msg)


def scale(x, k, _launcher=None):
    return x * k


def scale_in_place(x, k, _launcher=None):
    x *= k


def test_right_and_wrong_results():
    bench = make_bench()
    bench.set_reference(no_default)
    assert bench.check(scale) == (None, [])
    wrong, _ = bench.check(lambda x, k, _launcher: x * (k + 1))
    assert wrong.startswith("result 0: 3 of 4 values differ")


def test_what_a_kernel_does_not_write_is_not_right_by_chance():
    bench = make_bench(reference=lambda x, k: torch.zeros_like(x))
    bench.set_reference(no_default)
    before = torch.are_deterministic_algorithms_enabled()
    wrong, _ = bench.check(lambda x, k, _launcher: torch.empty_like(x))
    assert "nan instead of 0.0" in wrong
    assert torch.are_deterministic_algorithms_enabled() is before


def test_without_a_reference_the_default_config_is_right():
    bench = make_bench(reference=None)
    bench.set_reference(lambda: scale)
    assert bench.check(scale)[0] is None
    assert bench.check(lambda x, k, _launcher: x)[0] is not None


def test_arguments_that_a_kernel_writes_are_restored_and_checked():
    bench = make_bench(mutates=("x",), reference=scale_in_place)
    bench.set_reference(no_default)
    for _ in range(2):
        assert bench.check(scale_in_place)[0] is None
    assert bench.time(scale_in_place, 3) == [0.0, 1.0, 2.0]
    assert bench.check(scale_in_place)[0] is None
    assert "result 0" in bench.check(lambda x, k, _launcher: None)[0]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            {"inputs": lambda shape, _: [][shape["n"]]},
            "inputs= of kernel 'pkg.scale' failed: IndexError: list index out of range",
        ),
        (
            {"inputs": lambda shape, _: (torch.zeros(5), 1.0)},
            "made arguments of shape {'n': 5} when asked for {'n': 4}",
        ),
        (
            {"reference": lambda x, k: x.no_such_thing},
            "kernel 'pkg.scale': reference= failed: AttributeError: 'Tensor' object has no",
        ),
        (
            {"reference": None},
            "no reference=, and the default config failed: AssertionError: not asked for",
        ),
        ({"reference": lambda x, k: 5}, "the reference gives no tensor, and mutates= names none"),
    ],
)
def test_a_bucket_that_can_not_be_measured(words, message):
    with pytest.raises(TuningError) as caught:
        make_bench(**words).set_reference(no_default)
    assert message in str(caught.value)


def test_a_race_times_all_in_every_round():
    bench = make_bench()
    order = []

    def entrant(name):
        def function(x, k):
            order.append(name)
            if name == "b" and order.count("b") > 2:
                msg = "illegal access"
                raise RuntimeError(msg)

        return function

    entrants = [
        Entrant(entrant("a"), {"regs": 1}),
        Entrant(entrant("b")),
        Entrant(None, error="crash: dead"),
        Entrant(entrant("d"), error="result 0"),
        Entrant(entrant("e")),
    ]
    found = race(bench, entrants, 20)
    assert [len(s) for s in found["samples"]] == [20, 2, 0, 0, 20]
    assert found["errors"] == ["", "RuntimeError: illegal access", "crash: dead", "result 0", ""]
    assert found["resources"] == [{"regs": 1}, {}, {}, {}, {}]
    # In turn, round by round, and neither always before the other.
    rounds = [name for name in order if name != "b"]
    pairs = {tuple(rounds[i : i + 2]) for i in range(0, 40, 2)}
    assert pairs == {("a", "e"), ("e", "a")}
