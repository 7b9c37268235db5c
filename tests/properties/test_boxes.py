"""Buckets partition what is declared, and keys say which bucket: for any dims that may be declared."""

from __future__ import annotations

import itertools
import sys
import tempfile

import pytest
from hypothesis import HealthCheck
from hypothesis import assume
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

import lfbo_aot
from lfbo_aot import Exact
from lfbo_aot import Range
from lfbo_aot.errors import DeclarationError
from lfbo_aot.errors import ShapeError
from lfbo_aot.registry.buckets import Bucket
from lfbo_aot.registry.buckets import enumerate_buckets
from lfbo_aot.registry.buckets import part_contains
from lfbo_aot.registry.buckets import part_text
from lfbo_aot.registry.dims import Interval
from lfbo_aot.registry.dims import check_text
from lfbo_aot.registry.dims import dim_from_json

PROPERTY = settings(max_examples=70, deadline=None, derandomize=True)
ON_DISK = settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)

KERNEL = "mykern.norm"
DEVICE = "sm90/NVIDIA H200"
NAMES = ("m", "n", "causal", "mode", "k_2")


def can_be_text(text):
    try:
        check_text(text)
    except DeclarationError:
        return False
    return True


TEXTS = st.text(min_size=1, max_size=6).filter(can_be_text)
NUMBERS = st.integers(-4, 12) | st.integers(-(2**70), 2**70)
VALUES = st.one_of(st.booleans(), TEXTS, NUMBERS)


@st.composite
def ranges(draw):
    lo = draw(st.integers(0, 40) | st.integers(0, 2**64))
    hi = lo + draw(st.integers(0, 60) | st.integers(0, 2**66))
    how = draw(st.sampled_from(["one part", "factor", "edges"]))
    if how == "factor":
        least = 2 if hi < 10_000 else 2**16  # else there are too many parts to look at
        return Range(lo, hi, factor=draw(st.integers(least, least * 4)))
    if how == "edges" and hi > lo:
        edges = draw(st.sets(st.integers(lo, hi - 1), max_size=4))
        return Range(lo, hi, edges=sorted(edges))
    return Range(lo, hi)


def exacts():
    distinct = st.lists(VALUES, min_size=1, max_size=4, unique_by=lambda v: (type(v), v))
    return distinct.map(lambda values: Exact(*values))


def declared(max_dims=3):
    """Dims, in an order of their own."""
    names = st.lists(st.sampled_from(NAMES), min_size=1, max_size=max_dims, unique=True)
    return names.flatmap(
        lambda chosen: st.fixed_dictionaries({name: ranges() | exacts() for name in chosen})
    )


def ends(dim):
    """The values of a dim where a part begins or ends."""
    parts = dim.parts()
    return [v for p in parts for v in ((p.lo, p.hi) if isinstance(p, Interval) else (p,))]


def value_in(draw, dim):
    inside = st.sampled_from(ends(dim))
    return draw(inside | st.integers(dim.lo, dim.hi) if isinstance(dim, Range) else inside)


def shape_in(draw, dims):
    return {name: value_in(draw, dim) for name, dim in dims.items()}


def is_declared(dim, value):
    return any(part_contains(part, value) for part in dim.parts())


def value_outside(draw, dim):
    """A value that the dim doesn't take, most often one that is nearly one of its own."""
    near = [v + by for v in ends(dim) if type(v) is int for by in (-1, 1)]
    alike = [bool(v) if type(v) is int else int(v) for v in ends(dim) if v in (0, 1)]
    value = draw(st.sampled_from([*near, *alike]) | VALUES if near or alike else VALUES)
    assume(not is_declared(dim, value))
    return value


def holding(buckets, shape):
    return [bucket for bucket in buckets if bucket.contains(shape)]


@PROPERTY
@given(st.data(), declared())
def test_each_declared_shape_lies_in_exactly_one_bucket(data, dims):
    shape = shape_in(data.draw, dims)
    (bucket,) = holding(enumerate_buckets(dims), shape)
    assert bucket.names == tuple(dims)
    assert bucket.contains(bucket.point)
    assert all(bucket.contains(probe) for probe in bucket.probes)


@PROPERTY
@given(st.data(), declared())
def test_no_undeclared_shape_lies_in_any_bucket(data, dims):
    shape = shape_in(data.draw, dims)
    name = data.draw(st.sampled_from(list(dims)))
    shape[name] = value_outside(data.draw, dims[name])
    assert holding(enumerate_buckets(dims), shape) == []


@PROPERTY
@given(declared())
def test_no_two_buckets_overlap_and_together_they_are_as_large_as_the_dims(dims):
    buckets = enumerate_buckets(dims)
    for one, other in itertools.combinations(buckets[:40], 2):
        assert not one.overlaps(other)
    size = 1
    for dim in dims.values():
        size *= dim.hi - dim.lo + 1 if isinstance(dim, Range) else len(dim.values)
    assert sum(bucket.volume for bucket in buckets) == size


@PROPERTY
@given(declared())
def test_a_declaration_read_back_has_the_same_buckets_and_their_keys_read_back_as_they(dims):
    again = {name: dim_from_json(dim.to_json()) for name, dim in dims.items()}
    buckets = enumerate_buckets(dims)
    assert enumerate_buckets(again) == buckets
    keys = [bucket.key for bucket in buckets]
    assert len(set(keys)) == len(keys)
    for bucket in buckets:
        found = Bucket.parse(bucket.key)
        assert found == bucket
        assert found.parts == bucket.parts
        assert [type(part) for _, part in found.parts] == [type(part) for _, part in bucket.parts]


@pytest.mark.usefixtures("isolated")
def test_a_range_without_an_end_worth_the_name(write_database, make_entry, tmp_path):
    """What len() can't count."""
    dims = {"m": Range(0, sys.maxsize)}
    (bucket,) = enumerate_buckets(dims)
    assert bucket.volume == sys.maxsize + 1
    lfbo_aot.use_database(
        write_database(tmp_path / "t", {KERNEL: {bucket.key: make_entry(2)}}, dims=dims)
    )
    assert lfbo_aot.resolve(KERNEL, (5,), DEVICE).status == "exact"


SHAPES = st.dictionaries(st.sampled_from(NAMES), VALUES, min_size=1, max_size=3)


@PROPERTY
@given(st.data(), SHAPES)
def test_two_shapes_never_have_one_key(data, shape):
    """Of one kernel's dims, which are in one order; `True` isn't 1, and no text is a number."""
    alike = {name: st.just(value) | VALUES for name, value in shape.items()}
    drawn = data.draw(st.fixed_dictionaries(alike))
    other = {name: drawn[name] for name in shape}
    same = all(type(shape[name]) is type(other[name]) for name in shape) and shape == other
    one, two = (Bucket(tuple(s.items())) for s in (shape, other))
    assert (one.key == two.key) == same
    assert Bucket.parse(one.key).contains(shape)
    assert Bucket.parse(one.key).contains(other) == same


@PROPERTY
@given(st.data(), declared())
def test_a_value_of_another_part_makes_another_key(data, dims):
    shape = shape_in(data.draw, dims)
    name = data.draw(st.sampled_from(list(dims)))
    moved = {**shape, name: value_in(data.draw, dims[name])}
    buckets = enumerate_buckets(dims)
    (before,), (after,) = holding(buckets, shape), holding(buckets, moved)

    def part_of(value):
        return next(part_text(p) for p in dims[name].parts() if part_contains(p, value))

    assert (before.key == after.key) == (part_of(shape[name]) == part_of(moved[name]))


def small(dims):
    return len(enumerate_buckets(dims)) <= 24


@pytest.mark.usefixtures("isolated")
@ON_DISK
@given(st.data(), declared(max_dims=2).filter(small))
def test_a_look_up_serves_each_shape_from_its_own_bucket(write_database, make_entry, data, dims):
    buckets = enumerate_buckets(dims)
    entries = {b.key: make_entry(number) for number, b in enumerate(buckets, start=1)}
    shape = shape_in(data.draw, dims)
    (bucket,) = holding(buckets, shape)
    outside = dict(shape)
    name = data.draw(st.sampled_from(list(dims)))
    outside[name] = value_outside(data.draw, dims[name])
    with tempfile.TemporaryDirectory() as folder:
        path = write_database(f"{folder}/tuned", {KERNEL: entries}, dims=dims)
        with lfbo_aot.use_database(path):
            found = lfbo_aot.resolve(KERNEL, shape, DEVICE)
            assert (found.status, found.key) == ("exact", f"NVIDIA H200|{bucket.key}")
            assert found.config["num_warps"] == entries[bucket.key].config["num_warps"]
            by_order = lfbo_aot.resolve(KERNEL, tuple(shape.values()), DEVICE)
            assert by_order.key == found.key
            try:
                missed = lfbo_aot.resolve(KERNEL, outside, DEVICE)
            except ShapeError:
                kinds = {int if isinstance(v, Interval) else type(v) for v in dims[name].parts()}
                # A value of another type than any that the dim takes.
                assert type(outside[name]) not in kinds
            else:
                assert (missed.status, dict(missed.config)) == ("default", {})
