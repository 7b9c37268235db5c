"""What must hold of look-ups that a kernel's own calls make: L2, L3, L7.

On CPU tensors a kernel binds and generates code, which is all that setting a config needs.
"""

from __future__ import annotations

import logging
import shlex

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("helion")
triton = pytest.importorskip("triton")

import lfbo_aot  # noqa: E402
from lfbo_aot.errors import DeclarationError  # noqa: E402
from lfbo_aot.errors import ShapeError  # noqa: E402
from lfbo_aot.errors import TuningError  # noqa: E402
from lfbo_aot.registry.devices import CPU  # noqa: E402
from lfbo_aot.runtime import trial  # noqa: E402

from .conftest import BOX  # noqa: E402
from .conftest import OPS  # noqa: E402
from .conftest import said  # noqa: E402
from .conftest import set_default  # noqa: E402
from .conftest import set_warps  # noqa: E402
from .conftest import warps  # noqa: E402

pytestmark = pytest.mark.usefixtures("isolated")

X = torch.ones(32)


# L2


@pytest.fixture
def compiler(monkeypatch):
    """Triton's compiler, as far as it refuses: 8 warps can't be compiled, 16 can't be loaded."""
    asked = []

    class Binary:
        def __init__(self, count):
            self.count = count

        def _init_handles(self):
            if self.count == 16:
                msg = "out of resource: shared memory, Required: 300000, Hardware limit: 232448"
                raise RuntimeError(msg)

    def run(kernel, *args, num_warps, warmup, **options):
        assert warmup, "nothing is launched"
        asked.append(num_warps)
        if num_warps == 8:
            msg = "PassManager::run failed"
            raise RuntimeError(msg)
        return Binary(num_warps)

    monkeypatch.setattr(triton.JITFunction, "run", run)
    monkeypatch.setattr(trial, "_runs_here", lambda args: True)
    return asked


def test_l2_what_does_not_compile_or_load_falls_back_to_alternates_then_the_default(
    project, tuned, compiler, caplog
):
    kernel = project()
    failing = warps(8), warps(16)
    works = {"config": failing[0], "alternates": [failing[1], warps(2)]}
    hopeless = {"config": failing[0], "alternates": [failing[1]]}
    tuned(kernel, {BOX: works, "n=65..256|causal=false|dtype=float32": hopeless}, X)
    with caplog.at_level(logging.WARNING, "lfbo_aot"):
        assert set_warps(kernel, X) == 2
        (text,) = said(caplog)
        # The one is bad for this process; the other needs too much, which it may not at other sizes.
        # Neither is spoken of again.
        assert set_warps(kernel, torch.ones(48)) == 2
        assert set_default(kernel, torch.ones(128))
        assert said(caplog) == [text]
    assert compiler == [8, 16, 2, 16, 2, 16]
    assert "mykern.scale" in text
    assert "its alternate number 2 is served" in text
    assert "PassManager::run failed" in text
    assert "Required: 300000, Hardware limit: 232448" in text


def test_l2_where_no_alternate_works_the_default_is_served_with_one_warning(
    project, tuned, compiler, caplog
):
    kernel = project()
    tuned(kernel, {BOX: {"config": warps(8), "alternates": [warps(16)]}}, X)
    with caplog.at_level(logging.WARNING, "lfbo_aot"):
        assert set_default(kernel, X)
        assert set_default(kernel, torch.ones(48))
    (text,) = said(caplog)
    assert "Helion's default is served" in text
    assert compiler == [8, 16, 16]


# L3


def test_l3_a_miss_names_its_key_the_nearest_key_and_a_command_that_tunes_it(
    project, tuned, command, caplog, tmp_path
):
    kernel = project()
    rest = "|causal=false|dtype=float32"
    held = {BOX: {}, f"n=1..4{rest}": {}, f"n=5..16{rest}": {}, f"n=1025..4096{rest}": {}}
    tuned(kernel, held, X)
    for _ in range(2):
        assert set_default(kernel, torch.ones(128), True)
        kernel.reset()
    (text,) = said(caplog)
    assert "miss: nothing is held for cpu/CPU|n=128|causal=true|dtype=float32;" in text
    assert f"nearest held: cpu/CPU|{BOX};" in text
    advice, _, hint = text.rpartition("tune it: ")[2].partition(" (")
    program, tune, *words = shlex.split(advice)
    assert (program, tune, hint) == (
        "lfbo-aot",
        "tune",
        "with --module where no package announces it)",
    )
    # The command does what it says: it tunes the bucket that holds the shape, and no other.
    more = ["--module", "mykern.ops", "--dry-run", "--device", "gpu", "--into", tmp_path / "into"]
    _, plan = command("tune", *words, *more)
    assert [row["bucket"] for row in plan["buckets"]] == ["n=65..256|causal=true|dtype=float32"]


# L7


@pytest.mark.parametrize("static", [True, False], ids=["static", "dynamic"])
def test_l7_a_change_of_any_dim_is_another_key_and_another_config(project, tuned, static):
    kernel = project(ops=OPS.replace("dims={", f"static_shapes={static}, dims={{", 1))
    sizes = {"n=17..64": 32, "n=65..256": 128}
    dtypes = (torch.float32, torch.float16)
    calls = [(n, causal, dtype) for n in sizes for causal in (False, True) for dtype in dtypes]
    stored = [(1 << (at % 4), [16 << (at // 4)]) for at in range(len(calls))]
    for dtype in dtypes:
        held = {}
        for (n, causal, of), (count, blocks) in zip(calls, stored, strict=True):
            if of is dtype:
                box = f"{n}|causal={str(causal).lower()}|dtype={str(dtype).removeprefix('torch.')}"
                held[box] = {"config": warps(count, block_sizes=blocks)}
        tuned(kernel, held, torch.ones(32, dtype=dtype))
    found = []
    for n, causal, dtype in calls * 2:
        bound = kernel.bind((torch.ones(sizes[n], dtype=dtype), causal))
        found.append((bound._config["num_warps"], bound._config["block_sizes"]))
    assert found == stored * 2
    keys = {
        lfbo_aot.resolve(kernel, (sizes[n], causal, dtype), CPU).key for n, causal, dtype in calls
    }
    assert len(keys) == 8


def test_l7_a_tensor_that_is_no_part_of_the_shape_but_of_the_code_is_no_hit(project, tuned):
    kernel = project()
    path = tuned(kernel, {BOX: {"config": warps(8)}}, X)
    assert set_warps(kernel, X) == 8
    strided = lfbo_aot.resolve(kernel, kernel.normalize_args(torch.ones(64)[::2]))
    assert strided.status == "default"
    place = f"({path}: CPU|{BOX})"
    assert strided.reasons == (
        f"layout: entry=0:float32 flag=False here=0*/:float32 flag=False {place}",
    )
    other = project("fast", ops=OPS.replace("dims={", "fast_math=True, dims={", 1))
    fast = lfbo_aot.resolve(other, other.normalize_args(X))
    assert fast.status == "default"
    assert fast.reasons == (f"settings: fast_math: entry=False here=True {place}",)


def test_l7_a_flag_that_changes_the_code_and_is_no_dim_is_no_hit(project, tuned):
    kernel = project()
    tuned(kernel, {BOX: {"config": warps(8)}}, X)
    codes = {kernel.bind((X, False, flag)).to_triton_code() for flag in (False, True)}
    assert len(codes) == 2
    found = lfbo_aot.resolve(kernel, kernel.normalize_args(X, False, True))
    assert (found.status, set_default(kernel, X, False, True)) == ("default", True)
    assert found.reasons[0].startswith(
        "layout: entry=0:float32 flag=False here=0:float32 flag=True"
    )
    assert set_warps(kernel, X, False, False) == set_warps(kernel, X) == 8


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("dims={", "key=lambda *args: 1, dims={", "key= can't be given"),
        ("dims={", "config={}, dims={", "config= can't be given"),
        ("lambda x, causal, flag", "lambda x, causal", "can't take the kernel's arguments"),
        ('"n": Range(1, 4096, factor=4)', '"n": Range(9, 3)', "dim 'n'"),
    ],
)
def test_l7_what_would_pick_a_config_beside_the_dims_is_an_error_at_registration(
    project, old, new, says
):
    assert old in OPS
    with pytest.raises(DeclarationError, match=says):
        project(ops=OPS.replace(old, new, 1))


@pytest.mark.parametrize(
    ("old", "new", "error", "says"),
    [
        ('"causal": causal, ', "", ShapeError, "dim 'causal': declared, but not among"),
        ('"dtype": x.dtype}', '"dtype": x.dtype, "k": 1}', ShapeError, "dim 'k': not a declared"),
        ('shape["causal"])', "True)", TuningError, "would answer for the wrong shape"),
    ],
)
def test_l7_a_shape_that_is_not_the_declared_one_is_an_error_at_tuning(
    project, old, new, error, says
):
    assert old in OPS
    kernel = project(ops=OPS.replace(old, new, 1))
    shape = {"n": 64, "causal": False, "dtype": "float32"}
    with pytest.raises(error, match=says):
        kernel.lfbo_aot_spec.make_inputs(shape, "cpu")
