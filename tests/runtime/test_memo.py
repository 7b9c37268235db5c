"""Answers kept: the same question gets the same answer, and another one its own."""

from __future__ import annotations

import sys
import types
from collections import defaultdict
from decimal import Decimal
from fractions import Fraction

import pytest

import lfbo_aot
from lfbo_aot.errors import DeviceUnavailableError
from lfbo_aot.errors import ShapeError
from lfbo_aot.errors import UnknownNameError
from lfbo_aot.registry.dims import Exact
from lfbo_aot.registry.dims import Range
from lfbo_aot.runtime import memo
from lfbo_aot.runtime import resolve as resolve_module
from lfbo_aot.runtime import state
from lfbo_aot.runtime.environment import Environment
from lfbo_aot.runtime.resolve import get_config
from lfbo_aot.runtime.resolve import resolve

pytestmark = pytest.mark.usefixtures("isolated")

KERNEL = "mykern.norm"
ARCH = "sm90/NVIDIA H200"
ONE = "m=0..16|causal=true"
OFF = "m=0..16|causal=false"
DIMS = {"m": Range(0, 64), "causal": Exact(True, False)}


@pytest.fixture
def served(tmp_path, write_database, make_entry):
    held = {KERNEL: {ONE: make_entry(1), OFF: make_entry(2)}}
    path = write_database(tmp_path / "tuned", held, dims=DIMS)
    lfbo_aot.use_database(path)
    return path


@pytest.fixture
def counted(monkeypatch):
    """How often a look-up went to the store."""
    calls = []
    real = resolve_module.look_up
    monkeypatch.setattr(resolve_module, "look_up", lambda *args: calls.append(args) or real(*args))
    return calls


def test_a_question_is_looked_up_once_however_its_dict_is_ordered(served, counted):
    first = get_config(KERNEL, {"m": 8, "causal": True}, ARCH)
    assert get_config(KERNEL, {"causal": True, "m": 8}, ARCH) is first
    assert resolve(KERNEL, {"causal": True, "m": 8}, ARCH).config is first
    assert len(counted) == 1
    assert get_config(KERNEL, {"m": 8, "causal": False}, ARCH)["num_warps"] == 2
    assert get_config(KERNEL, {"m": 8, "causal": True}, "sm90")["num_warps"] == 1
    assert len(counted) == 3


@pytest.mark.parametrize("m", [0, 1, 8])
def test_what_equals_a_kept_value_and_is_none_of_the_dim_stays_an_error(served, m):
    for causal in (True, False):
        get_config(KERNEL, {"m": m, "causal": causal}, ARCH)
    for wrong in (
        {"m": m, "causal": 1},
        {"m": m, "causal": 0.0},
        {"m": bool(m), "causal": True} if m < 2 else {"m": f"{m}", "causal": True},
    ):
        with pytest.raises(ShapeError):
            get_config(KERNEL, wrong, ARCH)
        with pytest.raises(ShapeError):
            resolve(KERNEL, wrong, ARCH)


def test_equal_numbers_get_equal_answers(served, counted):
    np = pytest.importorskip("numpy")
    config = get_config(KERNEL, {"m": np.int64(8), "causal": np.True_}, ARCH)
    assert config["num_warps"] == 1
    assert get_config(KERNEL, {"m": 8.0, "causal": True}, ARCH) == config
    assert get_config(KERNEL, {"m": 8, "causal": True}, ARCH) == config


def test_a_dict_that_holds_more_is_another_question(served):
    get_config(KERNEL, {"m": 8, "causal": True}, ARCH)
    with pytest.raises(UnknownNameError, match="'n'"):
        get_config(KERNEL, {"m": 8, "causal": True, "n": 3}, ARCH)
    with pytest.raises(ShapeError, match="missing"):
        get_config(KERNEL, {"m": 8}, ARCH)


def test_a_new_store_or_policy_gives_new_answers(served, tmp_path, write_database, make_entry):
    shape = {"m": 8, "causal": True}
    assert get_config(KERNEL, shape, ARCH)["num_warps"] == 1
    other = write_database(tmp_path / "other", {KERNEL: {ONE: make_entry(4)}}, dims=DIMS)
    with lfbo_aot.use_database(other):
        assert get_config(KERNEL, shape, ARCH)["num_warps"] == 4
    assert get_config(KERNEL, shape, ARCH)["num_warps"] == 1
    asked = "sm90/NVIDIA H100"
    assert get_config(KERNEL, shape, asked)["num_warps"] == 1
    with lfbo_aot.use_policy("exact"):
        assert get_config(KERNEL, shape, asked) == {}


def test_an_answer_of_a_store_that_has_changed_meanwhile_is_not_kept(served, monkeypatch):
    real = resolve_module.look_up

    def slow(*args):
        state.refresh()
        return real(*args)

    monkeypatch.setattr(resolve_module, "look_up", slow)
    get_config(KERNEL, {"m": 8, "causal": True}, ARCH)
    get_config(KERNEL, (8, True), ARCH)
    assert (memo.NAMED, memo.OTHER) == ({}, {})


def test_an_environment_is_known_by_itself(served, counted):
    here, same = (
        Environment(versions={"helion": "1.5.0"}),
        Environment(versions={"helion": "1.5.0"}),
    )
    args = KERNEL, (8, True), ARCH
    first = resolve(*args, environment=here)
    assert resolve(*args, environment=here) is first
    assert len(counted) == 1
    assert resolve(*args, environment=same) == first
    assert resolve(*args).fresh is None
    assert len(counted) == 3


def test_tables_do_not_grow_without_end(served, monkeypatch):
    monkeypatch.setattr(memo, "MOST", 8)
    for m in range(40):
        get_config(KERNEL, {"m": m, "causal": True}, ARCH)
        get_config(KERNEL, (m, True), ARCH)
        assert sum(len(n[3]) for of in memo.NAMED.values() for n in of.values()) <= 8
        assert len(memo.OTHER) <= 8
    assert get_config(KERNEL, {"m": 3, "causal": True}, ARCH)["num_warps"] == 1


def test_live_tensors_are_told_apart_by_all_that_an_answer_depends_on():
    torch = pytest.importorskip("torch")
    x = torch.empty(8, 4)
    same = memo.question("k", (torch.empty(8, 4), 1), None, None, None)
    assert memo.question("k", (x, 1), None, None, None) == same
    for other in (
        (torch.empty(4, 8).t(), 1),
        (torch.empty(8, 5), 1),
        (torch.empty(8, 4, dtype=torch.float16), 1),
        (torch.empty(8, 4, device="meta"), 1),
        (x, True),
        (x, 2),
        (x, None),
        (x,),
    ):
        assert memo.question("k", other, None, None, None) != same
    assert memo.question("k", (x, [x]), None, None, None) is None
    assert memo.question("k", (x, (x, x)), None, None, None) is None
    assert memo.question("k", (1, 2), None, None, None) is None  # the device here may change
    assert memo.question("k", (1, 2), ARCH, None, None) is not None


def test_a_torch_that_another_thread_is_loading_is_no_torch(served, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", types.ModuleType("torch"))
    assert resolve(KERNEL, (8, True), ARCH).status == "exact"
    assert resolve(KERNEL, {"m": 8, "causal": True}, ARCH, policy="any").status == "exact"
    with pytest.raises(DeviceUnavailableError):
        resolve(KERNEL, (8, True))


@pytest.mark.parametrize(
    "m", [Decimal(8), Fraction(8), complex(8), 8.0, "np.float32(8)", "np.int8(8)", "np.array(8)"]
)
def test_equal_questions_get_equal_answers_in_any_order(served, m):
    if isinstance(m, str):
        np = pytest.importorskip("numpy")
        m = eval(m, {"np": np})
    first = resolve(KERNEL, {"m": m, "causal": True}, ARCH)
    assert resolve(KERNEL, {"m": 8, "causal": True}, ARCH) == first
    assert resolve(KERNEL, {"m": m, "causal": True}, ARCH) == first
    assert resolve(KERNEL, (m, True), ARCH) == first


def test_a_dict_that_fills_itself_is_another_question(served):
    get_config(KERNEL, {"m": 8, "causal": True}, ARCH)
    with pytest.raises(UnknownNameError, match="typo"):
        get_config(KERNEL, defaultdict(lambda: True, {"m": 8, "typo": 1}), ARCH)
