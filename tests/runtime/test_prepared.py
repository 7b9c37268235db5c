"""`kernel.prepare`: the function that skips dispatch, and what it leaves to the kernel."""

from __future__ import annotations

import gc
import weakref

import pytest

torch = pytest.importorskip("torch")
helion = pytest.importorskip("helion")
hl = pytest.importorskip("helion.language")

import lfbo_aot  # noqa: E402
from lfbo_aot.registry.dims import Exact  # noqa: E402
from lfbo_aot.registry.dims import Range  # noqa: E402

pytestmark = pytest.mark.usefixtures("isolated", "own_catalog")

DIMS = {"n": Range(1, 65536, factor=4), "dtype": Exact("float32", "float64")}


def scale(x: torch.Tensor, y: torch.Tensor, factor: float = 2.0, how: str = "up") -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] * factor + y[tile]
    return out


def specialised(x: torch.Tensor, n: int) -> torch.Tensor:
    n = hl.specialize(n)
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] + n
    return out


def declare(function=scale, **settings):
    count = function.__code__.co_argcount
    shape = (
        (lambda x, n: {"n": x.size(0), "dtype": x.dtype})
        if count == 2
        else (lambda x, y, factor, how: {"n": x.size(0), "dtype": x.dtype})
    )
    return lfbo_aot.kernel(dims=DIMS, shape=shape, package="mine", **settings)(function)


@pytest.fixture
def made(answers, ran):
    answers.answer = lambda x, *_: (f"n{len(x)}", {"block_sizes": [16], "num_warps": 2})
    return declare()


@pytest.fixture
def slow(made, monkeypatch):
    """The calls that didn't go straight to the compiled function."""
    seen = []
    real = type(made).__call__

    def call(kernel, *args, **kwargs):
        seen.append(args)
        return real(kernel, *args, **kwargs)

    monkeypatch.setattr(type(made), "__call__", call)
    return seen


X, Y = torch.ones(48), torch.zeros(48)


def test_it_binds_and_launches_nothing(made, ran, answers):
    made.prepare(X, Y)
    assert ran == []
    assert len(answers.asked) == 1
    assert made.bind((X, Y))._config["num_warps"] == 2


def test_calls_like_the_one_prepared_skip_dispatch(made, ran, slow):
    call = made.prepare(X, Y, 3.0)
    other = torch.randn(48)
    calls = [
        lambda: call(X, Y, 3.0),
        lambda: call(other, Y, 3.0, "up"),
        lambda: call(X, y=other, factor=3.0),
        lambda: call(how="up", factor=3.0, x=other, y=X),
    ]
    given = [(X, Y), (other, Y), (X, other), (other, X)]
    for one, (x, y) in zip(calls, given, strict=True):
        one()
        _, args = ran[-1]
        assert args[0] is x
        assert args[1] is y
        assert args[2:] == (3.0, "up")
    assert slow == []


def test_defaults_may_be_left_out_where_they_are_what_was_prepared(made, ran, slow):
    call = made.prepare(X, Y)
    call(X, Y)
    call(X, Y, 2.0, "up")
    assert slow == []
    assert [args[2:] for _, args in ran] == [(2.0, "up"), (2.0, "up")]
    call(X, Y, 3.0)
    assert len(slow) == 1


DIFFERENT = {
    "size": (torch.ones(49), torch.ones(49)),
    "one size": (X, torch.ones(1)),
    "strides": (torch.ones(96)[::2], Y),
    "dtype": (X.double(), Y),
    "device": (X.to("meta"), Y),
    "a parameter": (torch.nn.Parameter(X), Y),
    "one tensor twice": (X, X),
    "number": (X, Y, 2.5),
    "type of number": (X, Y, 2),
    "text": (X, Y, 2.0, "down"),
    "a list": (X, [Y]),
}


@pytest.mark.parametrize("args", DIFFERENT.values(), ids=DIFFERENT)
def test_every_other_call_is_the_kernels(made, monkeypatch, args):
    call = made.prepare(X, Y)
    seen = []
    monkeypatch.setattr(type(made), "__call__", lambda kernel, *given: seen.append(given))
    call(*args)
    ((first, second, *rest),) = seen
    assert first is args[0]
    assert second is args[1]
    assert rest == [*args[2:], *(2.0, "up")[len(args) - 2 :]]


def test_strides_count_where_contiguity_does_not_tell_them(made, slow):
    one = torch.ones(1, 48)
    odd = torch.ones(96).as_strided((1, 48), (7, 1))
    assert odd.is_contiguous()
    guard = made.prepare(X, Y)
    guard(X, Y)
    assert slow == []
    from lfbo_aot.runtime.prepared import _Guard

    for tensor, other in ((one, odd), (odd, one)):
        checks = _Guard()
        checks.add("x", tensor, number=False)
        text = " and ".join(checks.checks)
        assert eval(text, {**checks.known, "x": tensor})
        assert not eval(text, {**checks.known, "x": other})


def test_after_a_reset_and_with_another_config_the_kernel_decides(made, ran, slow):
    call = made.prepare(X, Y)
    bound = made.bind((X, Y))
    bound.set_config(helion.Config(block_sizes=[32], num_warps=8))
    assert call(X, Y)["num_warps"] == 8
    assert len(slow) == 1
    call = made.prepare(X, Y)
    assert call(X, Y)["num_warps"] == 8
    assert len(slow) == 1
    made.reset()
    assert call(X, Y)["num_warps"] == 2
    assert len(slow) == 2


def test_what_helion_specialises_further_goes_to_the_kernel(answers, ran, monkeypatch):
    made = declare(specialised)
    call = made.prepare(X, 5)
    assert made._has_specialization_extras
    seen = []
    monkeypatch.setattr(type(made), "__call__", lambda kernel, *given, **named: seen.append(given))
    call(X, 5)
    assert len(seen) == 1


def test_a_dynamic_kernel_can_be_prepared_for_one_of_its_shapes(answers, ran):
    answers.answer = lambda x, *_: (f"n{len(x)}", {"block_sizes": [16], "num_warps": 2})
    made = declare(static_shapes=False)
    call = made.prepare(X, Y)
    assert call(X, Y)["num_warps"] == 2
    assert call(torch.ones(100), torch.ones(100))["num_warps"] == 2


def test_wrong_calls_raise_as_a_function_does(made):
    call = made.prepare(X, Y)
    assert call.__name__ == "scale"
    with pytest.raises(TypeError, match=r"scale\(\) missing 1 required positional argument: 'y'"):
        call(X)
    with pytest.raises(TypeError, match="unexpected keyword argument 'z'"):
        call(X, Y, z=1)
    with pytest.raises(TypeError, match="missing a required argument: 'y'"):
        made.prepare(X)


def test_it_keeps_no_tensor_alive(made, answers):
    x = torch.ones(48)
    alive = weakref.ref(x)
    call = made.prepare(x, Y)
    del x
    answers.asked.clear()
    gc.collect()
    assert alive() is None
    assert call(X, Y)["num_warps"] == 2


def test_a_process_group_that_starts_later_is_noticed(made, monkeypatch):
    """Then a tensor may be one of symmetric memory, for which Helion makes other code."""
    call = made.prepare(X, Y)
    seen = []
    monkeypatch.setattr(type(made), "__call__", lambda kernel, *given: seen.append(given))
    call(X, Y)
    assert seen == []
    world = type("World", (), {"default_pg": object()})()
    monkeypatch.setattr(torch.distributed.distributed_c10d, "_world", world)
    monkeypatch.setattr(made, "_compute_is_distributed", lambda args: False)
    call(X, Y)
    assert seen == []
    monkeypatch.setattr(made, "_compute_is_distributed", lambda args: args[1] is Y)
    call(X, Y)
    assert len(seen) == 1
