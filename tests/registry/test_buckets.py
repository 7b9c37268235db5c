from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lfbo_aot.errors import DeclarationError
from lfbo_aot.registry.buckets import Bucket
from lfbo_aot.registry.buckets import enumerate_buckets
from lfbo_aot.registry.dims import Exact
from lfbo_aot.registry.dims import Interval
from lfbo_aot.registry.dims import Range

names = st.sampled_from(["m", "n", "k", "dtype", "causal", "head_dim", "größe"])
texts = st.text("abcxyz_-.+:/é", min_size=1, max_size=8).filter(
    lambda t: ".." not in t and not t.lstrip("-").isdigit() and t not in ("true", "false")
)
intervals = st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)).map(
    lambda ends: Interval(min(ends), max(ends))
)
parts = st.one_of(intervals, st.integers(-(10**9), 10**9), st.booleans(), texts)
boxes = st.dictionaries(names, parts, min_size=1, max_size=5).map(
    lambda found: Bucket(tuple(found.items()))
)


def box(**found):
    return Bucket(tuple((n, Interval(*p) if isinstance(p, tuple) else p) for n, p in found.items()))


def test_key():
    bucket = box(m=(1025, 4096), n=5120, dtype="bfloat16", causal=True)
    assert bucket.key == "m=1025..4096|n=5120|dtype=bfloat16|causal=true"
    assert str(bucket) == bucket.key


@given(boxes)
def test_every_key_is_read_back(bucket):
    read = Bucket.parse(bucket.key)
    assert read == bucket
    assert read.parts == bucket.parts
    assert [type(p) for _, p in read.parts] == [type(p) for _, p in bucket.parts]
    assert hash(read) == hash(bucket)


@given(st.text(max_size=30))
def test_what_is_read_is_written_the_same(text):
    try:
        bucket = Bucket.parse(text)
    except ValueError:
        return
    assert bucket.key == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "m",
        "m=",
        "=3",
        "m=1|",
        "|m=1",
        "m=1|m=2",
        "m=4..1",
        "m=1..",
        "m=..2",
        "m=1..2..3",
        "m=01",
        "m=-0",
        "m=1..02",
        "m=a b",
        "m==1",
        "m n=1",
        "1=2",
        "m=a\n",
        "m=+1..2",
    ],
)
def test_malformed_keys_are_refused(text):
    with pytest.raises(ValueError, match="bucket"):
        Bucket.parse(text)


def test_equality_is_that_of_keys():
    assert box(m=1) != box(m=True)
    assert box(m=1, n=2) != box(n=2, m=1)
    assert len({box(m=1), box(m=True), box(m=1)}) == 2
    assert pickle.loads(pickle.dumps(box(m=(1, 2)))) == box(m=(1, 2))


def test_contains_wants_the_same_dims_and_types():
    bucket = box(m=(5, 16), dtype="float16", causal=True)
    shape = {"dtype": "float16", "m": 5, "causal": True}
    assert bucket.contains(shape)
    assert bucket.contains({**shape, "m": 16})
    assert not bucket.contains({**shape, "m": 4})
    assert not bucket.contains({**shape, "m": 17})
    assert not bucket.contains({**shape, "causal": 1})
    assert not bucket.contains({**shape, "extra": 1})
    assert not bucket.contains({"m": 5, "dtype": "float16"})
    assert not box(m=(0, 1)).contains({"m": True})
    assert not box(m=1).contains({"m": True})


def test_point_and_probes():
    bucket = box(m=(17, 64), n=(100, 400), dtype="float16")
    assert bucket.point == {"m": 64, "n": 400, "dtype": "float16"}
    assert bucket.probes == (
        {"m": 17, "n": 100, "dtype": "float16"},
        {"m": 32, "n": 200, "dtype": "float16"},
    )
    assert box(m=5, dtype="float16").probes == ()
    assert box(m=(7, 7)).probes == ()
    assert box(m=(1, 2)).probes == ({"m": 1},)
    assert box(m=(0, 100)).probes == ({"m": 0}, {"m": 10})


@given(boxes)
def test_point_and_probes_lie_inside_and_differ(bucket):
    found = [bucket.point, *bucket.probes]
    assert all(bucket.contains(shape) for shape in found)
    assert all(a != b for i, a in enumerate(found) for b in found[:i])


def test_volume():
    assert box(m=(1, 4), n=(5, 6), dtype="float16").volume == 8
    assert box(m=3).volume == 1


DIMS = {"m": Range(1, 16, factor=4), "n": Exact(64, 128), "dtype": Exact("float16")}


def test_product_in_declared_order():
    assert [b.key for b in enumerate_buckets(DIMS, None)] == [
        "m=1..4|n=64|dtype=float16",
        "m=1..4|n=128|dtype=float16",
        "m=5..16|n=64|dtype=float16",
        "m=5..16|n=128|dtype=float16",
    ]


def test_listed_boxes_take_the_declared_order():
    found = enumerate_buckets(
        DIMS, [{"dtype": "float16", "n": 64, "m": (1, 8)}, {"m": 9, "n": 64, "dtype": "float16"}]
    )
    assert [b.key for b in found] == ["m=1..8|n=64|dtype=float16", "m=9|n=64|dtype=float16"]


ITEM = {"m": 4, "n": 64, "dtype": "float16"}


@pytest.mark.parametrize(
    ("listed", "dim", "said"),
    [
        pytest.param([], None, "empty list", id="empty"),
        pytest.param([ITEM, {**ITEM, "m": (1, 4)}], None, r"\[0\].*\[1\].*overlap", id="overlap"),
        pytest.param([ITEM, ITEM], None, "overlap", id="twice"),
        pytest.param([{"m": 4, "n": 64}], "dtype", "doesn't give", id="missing"),
        pytest.param([{**ITEM, "k": 1}], None, "'k'", id="unknown"),
        pytest.param([{**ITEM, "n": 65}], "n", "outside", id="value"),
        pytest.param([{**ITEM, "n": (64, 128)}], "n", "outside", id="interval of exact"),
        pytest.param([{**ITEM, "m": (1, 17)}], "m", "outside", id="interval"),
        pytest.param([{**ITEM, "m": (4, 1)}], "m", "empty", id="reversed"),
        pytest.param([{**ITEM, "m": (1, 2, 3)}], "m", "lo, hi", id="three ends"),
        pytest.param([{**ITEM, "m": True}], "m", "outside", id="bool for a size"),
        pytest.param([3], None, "mapping", id="not a mapping"),
    ],
)
def test_listed_boxes_must_fit_the_dims(listed, dim, said):
    with pytest.raises(DeclarationError, match=said) as caught:
        enumerate_buckets(DIMS, listed)
    assert caught.value.dim == dim


@pytest.mark.parametrize(
    ("dims", "dim"),
    [
        ({}, None),
        ({"m": Range(3, 1)}, "m"),
        ({"m": Range(1, 2), "dtype": Exact("float61")}, "dtype"),
        ({"dtype": Range(1, 2)}, "dtype"),
        ({"m": 5}, "m"),
        ({"m n": Exact(1)}, None),
    ],
)
def test_impossible_dims_are_named(dims, dim):
    with pytest.raises(DeclarationError) as caught:
        enumerate_buckets(dims)
    assert caught.value.dim == dim


@given(st.integers(1, 300), st.integers(2, 5), st.integers(1, 400))
def test_each_shape_of_the_dims_lies_in_one_bucket(hi, factor, m):
    buckets = enumerate_buckets({"m": Range(1, hi, factor=factor), "n": Exact(1, 2)})
    for n in (1, 2, 3):
        holding = [b for b in buckets if b.contains({"m": m, "n": n})]
        assert len(holding) == (1 if m <= hi and n < 3 else 0)
