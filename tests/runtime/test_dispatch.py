"""Which calls share a bound kernel. Compiled functions are stand-ins that return their config."""

from __future__ import annotations

import dataclasses
import functools
import gc
import threading
import weakref

import pytest

torch = pytest.importorskip("torch")
helion = pytest.importorskip("helion")
hl = pytest.importorskip("helion.language")

import lfbo_aot  # noqa: E402
from lfbo_aot.errors import MissError  # noqa: E402
from lfbo_aot.registry.dims import Exact  # noqa: E402
from lfbo_aot.registry.dims import Range  # noqa: E402
from lfbo_aot.registry.reads import places_read  # noqa: E402
from lfbo_aot.runtime import dispatch  # noqa: E402
from lfbo_aot.runtime import hardware  # noqa: E402
from lfbo_aot.runtime import memo  # noqa: E402
from lfbo_aot.runtime import repeats  # noqa: E402
from lfbo_aot.runtime.repeats import TICK  # noqa: E402
from lfbo_aot.runtime.serving import unserved_bind  # noqa: E402

pytestmark = pytest.mark.usefixtures("isolated", "own_catalog")

DIMS = {"n": Range(1, 65536, factor=4), "dtype": Exact("float32")}


def scale(x: torch.Tensor, factor: float = 2.0) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] * factor
    return out


def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] + y[tile]
    return out


def by_size(x, factor):
    return {"n": x.size(0), "dtype": x.dtype}


def by_count(x, count):
    return {"n": count, "dtype": x.dtype}


def first(x: torch.Tensor, count: int = 64) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] * 2
    return out


def lists(x: torch.Tensor, counts: list[int]) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] * 2
    return out


def declare(function=scale, shape=by_size, **settings):
    return lfbo_aot.kernel(dims=DIMS, shape=shape, package="mine", **settings)(function)


def warps(count):
    return {"block_sizes": [32], "num_warps": count}


def buckets(x, *_):
    """Two buckets, up to 64 and up to 1024; no answer beyond."""
    n = x.size(0)
    return ("small", warps(2)) if n <= 64 else ("large", warps(8)) if n <= 1024 else None


def bound_kernels(kernel):
    return {id(bound) for bound in kernel._bound_kernels.values()}


def test_dynamic_shapes_run_the_config_of_their_own_bucket(answers, ran):
    answers.answer = buckets
    made = declare(static_shapes=False)
    sizes = (48, 64, 100, 1000, 2000, 4000, 50, 900)
    found = [made(torch.ones(n), 3.0).get("num_warps") for n in (*sizes, *sizes)]
    default = found[4]
    assert found == [2, 2, 8, 8, default, default, 2, 8] * 2
    assert default not in (2, 8)
    assert len(bound_kernels(made)) == 3  # one for each answer, whatever the number of shapes


def test_dynamic_shapes_with_defaults_left_out_and_given(answers, ran):
    answers.answer = buckets
    made = declare(static_shapes=False)
    for call in (made, lambda x: made(x, 2.0), lambda x: made(x, factor=5.0)):
        assert [call(torch.ones(n))["num_warps"] for n in (48, 100, 48, 100)] == [2, 8, 2, 8]
    assert len(bound_kernels(made)) == 2


def test_a_number_that_is_a_dim_never_runs_another_ones_config(answers, ran):
    answers.answer = lambda x, count=64: ("few", warps(2)) if count <= 64 else ("many", warps(8))
    made = declare(first, by_count)
    x = torch.ones(256)
    assert [made(x, n)["num_warps"] for n in (3, 100, 64, 65, 3, 100)] == [2, 8, 2, 8, 2, 8]
    assert made(x)["num_warps"] == 2
    assert made(x, count=4096)["num_warps"] == 8
    assert len(bound_kernels(made)) == 2


def test_a_number_that_is_first_seen_later_counts_from_then_on(answers, ran):
    answers.answer = lambda x, count=64: (
        ("text", warps(1)) if isinstance(count, str) else (f"n{count}", warps(2 * count))
    )
    made = declare(first, by_count)
    x = torch.ones(256)
    assert made(x, "all")["num_warps"] == 1
    assert made._key_fn(x, "all") == memo.mark()
    assert [made(x, n)["num_warps"] for n in (1, 2, 4, 1)] == [2, 4, 8, 2]
    assert made(x, "all")["num_warps"] == 1


def test_a_number_that_no_dim_reads_costs_no_look_up(answers, ran):
    answers.answer = buckets
    made = declare()
    x = torch.ones(48)
    for factor in (1.0, 2.0, 3.0, 1.0):
        assert made(x, factor)["num_warps"] == 2
    assert len(answers.asked) == 1
    assert made._key_fn(x, 1.0) == memo.mark()


@dataclasses.dataclass
class Pair:
    a: object
    b: object


@pytest.mark.parametrize(
    ("value", "holds"),
    [
        (3, True),
        (True, True),
        (2.5, True),
        ([1], True),
        ({"a": (2.0,)}, True),
        (Pair(None, 4), True),
        ("text", False),
        (None, False),
        (torch.float32, False),
        (torch.ones(1), False),
        ([torch.ones(1), "x"], False),
        (Pair("a", None), False),
    ],
)
def test_numbers_are_found_in_containers(value, holds):
    assert dispatch._holds_number(value) is holds


def _reads(x, count):
    total = x.size(0)
    return {"n": sum(total for _ in range(1))}


def _shares(x, count):
    def inner():
        return {"n": count}

    return inner()


class Shapes:
    def of(self, x, count):
        return {"n": count}

    @classmethod
    def shared(cls, x, count):
        return {"n": x.size(0)}

    def __call__(self, x, count):
        return {"n": x.size(0)}


def _looks_around(x, count):
    return locals()


@pytest.mark.parametrize(
    ("function", "read"),
    [
        (lambda x, count: {"n": x.size(0)}, {0}),
        (lambda x, count: {"n": count}, {1}),
        (lambda x, count: {"n": x.size(0) + count}, {0, 1}),
        (lambda x, count: {"a": x, "b": count}, {0, 1}),
        (lambda x, count: {}, set()),
        (_reads, {0}),
        (_shares, {1}),
        (_looks_around, None),
        (lambda *args: {}, set()),
        (lambda x, *rest: {"n": x.size(0)}, {0}),
        (lambda x, *rest: {"n": rest[0]}, None),
        (lambda x, **more: {}, None),
        (Shapes().of, {1}),
        (Shapes.shared, {0}),
        (Shapes(), {0}),
        (functools.partial(_reads, count=2), None),
        (dict, None),
    ],
)
def test_which_parameters_a_shape_function_reads(function, read):
    assert places_read(function) == (None if read is None else frozenset(read))


def test_static_shapes_have_a_constant_key(answers, ran):
    answers.answer = buckets
    made = declare(add, lambda x, y: {"n": x.size(0), "dtype": x.dtype})
    for n in (48, 100, 48, 100, 48):
        x = torch.ones(n)
        assert made(x, x + 1)["num_warps"] == (2 if n == 48 else 8)
    assert made._key_fn(x, x) == memo.mark()
    assert len(answers.asked) == 2


def test_shapes_that_keep_coming_back_have_helions_memory_of_a_call(answers, ran):
    answers.answer = buckets
    made = declare()
    one, two = torch.ones(48), torch.ones(100)
    for x in (one, two):
        for _ in range(3):
            made(x)
    assert made._prepared_call is None  # there is a key
    for _ in range(TICK):
        made(one)
    memory = made._prepared_call
    assert memory.matches(made, (one,))
    assert memory.bound is made.bind((one,))
    assert not memory.matches(made, (two,))
    assert not memory.matches(made, (one.double(),))
    for _ in range(TICK + 1):
        made(two)
    for x in (one, two, one):  # both
        assert memory.matches(made, (x,))
        assert memory.bound is made.bind((x,))
    made(torch.ones(50))  # a new specialisation, at which Helion drops what it has
    assert made._prepared_call is None
    made(torch.ones(50))
    assert made._prepared_call is memory
    assert [made(x)["num_warps"] for x in (one, two, one, two)] == [2, 8, 2, 8]


def test_after_a_reset_nothing_is_remembered(answers, ran):
    answers.answer = buckets
    made = declare()
    one, two = torch.ones(48), torch.ones(100)
    for x in [one] * (TICK + 3) + [two] * (TICK + 3):
        made(x)
    memory = made._prepared_call
    assert len(memory) == 2
    made.reset()
    assert not memory.matches(made, (one,))
    answers.answer = lambda *_: ("other", warps(16))
    assert [made(x)["num_warps"] for x in (one, two, one, two)] == [16] * 4
    for _ in range(2 * TICK):
        made(one)
    assert len(memory) == 1
    assert memory.bound is made.bind((one,))


def test_a_config_set_by_hand_is_run_from_then_on(answers, ran):
    answers.answer = buckets
    made = declare()
    x = torch.ones(48)
    for _ in range(2 * TICK):
        made(x)
    made.bind((x,)).set_config(helion.Config(**warps(4)))
    assert made(x)["num_warps"] == 4


def test_only_so_many_calls_are_remembered_and_ever_more_rarely(answers, ran, monkeypatch):
    """Making a memory takes a hundred times a call; shapes that take turns must not pay that."""
    answers.answer = buckets
    made = declare()
    kept = []
    real = repeats._remembered
    monkeypatch.setattr(repeats, "MOST", 2)
    monkeypatch.setattr(repeats, "_remembered", lambda *args: kept.append(1) or real(*args))
    shapes = [torch.ones(n) for n in (48, 50, 100, 200, 300)]
    for number in range(300 * TICK):
        assert made(shapes[number % 5])["num_warps"] == (2 if number % 5 < 2 else 8)
    assert len(made._prepared_call) == 2
    assert 3 <= len(kept) <= 12


def test_threads_that_call_different_shapes_run_their_own(answers, ran):
    answers.answer = buckets
    made = declare()
    shapes = {2: torch.ones(48), 8: torch.ones(100)}
    for x in shapes.values():
        for _ in range(TICK + 3):
            made(x)
    memory = made._prepared_call
    met = threading.Barrier(2)
    found = {}

    def call(count):
        for _ in range(50):
            assert memory.matches(made, (shapes[count],))
            met.wait()  # the other thread has matched as well
            found.setdefault(count, set()).add(memory.bound._config["num_warps"])
            met.wait()

    threads = [threading.Thread(target=call, args=(count,)) for count in shapes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {2: {2}, 8: {8}}


def test_the_memory_holds_the_numbers_that_an_answer_depends_on(answers, ran):
    answers.answer = lambda x, count=64: (f"n{count}", warps(2 * count))
    made = declare(first, by_count)
    x = torch.ones(256)
    for _ in range(2 * TICK):
        assert made(x, 1)["num_warps"] == 2
    assert made._prepared_call.matches(made, (x, 1))
    assert not made._prepared_call.matches(made, (x, 2))
    assert [made(x, n)["num_warps"] for n in (4, 1, 2, 4, 1)] == [8, 2, 4, 8, 2]
    asked = len(answers.asked)
    for _ in range(5):
        made(x, 1)
    assert len(answers.asked) == asked


def test_a_dynamic_shape_that_keeps_coming_back_is_remembered(answers, ran):
    answers.answer = buckets
    made = declare(static_shapes=False)
    one, two = torch.ones(48), torch.ones(100)
    for _ in range(2 * TICK):
        assert made(one)["num_warps"] == 2
    assert made._prepared_call.matches(made, (one,))
    assert not made._prepared_call.matches(made, (torch.ones(49),))
    asked = len(answers.asked)
    made(one)
    assert len(answers.asked) == asked
    assert [made(x)["num_warps"] for x in (two, one, two, one)] == [8, 2, 8, 2]


def test_numbers_in_containers_are_not_remembered(answers, ran):
    answers.answer = lambda x, counts: (f"n{counts[0]}", warps(2 * counts[0]))
    made = declare(lists, lambda x, counts: {"n": counts[0], "dtype": x.dtype})
    x = torch.ones(256)
    for _ in range(2 * TICK):
        assert made(x, [1])["num_warps"] == 2
    assert made._prepared_call is None
    assert made(x, [4])["num_warps"] == 8


def test_different_devices_of_one_arch_have_different_bound_kernels(answers, ran, monkeypatch):
    """As on a host with an H100 and an H200: Helion's own key holds their arch alone."""
    monkeypatch.setattr(hardware, "uniform", lambda: False)
    names = {torch.device("meta"): "sm90/A", torch.device("cpu"): "sm90/B"}
    monkeypatch.setattr(dispatch, "_devices", lambda args: names)
    made = declare()
    made(torch.ones(48))
    assert made._key_fn(torch.ones(48), 2.0) == (memo.mark(), "sm90/B")
    assert made._key_fn(torch.ones(48, device="meta")) == (memo.mark(), "sm90/A")
    assert made._key_fn([torch.ones(48, device="meta")], 2.0) == (memo.mark(), "sm90/A")
    assert made._base_specialization_key((torch.ones(48),))[-1] == (memo.mark(), "sm90/B")


def test_devices_are_asked_for_only_where_tensors_are_on_them(monkeypatch):
    def fail():
        raise AssertionError

    monkeypatch.setattr(hardware, "uniform", fail)
    assert dispatch._devices((torch.ones(1), 2.0)) is None
    monkeypatch.setattr(hardware, "uniform", lambda: True)
    assert dispatch._devices((torch.ones(1, device="meta"),)) == {}
    monkeypatch.setattr(hardware, "uniform", lambda: False)
    monkeypatch.setattr(hardware, "identities", lambda: ("sm90/A", "sm90/B"))
    assert dispatch._devices((torch.ones(1, device="meta"),)) == {
        torch.device("cuda", 0): "sm90/A",
        torch.device("cuda", 1): "sm90/B",
    }


def test_the_authors_own_key_still_counts(answers, ran):
    answers.answer = buckets
    existing = helion.kernel(key=lambda x, factor=2.0: factor > 10)(scale)
    lfbo_aot.register(existing, dims=DIMS, shape=by_size, package="theirs")
    x = torch.ones(48)
    assert existing(x, 3.0)["num_warps"] == 2
    assert existing(x, 30.0)["num_warps"] == 2
    assert len(bound_kernels(existing)) == 2
    # Declared once more: the author's key isn't wrapped twice.
    lfbo_aot.register(existing, dims=DIMS, shape=by_size, package="theirs")
    assert existing._key_fn(x, 30.0) == (True, memo.mark())


def test_a_shape_function_that_fails_has_the_key_of_the_default(ran):
    made = declare(shape=lambda x, factor: {"n": x.size(0) // 0}, static_shapes=False)
    assert made(torch.ones(48))["num_warps"] == made(torch.ones(100))["num_warps"]
    assert made._key_fn(torch.ones(48)) is None


def test_a_miss_that_is_an_error_is_one_at_every_call(ran):
    made = declare(static_shapes=False)
    with lfbo_aot.use_policy(on_miss="error"):
        for _ in range(2):
            with pytest.raises(MissError, match=r"mine\.scale"):
                made(torch.ones(48))
    assert made(torch.ones(48))["num_warps"]


def test_for_the_tuner_each_bucket_has_a_bound_kernel_and_nothing_is_looked_up(answers):
    made = declare(static_shapes=False)
    one, two, other = (unserved_bind(made, (torch.ones(n), 2.0)) for n in (48, 60, 100))
    assert one is two
    assert one is not other
    assert one._config is None
    assert answers.asked == []


def test_symbolic_sizes_have_a_key_of_their_own(answers):
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    mode = FakeTensorMode(shape_env=ShapeEnv())
    known = mode.from_tensor(torch.ones(48), static_shapes=True)
    symbolic = mode.from_tensor(torch.ones(48), static_shapes=False)
    assert dispatch.is_symbolic((symbolic,))
    assert dispatch.is_symbolic((known, symbolic.size(0)))
    assert not dispatch.is_symbolic((known, 48, "text", None))
    made = declare(static_shapes=False)
    assert made._key_fn(symbolic) == "dynamic"
    assert answers.asked == []


def by_count_or_none(x, count):
    return {"n": 0 if count is None else count, "dtype": x.dtype}


def maybe(x: torch.Tensor, count: int | None = None) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] * 2
    return out


@pytest.mark.parametrize("static", [True, False])
def test_numbers_count_in_calls_that_are_remembered_whatever_stood_there_first(
    answers, ran, static
):
    counts = {None: warps(1), 5: warps(2), 50: warps(8)}
    answers.answer = lambda x, count=None: (str(count), counts[count])
    made = declare(maybe, by_count_or_none, static_shapes=static)
    x = torch.ones(64)
    assert [made(x, n)["num_warps"] for n in (None, 5, 50)] == [1, 2, 8]
    for n in (None, 5, 50):
        assert {made(x, n)["num_warps"] for _ in range(3 * TICK)} == {counts[n]["num_warps"]}
    assert [made(x, n)["num_warps"] for n in (50, None, 5)] == [8, 1, 2]


@pytest.mark.parametrize("static", [True, False])
def test_lists_of_numbers_that_no_dim_tells_are_told_apart(answers, ran, static):
    answers.answer = lambda x, counts: ("one", warps(8)) if counts == [1, 2] else None
    made = declare(
        lists, lambda x, counts: {"n": x.size(0), "dtype": x.dtype}, static_shapes=static
    )
    x = torch.ones(64)
    default = made(x, [3, 4])["num_warps"]
    assert default != 8
    for _ in range(3 * TICK):
        assert (made(x, [1, 2])["num_warps"], made(x, [3, 4])["num_warps"]) == (8, default)


@pytest.mark.parametrize("static", [True, False])
def test_another_store_or_policy_counts_at_once_and_until_it_is_taken_back(answers, ran, static):
    answers.answer = buckets
    made = declare(static_shapes=static)
    x = torch.ones(64)
    prepared = made.prepare(x, 2.0)
    assert {made(x, 2.0)["num_warps"] for _ in range(3 * TICK)} == {2}
    bound = bound_kernels(made)
    with lfbo_aot.use_policy("any"):
        answers.answer = lambda x, *_: ("other", warps(16))
        assert [made(x, 2.0)["num_warps"], prepared(x, 2.0)["num_warps"]] == [16, 16]
    answers.answer = None  # not asked again: what is bound for that store is still there
    assert [made(x, 2.0)["num_warps"], prepared(x, 2.0)["num_warps"]] == [2, 2]
    assert bound < bound_kernels(made)


def test_calls_that_are_remembered_keep_no_tensor_alive(answers, ran):
    answers.answer = buckets
    made = declare(add, lambda x, y: {"n": x.size(0), "dtype": x.dtype}, static_shapes=False)
    kept = []
    for n in range(65, 65 + 2 * TICK):
        x, y = torch.ones(n), torch.ones(n)
        for _ in range(TICK):
            made(x, y)
        kept += [weakref.ref(x), weakref.ref(y)]
    del x, y
    answers.asked.clear()
    ran.clear()
    gc.collect()
    assert not any(ref() is not None for ref in kept)


@pytest.mark.parametrize("order", [(64, 1024), (1024, 64)])
def test_what_fails_at_one_size_is_tried_at_another(answers, ran, monkeypatch, order):
    """Else what a call runs would depend on the calls before it, and ranks might differ."""
    from lfbo_aot.runtime import serving

    def why_not(spec, function, args):
        big = args[0].size(0) > 100 and function(*args)["num_warps"] == 8
        return "OutOfResources: out of resource: shared memory, Required: 300000" if big else None

    monkeypatch.setattr(serving, "why_not_run", why_not)
    answers.answer = lambda x, *_: ("one", warps(8), warps(2))
    made = declare()
    found = {n: made(torch.ones(n))["num_warps"] for n in order}
    assert found == {64: 8, 1024: 2}


@pytest.mark.parametrize(
    ("reason", "depends"),
    [
        ("doesn't fit: num_stages=1 has 2 values, and the kernel takes 1", True),
        ("InvalidConfig: Too many values for config['reduction_loops']", True),
        ("OutOfResources: out of resource: shared memory, Required: 9", True),
        ("RuntimeError: PassManager::run failed", False),
    ],
)
def test_which_failures_may_be_of_the_size(reason, depends):
    from lfbo_aot.runtime import serving

    assert serving.depends_on_sizes(reason) is depends


def test_what_dynamo_traces_into_finds_the_answers_of_the_store_in_force(answers, ran, monkeypatch):
    answers.answer = buckets
    made = declare(static_shapes=False)
    x = torch.ones(64)
    made(x, 2.0)
    known = made._key_fn(x, 2.0)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    key = made.lfbo_aot_serving._dispatch._of_answer
    assert key(x, 2.0) == known
    with lfbo_aot.use_policy("any"):
        assert key(x, 2.0) == dispatch.DYNAMIC  # not seen under it yet
    assert key(x, 2.0) == known
