from __future__ import annotations

import enum
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lfbo_aot.errors import DeclarationError
from lfbo_aot.registry.dims import Exact
from lfbo_aot.registry.dims import Interval
from lfbo_aot.registry.dims import Range
from lfbo_aot.registry.dims import check_dtype
from lfbo_aot.registry.dims import dim_from_json
from lfbo_aot.registry.dims import normalize_value


def pairs(dim):
    return [(part.lo, part.hi) for part in dim.parts()]


def test_factor_multiplies_the_upper_ends_and_clips_the_last():
    assert pairs(Range(1, 100, factor=4)) == [(1, 4), (5, 16), (17, 64), (65, 100)]
    assert pairs(Range(3, 50, factor=4)) == [(3, 12), (13, 48), (49, 50)]
    assert pairs(Range(1, 64, factor=4))[-1] == (17, 64)
    assert len(Range(1, 65536, factor=4).parts()) == 8


def test_edges_are_the_last_values_of_their_parts():
    assert pairs(Range(1, 1000, edges=[16, 256])) == [(1, 16), (17, 256), (257, 1000)]
    assert pairs(Range(16, 20, edges=[16])) == [(16, 16), (17, 20)]


def test_a_range_without_a_cut_is_one_part():
    assert pairs(Range(1, 8)) == [(1, 8)]
    assert pairs(Range(5, 5)) == [(5, 5)]
    assert pairs(Range(0, 0, factor=2)) == [(0, 0)]


@pytest.mark.parametrize(
    ("dim", "said"),
    [
        pytest.param(Range(2, 1), "empty", id="reversed"),
        pytest.param(Range(-1, 4), "below 0", id="negative"),
        pytest.param(Range(1, 9, factor=1), "2 or more", id="factor"),
        pytest.param(Range(1, 9, factor=2, edges=[3]), "both", id="both"),
        pytest.param(Range(1, 9, edges=[4, 3]), "overlap", id="unsorted"),
        pytest.param(Range(1, 9, edges=[4, 4]), "empty", id="twice"),
        pytest.param(Range(1, 9, edges=[9]), "1..8", id="edge at hi"),
        pytest.param(Range(4, 9, edges=[3]), "4..8", id="edge below lo"),
        pytest.param(Range(1, 2.5), "number", id="fraction"),
        pytest.param(Range(1, True), "whole number", id="bool"),
        pytest.param(Exact(), "empty", id="no values"),
        pytest.param(Exact(4, 4), "twice", id="value twice"),
        pytest.param(Exact(1.5), "float", id="float value"),
        pytest.param(Exact("a|b"), "separate", id="separator"),
        pytest.param(Exact("a=b"), "separate", id="equals"),
        pytest.param(Exact("1..2"), "separate", id="dots"),
        pytest.param(Exact("a b"), "white space", id="blank"),
        pytest.param(Exact("a\x00"), "control", id="control"),
        pytest.param(Exact("a\u00a0b"), "white space", id="no-break blank"),
        pytest.param(Exact("12"), "read back", id="digits"),
        pytest.param(Exact("-3"), "read back", id="negative digits"),
        pytest.param(Exact("true"), "read back", id="true"),
        pytest.param(Exact(""), "empty", id="empty text"),
    ],
)
def test_impossible_dims_say_why(dim, said):
    with pytest.raises(DeclarationError, match=said):
        dim.parts()


def test_one_and_true_are_two_values():
    assert Exact(1, True, "one").parts() == (1, True, "one")


@given(st.integers(0, 500), st.integers(0, 5000), st.integers(2, 9))
def test_factor_parts_cover_the_range_once(lo, length, factor):
    parts = Range(lo, lo + length, factor=factor).parts()
    assert [n for part in parts for n in range(part.lo, part.hi + 1)] == list(
        range(lo, lo + length + 1)
    )


@given(st.integers(0, 50), st.integers(1, 200), st.data())
def test_edge_parts_cover_the_range_once(lo, length, data):
    edges = sorted(data.draw(st.sets(st.integers(lo, lo + length - 1), max_size=8)))
    parts = Range(lo, lo + length, edges=edges).parts()
    assert len(parts) == len(edges) + 1
    assert [n for part in parts for n in range(part.lo, part.hi + 1)] == list(
        range(lo, lo + length + 1)
    )


class Size(enum.IntEnum):
    BIG = 4096


class Kind(str, enum.Enum):
    CAUSAL = "causal"


def like(module, name, **fields):
    """An object of a class that says it is `module.name`, so that torch need not be imported."""
    made = type(name, (SimpleNamespace,), {"__module__": module, "__str__": lambda s: s.text})
    return made(**fields)


def test_normalize_value():
    assert normalize_value(5) == 5
    assert normalize_value(Size.BIG) == 4096
    assert type(normalize_value(Size.BIG)) is int
    assert normalize_value(Kind.CAUSAL) == "causal"
    assert type(normalize_value(Kind.CAUSAL)) is str
    assert normalize_value(False) is False
    assert normalize_value("torch.bfloat16") == "bfloat16"
    assert normalize_value("torch.special") == "torch.special"
    assert normalize_value(like("torch", "dtype", text="torch.float16")) == "float16"


def test_normalize_value_of_numpy_and_torch():
    numpy = pytest.importorskip("numpy")
    torch = pytest.importorskip("torch")
    assert type(normalize_value(numpy.int64(7))) is int
    assert normalize_value(numpy.uint8(7)) == 7
    assert normalize_value(numpy.bool_(True)) is True
    assert normalize_value(torch.bfloat16) == "bfloat16"
    assert normalize_value(torch.zeros(3, 4).size(1)) == 4
    for wrong in (numpy.float32(1), numpy.zeros(2, int), torch.tensor(3), torch.device("cpu")):
        with pytest.raises(DeclarationError):
            normalize_value(wrong)


@pytest.mark.parametrize(
    "wrong", [None, 1.0, (1, 2), [1], b"x", object()], ids=lambda value: type(value).__name__
)
def test_other_values_are_refused(wrong):
    with pytest.raises(DeclarationError, match="value of a dim"):
        normalize_value(wrong)


def test_a_symbolic_size_is_named_as_such():
    with pytest.raises(DeclarationError, match="symbolic"):
        normalize_value(like("torch", "SymInt", text="s0"))


def test_dims_named_dtype_take_torch_dtypes_only():
    check_dtype("dtype", "bfloat16")
    check_dtype("cache_dtype", "float8_e4m3fn")
    check_dtype("mode", "anything")
    with pytest.raises(DeclarationError, match="'bfloat16'"):
        check_dtype("dtype", "bfloat61")
    with pytest.raises(DeclarationError, match="Use 'float16'"):
        check_dtype("out_dtype", "half")
    with pytest.raises(DeclarationError):
        check_dtype("dtype", 16)


@pytest.mark.parametrize(
    "dim",
    [Range(1, 9), Range(1, 9, factor=3), Range(0, 9, edges=(3, 5)), Exact(1, True, "a")],
    ids=str,
)
def test_dims_are_read_back_as_written(dim):
    assert dim_from_json(dim.to_json()) == dim


@pytest.mark.parametrize(
    "data",
    [
        None,
        {},
        {"range": [1]},
        {"range": [2, 1]},
        {"exact": []},
        {"exact": [1.5]},
        {"exact": 3},
        {"range": [1, 2], "exact": [1]},
        {"range": [1, 2], "step": 2},
        {"range": ["a", 2]},
    ],
    ids=repr,
)
def test_what_describes_no_dim_is_refused(data):
    with pytest.raises(ValueError):
        dim_from_json(data)


def test_interval_holds_whole_numbers_only():
    interval = Interval(1, 4)
    assert 1 in interval
    assert 4 in interval
    assert 5 not in interval
    assert True not in interval
    assert "1" not in interval
    assert len(interval) == 4
