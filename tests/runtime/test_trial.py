"""A config tried before it is set. Host functions and Triton kernels are stand-ins, on the CPU."""

from __future__ import annotations

import inspect
import json
import logging
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("helion")
hl = pytest.importorskip("helion.language")

from helion.runtime.kernel import BoundKernel  # noqa: E402

import lfbo_aot  # noqa: E402
from lfbo_aot.registry.dims import Exact  # noqa: E402
from lfbo_aot.registry.dims import Range  # noqa: E402
from lfbo_aot.runtime import hardware  # noqa: E402
from lfbo_aot.runtime import trial  # noqa: E402

pytestmark = pytest.mark.usefixtures("isolated", "own_catalog")

X = torch.ones(256)


class OutOfResources(Exception):  # noqa: N818 - as Triton calls it
    pass


class Kernel:
    """A compiled kernel that needs `shared` bytes, where there are 1000."""

    device_caches = ()

    def __init__(self, shared):
        self.shared = shared
        self.warmups = []

    def run(self, *args, warmup, **options):
        self.warmups.append(warmup)
        return self

    def _init_handles(self):
        if self.shared > 1000:
            msg = f"out of resource: shared memory, Required: {self.shared}, Hardware limit: 1000"
            raise OutOfResources(msg)


def launcher(kernel, grid, *args, **options):
    return kernel.run(*args, grid=grid, warmup=False, **options)


def scale(x: torch.Tensor, factor: float = 2.0) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] * factor
    return out


@pytest.fixture
def on_gpu(monkeypatch):
    monkeypatch.setattr(trial, "_runs_here", lambda args: True)


@pytest.fixture
def generated(monkeypatch):
    """Stands for Helion's code: each warp of a config needs 400 bytes; (config, what ran)."""
    made = []

    def compile_config(bound, config=None, **_):
        plain = dict(getattr(config, "config", config))
        mine = Kernel(400 * plain["num_warps"])
        for known, function, _ in made:  # as Helion does
            if known == plain:
                return function

        def host(*args, _launcher=launcher):
            _launcher(mine, (1,), *args)
            return plain

        made.append((plain, host, mine))
        return host

    monkeypatch.setattr(BoundKernel, "compile_config", compile_config)
    return made


def declare(**more):
    return lfbo_aot.kernel(
        dims={"n": Range(1, 4096, factor=4), "dtype": Exact("float32")},
        shape=lambda x, factor: {"n": x.size(0), "dtype": x.dtype},
        package="mine",
        **more,
    )(scale)


def warps(count):
    return {"block_sizes": [32], "num_warps": count}


def messages(caplog):
    return [r.getMessage() for r in caplog.records if r.name == "lfbo_aot.runtime.serving"]


@pytest.mark.usefixtures("on_gpu")
def test_what_can_be_loaded_is_set_and_was_not_launched(answers, generated):
    answers.answer = lambda *args: ("key", warps(2))
    bound = declare().bind((X,))
    assert bound._config["num_warps"] == 2
    ((_, _, kernel),) = generated
    assert kernel.warmups == [True]


@pytest.mark.usefixtures("on_gpu")
def test_a_config_that_cannot_be_loaded_gives_way_to_an_alternate(answers, generated, caplog):
    answers.answer = lambda *args: ("key", warps(8), warps(16), warps(1))
    made = declare()
    with caplog.at_level(logging.WARNING, "lfbo_aot"):
        assert made(X)["num_warps"] == 1
        assert made(torch.ones(64))["num_warps"] == 1  # neither tried nor said again
    (text,) = messages(caplog)
    assert "mine.scale" in text
    assert "alternate number 2" in text
    assert "Required: 3200, Hardware limit: 1000" in text
    assert json.dumps(warps(16), sort_keys=True) in text


@pytest.mark.usefixtures("on_gpu")
def test_and_at_last_to_the_default_which_is_not_tried(answers, generated, caplog):
    answers.answer = lambda *args: ("key", warps(8), warps(16))
    with caplog.at_level(logging.WARNING, "lfbo_aot"):
        bound = declare().bind((X,))
    assert bound._config == bound.config_spec.default_config()
    (text,) = messages(caplog)
    assert "Helion's default is served" in text
    assert generated[-1][2].warmups == []


@pytest.mark.usefixtures("on_gpu", "answers")
def test_a_trial_that_breaks_by_itself_leaves_the_config_to_helion(answers, monkeypatch, caplog):
    def compile_config(bound, config=None, **_):
        def host(*args, _launcher=None):  # a launcher nobody knows
            if _launcher is not None:
                msg = "another signature"
                raise TypeError(msg)
            return "ran"

        return host

    monkeypatch.setattr(BoundKernel, "compile_config", compile_config)
    answers.answer = lambda *args: ("key", warps(8))
    made = declare()
    with caplog.at_level(logging.DEBUG, "lfbo_aot"):
        assert made(X) == "ran"
    assert made.bind((X,))._config["num_warps"] == 8
    assert messages(caplog) == []
    assert "not tried before its call" in caplog.text


def test_without_a_gpu_and_the_interpreter_nothing_is_tried(answers, generated):
    answers.answer = lambda *args: ("key", warps(8))
    assert declare().bind((X,))._config["num_warps"] == 8
    assert generated[0][2].warmups == []


@pytest.mark.usefixtures("on_gpu")
def test_other_backends_are_left_alone():
    def fail(*args, **kwargs):
        raise AssertionError

    spec = declare().lfbo_aot_spec
    spec.settings["backend"] = "pallas"
    assert trial.why_not_run(spec, fail, (X, 2.0)) is None


@pytest.mark.usefixtures("on_gpu")
def test_arguments_that_are_written_are_copies_and_others_are_not():
    spec = declare(mutates=("x",)).lfbo_aot_spec
    x = torch.arange(24.0).reshape(4, 6)[:, 1:4]
    seen = []

    def host(given, factor, _launcher=launcher):
        seen.append(given.clone())
        given.zero_()
        _launcher(Kernel(1), (1,), given)
        seen.append(given)

    before = x.clone()
    assert trial.why_not_run(spec, host, (x, 2.0)) is None
    assert torch.equal(x, before)
    assert torch.equal(seen[0], before)
    assert seen[1].stride() == x.stride()
    assert seen[1].data_ptr() % 16 == x.data_ptr() % 16
    spec = declare().lfbo_aot_spec
    trial.why_not_run(spec, host, (x, 2.0))
    assert seen[3] is x


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(6.0).reshape(2, 3).t(),
        torch.arange(10, dtype=torch.int8)[3:],
        torch.arange(3.0).expand(4, 3),
        torch.empty(0, 3),
        torch.tensor(5.0),
        torch.arange(4.0, requires_grad=True),
    ],
    ids=["transposed", "unaligned", "expanded", "empty", "scalar", "with a gradient"],
)
def test_copies_look_like_their_original(tensor):
    (copy,) = trial._copy([tensor])
    assert torch.equal(copy, tensor)
    assert copy.dtype == tensor.dtype
    assert copy.untyped_storage().data_ptr() != tensor.untyped_storage().data_ptr() or not len(copy)
    if tensor.numel() and 0 not in tensor.stride():
        assert copy.stride() == tensor.stride()
        assert copy.data_ptr() % 16 == tensor.data_ptr() % 16


@pytest.mark.usefixtures("on_gpu")
def test_a_seed_that_host_code_draws_is_drawn_again_by_the_call():
    spec = declare().lfbo_aot_spec
    drawn = []

    def host(x, factor, _launcher=launcher):
        drawn.append(torch.randint(1 << 30, ()).item())

    torch.manual_seed(7)
    trial.why_not_run(spec, host, (X, 2.0))
    host(X, 2.0)
    assert drawn[0] == drawn[1]


def test_only_tensors_that_a_kernel_can_be_launched_on_are_tried(monkeypatch):
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        fake = torch.ones(4)
    meta = torch.ones(4, device="meta")
    assert not trial._runs_here((X, 2.0))
    monkeypatch.setattr(hardware, "interpreted", lambda: True)
    assert trial._runs_here((X, 2.0))
    assert trial._runs_here((torch.nn.Parameter(X),))
    assert not trial._runs_here((X, fake))
    assert not trial._runs_here((meta,))


WRITES = """
def plain(x, _launcher=None):
    out = torch.empty_like(x)
    _launcher(kernel, (1,), x, out, num_warps=4)
    return out

def in_place(x, _launcher=None):
    x.add_(1)
    return plain(x)

def by_index(x, _launcher=None):
    x[0] = 1

def augmented(x, _launcher=None):
    x += 1

def given(x, _launcher=None):
    torch.add(x, 1, out=x)
"""


def test_host_code_that_may_write_gets_copies_of_all(tmp_path):
    path = tmp_path / "generated.py"
    path.write_text(WRITES)
    made = {}
    exec(compile(WRITES, str(path), "exec"), made)
    found = {name: trial.may_write(made[name]) for name in made if not name.startswith("_")}
    assert found == {
        "plain": False,
        "in_place": True,
        "by_index": True,
        "augmented": True,
        "given": True,
    }
    assert trial.may_write(len)  # it can't be told
    x = torch.ones(4)
    spec = SimpleNamespace(mutates=(), signature=inspect.signature(lambda x: x))
    assert trial._copied(spec, made["plain"], (x,))[0] is x
    (copy,) = trial._copied(spec, made["in_place"], (x,))
    assert copy is not x
    assert torch.equal(copy, x)
