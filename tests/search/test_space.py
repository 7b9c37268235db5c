from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from lfbo_aot.search import Choice
from lfbo_aot.search import Condition
from lfbo_aot.search import Integer
from lfbo_aot.search import ListOf
from lfbo_aot.search import Permutation
from lfbo_aot.search import PowerOfTwo
from lfbo_aot.search import Space


def rng(seed=0):
    return np.random.Generator(np.random.PCG64(seed))


@pytest.mark.parametrize(
    ("tunable", "value", "radius", "expected"),
    [
        (PowerOfTwo("b", 4, 64, 8), 16, 2, (4, 8, 32, 64)),
        (PowerOfTwo("b", 4, 64, 8), 4, 1, (8,)),
        (PowerOfTwo("b", 8, 8, 8), 8, 3, ()),
        (Integer("i", 0, 4, 0), 0, 1, (1,)),
        (Integer("i", -2, 4, 0), 1, 2, (-1, 0, 2, 3)),
        (Choice("c", (None, False, True), None), False, 1, (None, True)),
        (Permutation("p", 3), (0, 1, 2), 1, ((1, 0, 2), (2, 1, 0), (0, 2, 1))),
        (Permutation("p", 1), (0,), 1, ()),
        (
            ListOf("l", Choice("", ("a", "b"), "a"), 3),
            ("a", "b", "a"),
            1,
            (("b", "b", "a"), ("a", "a", "a"), ("a", "b", "b"), ("b", "b", "b")),
        ),
        (
            ListOf("l", Integer("", 0, 9, 0), 2),
            (3, 5),
            1,
            ((2, 5), (4, 5), (3, 4), (3, 6), (3, 3), (2, 2), (4, 4), (5, 5), (6, 6)),
        ),
        (ListOf("l", Choice("", ("a", "b"), "a"), 0), (), 1, ()),
    ],
    ids=lambda item: getattr(item, "kind", None),
)
def test_moves(tunable, value, radius, expected):
    assert tunable.moves(value, radius) == expected


@pytest.mark.parametrize(
    ("tunable", "value", "features"),
    [
        (PowerOfTwo("b", 1, 64, 8), 16, (4.0,)),
        (Integer("i", 0, 9, 0), 7, (7.0,)),
        (Choice("c", ("x", "y", "z"), "x"), "y", (0.0, 1.0, 0.0)),
        (Choice("c", (False, True), False), True, (1.0,)),
        (Choice("c", ("x",), "x"), "x", ()),
        (Permutation("p", 3), (2, 0, 1), (1.0, 2.0, 0.0)),
        (ListOf("l", PowerOfTwo("", 1, 8, 1), 2), (8, 2), (3.0, 1.0)),
    ],
)
def test_features(tunable, value, features):
    assert tunable.features(value) == features
    assert tunable.width == len(features)


@pytest.mark.parametrize(
    ("tunable", "size"),
    [
        (PowerOfTwo("b", 4, 64, 8), 5),
        (Integer("i", -1, 3, 0), 5),
        (Choice("c", ("x", "y"), "x"), 2),
        (Permutation("p", 4), 24),
        (ListOf("l", Integer("", 0, 2, 0), 3), 27),
        (ListOf("l", Integer("", 0, 2, 0), 0), 1),
    ],
)
def test_values_are_distinct_checked_and_as_many_as_the_size(tunable, size):
    values = list(tunable.values())
    assert len(values) == len(set(values)) == tunable.size == size
    assert [tunable.check(value) for value in values] == values


@pytest.mark.parametrize(
    ("tunable", "value"),
    [
        (PowerOfTwo("b", 4, 64, 8), 24),
        (PowerOfTwo("b", 4, 64, 8), 128),
        (PowerOfTwo("b", 1, 64, 8), True),
        (Integer("i", 0, 4, 0), True),
        (Integer("i", 0, 4, 0), 1.0),
        (Choice("c", (1, 2), 1), True),
        (Choice("c", (False, True), False), 1),
        (Choice("c", ("a",), "a"), object()),
        (Permutation("p", 2), (0, 0)),
        (Permutation("p", 2), (False, True)),
        (ListOf("l", Integer("", 0, 4, 0), 2), (1, 2, 3)),
        (ListOf("l", Integer("", 0, 4, 0), 2), (1, 9)),
    ],
)
def test_check_refuses_and_names_the_tunable(tunable, value):
    with pytest.raises(ValueError, match=f"tunable '{tunable.name}'"):
        tunable.check(value)


@pytest.mark.parametrize(
    "make",
    [
        lambda: PowerOfTwo("b", 3, 64, 4),
        lambda: PowerOfTwo("b", 64, 4, 8),
        lambda: PowerOfTwo("b", 4, 64, 2),
        lambda: PowerOfTwo("b", 4, 64, 8, "blocks"),
        lambda: Integer("i", 4, 0, 0),
        lambda: Choice("c", (), None),
        lambda: Choice("c", ("a", "a"), "a"),
        lambda: Choice("c", (0, False), 0),
        lambda: Choice("c", ("a",), "b"),
        lambda: Permutation("p", -1),
        lambda: ListOf("l", PowerOfTwo("b", 1, 8, 1, "block"), 2),
        lambda: Space((Integer("i", 0, 1, 0), Integer("i", 0, 1, 0)), (0, 0)),
        lambda: Space((Integer("i", 0, 1, 0),), (2,)),
        lambda: Space((Integer("i", 0, 1, 0),), (0, 0)),
        lambda: Space((Integer("i", 0, 1, 0),), (0,), (Condition("i", "j", (0,)),)),
        lambda: Space((Integer("i", 0, 1, 0),), (0,), (Condition("i", "i", (0,)),)),
        lambda: Space(
            (Integer("i", 0, 1, 0), Integer("j", 0, 1, 0)), (0, 0), (Condition("i", "j", (7,)),)
        ),
    ],
)
def test_declarations_that_can_not_hold_are_refused(make):
    with pytest.raises(ValueError):
        make()


def chain() -> Space:
    """`c` counts where `b` is 1 or 2, which counts where `a` is on."""
    tunables = (
        Integer("c", 0, 3, 0),
        Integer("b", 0, 2, 2),
        Choice("a", ("off", "on"), "off"),
    )
    conditions = (Condition("c", "b", (1, 2)), Condition("b", "a", ("on",)))
    return Space(tunables, (0, 2, "off"), conditions)


@pytest.mark.parametrize(
    ("point", "canonical", "active"),
    [
        ((3, 1, "on"), (3, 1, "on"), (True, True, True)),
        ((3, 0, "on"), (0, 0, "on"), (False, True, True)),
        # b takes its default 2, which would let c count; but b itself doesn't count.
        ((3, 1, "off"), (0, 2, "off"), (False, False, True)),
    ],
)
def test_inactive_tunables_take_their_defaults(point, canonical, active):
    space = chain()
    assert space.canonical(point) == canonical
    assert space.active(canonical) == active


def test_points_of_a_conditional_space_are_counted_once():
    space = chain()
    assert space.size == 24
    assert space.count == len(set(space.points())) == 1 + 1 + 2 * 4


def test_inactive_tunables_do_not_move():
    space = chain()
    near = set(space.neighbours((0, 2, "off"), rng(), 2, 200))
    assert near == {(0, 2, "on")}


def test_a_parent_that_moves_takes_its_children_along():
    space = chain()
    near = space.neighbours((3, 1, "on"), rng(), 1, 200)
    assert (0, 2, "off") in near
    assert all(space.canonical(point) == point for point in near)


def test_neighbours_always_change_a_block_size_and_the_warps(space):
    base = (64, 64, 8, 3, "persistent", 4, False, ("pointer",) * 5, (0, 1, 2))
    near = space.neighbours(base, rng(), 2, 500)
    assert len(near) == len(set(near)) > 300
    for point in near:
        changed = {
            name
            for name, a, b in zip([t.name for t in space.tunables], base, point, strict=True)
            if a != b
        }
        assert "warps" in changed
        assert abs(math.log2(point[2] / 8)) in (1, 2)
        steps = sorted(abs(math.log2(point[at] / 64)) for at in (0, 1))
        assert steps[1] in (1, 2)
        assert steps[0] in (0, 1)  # the other block size is one of the others: one step
        both = steps[0] > 0
        changed -= {"warps", "block_m", "block_n"}
        # A tunable may go back to its default where its parent moved; that is no change of its own.
        if point[4] == "flat":
            changed.discard("multiplier")
        assert len(changed) <= 2 - both
        assert abs(point[3] - 3) <= 1


def test_radius_bounds_the_steps(space):
    base = (64, 64, 8, 3, "persistent", 4, False, ("pointer",) * 5, (0, 1, 2))
    reached = {point[2] for point in space.neighbours(base, rng(), 1, 200)}
    assert reached == {4, 16}
    with pytest.raises(ValueError, match="radius"):
        space.neighbours(base, rng(), 0)


def test_without_blocks_and_warps_something_else_changes():
    space = Space((Integer("i", 0, 9, 0), Integer("j", 0, 9, 0)), (0, 0))
    assert set(space.neighbours((5, 5), rng(), 1, 100)) == {(4, 5), (6, 5), (5, 4), (5, 6)}


def test_a_space_of_one_point_has_no_neighbours():
    assert Space((Integer("i", 3, 3, 3),), (3,)).neighbours((3,), rng(), 2, 10) == []
    assert Space((), ()).neighbours((), rng(), 2, 10) == []


def test_samples_fit_the_threads_and_reach_every_value(space):
    generator = rng()
    points = [space.sample(generator) for _ in range(3000)]
    assert all(point[0] * point[1] <= min(32 * point[2] * 2048, 1 << 20) for point in points)
    assert {point[2] for point in points} == {1, 2, 4, 8, 16, 32}
    assert {point[6] for point in points} == {None, False, True}
    assert {point[8] for point in points} == set(Permutation("p", 3).values())
    assert all(space.canonical(point) == point for point in points)


def test_block_sizes_are_halved_together_to_their_lower_bounds():
    tunables = (
        PowerOfTwo("a", 1024, 1024, 1024, "block"),
        PowerOfTwo("b", 512, 1024, 512, "block"),
        PowerOfTwo("w", 1, 1, 1, "warps"),
    )
    space = Space(tunables, (1024, 512, 1))
    generator = rng()
    # 1024 x 512 is more than one warp's 32 x 2048 elements: nothing fits, so all are at the bottom.
    assert {space.sample(generator) for _ in range(50)} == {(1024, 512, 1)}


def test_encode_puts_the_features_side_by_side(space):
    point = (32, 128, 8, 2, "persistent", 4, True, ("pointer",) * 4 + ("descriptor",), (1, 0, 2))
    expected = [5, 7, 3, 2, 0, 1, 0, 2, 0, 0, 1, 0, 0, 0, 0, 1, 1, 0, 2]
    encoded = space.encode([point, space.default])
    assert encoded.shape == (2, space.width) == (2, 19)
    assert encoded[0].tolist() == expected
    assert space.encode([]).shape == (0, 19)


def test_json_round_trip(space):
    text = json.dumps(space.to_json(), allow_nan=False)
    again = Space.from_json(json.loads(text))
    assert again == space
    assert json.dumps(again.to_json()) == text
    assert again.digest == space.digest
    assert again.seeds == space.seeds
    assert chain() == Space.from_json(json.loads(json.dumps(chain().to_json())))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda r: r.pop("default"),
        lambda r: r["tunables"][0].update(kind="float"),
        lambda r: r["tunables"][0].update(extra=1),
        lambda r: r["tunables"][0].pop("low"),
        lambda r: r["tunables"][0].update(name=3),
        lambda r: r["tunables"].append(7),
        lambda r: r["tunables"][4].update(choices="flat"),
        lambda r: r["conditions"].append({"name": "stages"}),
        lambda r: r["default"].__setitem__(0, 17),
        lambda r: r["seeds"].append(5),
    ],
)
def test_json_that_does_not_hold_is_refused(space, spoil):
    record = json.loads(json.dumps(space.to_json()))
    spoil(record)
    with pytest.raises(ValueError):
        Space.from_json(record)


def digest_of(*tunables):
    return Space(tunables, tuple(t.default for t in tunables)).digest


@pytest.mark.parametrize(
    ("before", "after", "equal"),
    [
        (PowerOfTwo("b", 1, 64, 8), PowerOfTwo("b", 2, 128, 16), True),
        (Integer("i", 0, 4, 0), Integer("i", 0, 8, 1), True),
        (Choice("c", ("x", "y"), "x"), Choice("c", ("x", "y"), "y"), True),
        (Choice("c", ("x", "y"), "x"), Choice("c", ("x", "y", "z"), "x"), False),
        (Choice("c", ("x", "y"), "x"), Choice("c", ("y", "x"), "x"), False),
        (Choice("c", (1, 2), 1), Choice("c", ("1", "2"), "1"), False),
        (Choice("c", (False, True), False), Choice("c", (0, 1), 0), False),
        (Integer("i", 0, 4, 0), Integer("j", 0, 4, 0), False),
        (Integer("i", 1, 4, 1), PowerOfTwo("i", 1, 4, 1), False),
        (Permutation("p", 2), Permutation("p", 3), False),
        (ListOf("l", Integer("", 0, 1, 0), 2), ListOf("l", Integer("", 0, 5, 1), 2), True),
        (ListOf("l", Integer("", 0, 1, 0), 2), ListOf("l", Integer("", 0, 1, 0), 3), False),
    ],
)
def test_digest_counts_names_kinds_lengths_and_choices(before, after, equal):
    assert (digest_of(before) == digest_of(after)) is equal


def test_digest_is_fixed_and_ignores_seeds(space):
    # Entries hold digests: one that changes here makes every entry stale.
    known = "sha256:f41c9843b06251235fb81e46df5d86591fb3c102a9e673ea49d981c0665263df"
    assert digest_of(Integer("i", 0, 4, 0)) == known
    assert replace(space, seeds=()).digest == space.digest


def test_default_and_seeds_are_brought_to_canonical_form():
    space = Space(chain().tunables, [3, 1, "off"], chain().conditions, ([3, 0, "on"], [2, 0, "on"]))
    assert space.default == (0, 2, "off")
    assert space.seeds == ((0, 0, "on"),)


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**32), radius=st.integers(1, 4))
def test_what_a_space_gives_is_in_it(seed, radius):
    space = chain()
    generator = rng(seed)
    point = space.sample(generator)
    assert space.canonical(point) == point
    for near in space.neighbours(point, generator, radius, 20):
        assert space.canonical(near) == near != point


def test_every_recorded_fragment_becomes_a_tunable(recorded):
    found = recorded.recordings()
    assert [(r.kernel, len(r.trials)) for r in found] == [
        ("layer_norm", 673),
        ("layer_norm", 528),
        ("softmax", 234),
        ("matmul", 536),
        ("matmul", 500),
    ]
    matmul = found[3].space
    kinds = {t.kind for t in matmul.tunables}
    assert kinds == {"power_of_two", "integer", "choice", "permutation", "list"}
    assert [t.role for t in matmul.tunables if getattr(t, "role", "")] == ["block"] * 3 + ["warps"]
    for recording in found:
        assert Space.from_json(json.loads(json.dumps(recording.space.to_json()))) == recording.space
        assert recording.space.default in {trial.point for trial in recording.trials}
        features = recording.space.encode(trial.point for trial in recording.trials)
        assert features.shape == (len(recording.trials), recording.space.width)


LOADS = ListOf("loads", Choice("", ("", "first", "last"), ""), 3)
WITH_LISTS = Space(
    (
        PowerOfTwo("block", 1, 64, 16, "block"),
        Choice("kind", ("a", "b"), "a"),
        Integer("depth", 1, 4, 1),
        LOADS,
    ),
    default=(16, "b", 3, ("last", "", "first")),
    conditions=(Condition("depth", "kind", ("b",)),),
)


@pytest.mark.parametrize(
    ("inert", "expected"),
    [
        ((), (32, "b", 4, ("first", "first", "first"))),
        ((("loads", -1),), (32, "b", 4, ("last", "", "first"))),
        ((("loads", 0), ("loads", 1)), (32, "b", 4, ("last", "", "first"))),
        ((("loads", 0),), (32, "b", 4, ("last", "first", "first"))),
        ((("loads", 0), ("loads", -1), ("block", -1)), (16, "b", 4, ("last", "", "first"))),
        ((("depth", -1),), (32, "b", 3, ("first", "first", "first"))),
    ],
)
def test_what_makes_no_difference_keeps_the_defaults_value(inert, expected):
    space = replace(WITH_LISTS, inert=inert)
    assert space.default == WITH_LISTS.default
    assert space.canonical((32, "b", 4, ("first", "first", "first"))) == expected


def test_what_depends_on_a_tunable_that_is_kept():
    """The kind stays b whatever is asked for, so the depth counts always; or a, so it never does."""
    space = replace(WITH_LISTS, inert=(("kind", -1),))
    assert space.canonical((32, "a", 2, ("", "", ""))) == (32, "b", 2, ("", "", ""))
    other = replace(space, default=(16, "a", 1, ("", "", "")))
    assert other.canonical((32, "b", 2, ("", "", ""))) == (32, "a", 1, ("", "", ""))


def test_fewer_points_and_none_of_them_twice():
    space = replace(WITH_LISTS, inert=(("loads", 0), ("loads", 2), ("block", -1)))
    assert space.count == len(set(space.points())) == 3 * (1 + 4)
    assert WITH_LISTS.count == 7 * (1 + 4) * 27


@pytest.mark.parametrize(
    "place", [("unheard", -1), ("loads", 3), ("loads", -2), ("block", 0), ("loads", True)]
)
def test_places_that_are_none(place):
    with pytest.raises(ValueError, match=f"inert '{place[0]}', "):
        replace(WITH_LISTS, inert=(place,))


def test_inert_places_in_a_file():
    space = replace(WITH_LISTS, inert=(("loads", 1), ("kind", -1)))
    written = json.loads(json.dumps(space.to_json()))
    assert written["inert"] == [["loads", 1], ["kind", -1]]
    assert Space.from_json(written) == space
    assert space.digest == WITH_LISTS.digest  # the configs that an entry may have are the same
    # Files of spaces that have none are as they were before there were any.
    assert "inert" not in WITH_LISTS.to_json()
    for bad in ([["loads"]], [["loads", "1"]], [[1, 1]], ["loads"]):
        with pytest.raises(ValueError, match="inert"):
            Space.from_json({**written, "inert": bad})


PLACES = st.lists(
    st.sampled_from([(t.name, -1) for t in WITH_LISTS.tunables] + [("loads", n) for n in range(3)]),
    unique=True,
)


@settings(max_examples=150, deadline=None)
@given(PLACES, st.integers(0, 2**32 - 1))
def test_whatever_is_proposed_leaves_inert_places_alone(inert, seed):
    space = replace(WITH_LISTS, inert=tuple(inert))
    names = [t.name for t in space.tunables]
    generator = rng(seed)
    point = space.sample(generator)
    proposed = [
        point,
        *space.neighbours(point, generator, 2, 4),
        *space.variations(point, generator, 2, 4),
        space.canonical(WITH_LISTS.sample(generator)),
    ]
    for each in proposed:
        assert space.canonical(each) == each
        for name, at in inert:
            value, standard = each[names.index(name)], space.default[names.index(name)]
            assert (value if at < 0 else value[at]) == (standard if at < 0 else standard[at])
