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


def test_a_reference_that_works_in_place_needs_mutates():
    """Else the argument would be compared with itself, and any kernel would be right."""

    def in_place(x, k):
        return x.mul_(k)

    bench = make_bench(reference=in_place)
    with pytest.raises(TuningError, match=r"reference= changed the argument 'x', which mutates="):
        bench.set_reference(no_default)
    assert bench.args[0].tolist() == [0.0, 1.0, 2.0, 3.0]
    bench = make_bench(reference=None)
    with pytest.raises(TuningError, match=r"the default config changed the argument 'x'"):
        bench.set_reference(lambda: in_place)


def test_a_candidate_that_changes_what_it_may_not_is_wrong_and_leaves_no_trace():
    bench = make_bench()
    bench.set_reference(no_default)

    def careless(x, k, _launcher):
        result = x * k
        x[0] = float("nan")
        return result

    wrong, _ = bench.check(careless)
    assert wrong == "the call changed the argument 'x', which mutates= doesn't name"
    assert bench.check(scale)[0] is None
    nan = make_bench(inputs=lambda shape, _: (torch.full((4,), float("nan")), 2.0))
    nan.set_reference(no_default)
    assert nan.check(scale)[0] is None


def test_a_result_that_is_an_argument_keeps_its_value():
    """What the reference returns may share memory with what a kernel writes."""

    def first_half(x, k, _launcher=None):
        x *= k
        return x[:2]

    bench = make_bench(mutates=("x",), reference=first_half)
    bench.set_reference(no_default)
    assert bench.check(first_half)[0] is None
    assert "result 0" in bench.check(lambda x, k, _launcher: x[:2])[0]


ALLOCATIONS = {
    "empty": lambda x, dtype: torch.empty(4, dtype=dtype),
    "empty_like": lambda x, dtype: torch.empty_like(x, dtype=dtype),
    "new_empty": lambda x, dtype: x.new_empty(4, dtype=dtype),
    "empty_strided": lambda x, dtype: torch.empty_strided((4,), (1,), dtype=dtype),
    "new_empty_strided": lambda x, dtype: x.new_empty_strided((4,), (1,), dtype=dtype),
}


@pytest.mark.parametrize("allocate", ALLOCATIONS.values(), ids=ALLOCATIONS)
@pytest.mark.parametrize(
    ("dtype", "right"),
    [
        (torch.bool, True),
        (torch.bool, False),
        (torch.int32, 2**31 - 1),
        (torch.int32, 0),
        (torch.uint8, 255),
        (torch.float32, float("nan")),
        (torch.bfloat16, float("nan")),
        (torch.float8_e4m3fn, float("nan")),
        (torch.complex64, float("nan")),
    ],
)
def test_what_memory_is_filled_with_is_not_right_by_chance(allocate, dtype, right):
    def written(x, k, _launcher=None):
        return allocate(x, dtype).fill_(right)

    bench = make_bench(reference=written)
    bench.set_reference(no_default)
    assert bench.check(written)[0] is None
    assert bench.check(lambda x, k, _launcher: allocate(x, dtype))[0].startswith("result 0: ")


def test_tensors_in_a_list_are_arguments_too():
    def add(x, k, _launcher=None):
        k[0] += x

    bench = make_bench(
        inputs=lambda shape, _: (torch.ones(4), [torch.ones(4), 3]), mutates="k", reference=add
    )
    bench.set_reference(no_default)
    for _ in range(2):
        assert bench.check(add)[0] is None
    assert "1.0 instead of 2.0" in bench.check(lambda x, k, _launcher: None)[0]
