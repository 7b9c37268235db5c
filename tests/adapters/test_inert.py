"""Which places make no difference, told from digests that are made up here."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from lfbo_aot.adapters.inert import find_inert
from lfbo_aot.search import Choice
from lfbo_aot.search import Condition
from lfbo_aot.search import Integer
from lfbo_aot.search import ListOf
from lfbo_aot.search import Permutation
from lfbo_aot.search import PowerOfTwo
from lfbo_aot.search import Space

LOADS = ListOf("loads", Choice("load", ("", "first", "last"), ""), 3)
SPACE = Space(
    (
        PowerOfTwo("block", 1, 256, 16, "block"),
        Choice("pid", ("flat", "persistent"), "flat"),
        Integer("stages", 1, 4, 1),
        LOADS,
        Permutation("order", 2),
    ),
    default=(16, "flat", 1, ("", "", ""), (0, 1)),
)


class Digests:
    """Codes in which some tunables, or places of `loads`, count; and how often they were asked for."""

    def __init__(self, *counting, code=None, space=SPACE):
        self.code = code or (lambda at: [self.value(at, place) for place in counting])
        self.names = [t.name for t in space.tunables]
        self.asked = Counter()

    @staticmethod
    def value(at, place):
        return at[place] if isinstance(place, str) else at[place[0]][place[1]]

    def __call__(self, points):
        self.asked.update(points)
        found = [self.code(dict(zip(self.names, point, strict=True))) for point in points]
        return [None if code is None else repr(code) for code in found]


ALL = ("block", "pid", "stages", "loads", "order")


@pytest.mark.parametrize(
    ("counting", "inert"),
    [
        (ALL, ()),
        (("block", "pid", "stages", "order"), (("loads", -1),)),
        (("block", "pid", "stages", "order", ("loads", 1)), (("loads", 0), ("loads", 2))),
        (("block", "pid", ("loads", 0), ("loads", 1)), (("stages", -1), ("loads", 2))),
        (("block",), (("pid", -1), ("stages", -1), ("loads", -1))),
    ],
    ids=["none", "a whole list", "all but one place", "one place and another", "all but the block"],
)
def test_what_changes_no_code(counting, inert):
    """Powers of two and permutations are taken to matter always."""
    assert find_inert(SPACE, Digests(*counting)) == inert


def test_what_matters_at_some_other_value_only():
    """Stages count with persistent programs alone, and the default has none."""

    def code(at):
        return [at["block"], at["pid"], at["loads"], at["pid"] == "persistent" and at["stages"]]

    found = find_inert(SPACE, Digests(code=code))
    assert found == ()


def test_where_there_is_no_code_nothing_is_said():
    assert find_inert(SPACE, Digests(code=lambda at: None)) == ()


def test_points_without_code_tell_nothing_of_the_others():
    """Two stages or more can't be compiled; whether they count at one can't be seen."""

    def code(at):
        return None if at["stages"] > 1 else [at["block"], at["pid"]]

    assert ("stages", -1) not in find_inert(SPACE, Digests(code=code))


def test_what_a_condition_makes_inactive_is_no_evidence():
    space = Space(
        (Choice("kind", ("a", "b"), "a"), Choice("never", ("x", "y"), "x")),
        default=("a", "x"),
        conditions=(Condition("never", "kind", ()),),
    )
    assert find_inert(space, Digests("kind", space=space)) == ()


def test_what_was_found_elsewhere_is_tried_all_at_once():
    known = [["loads", -1], ["stages", -1], ["unheard", 0]]
    digests = Digests("block", "pid")
    assert find_inert(SPACE, digests, known) == (("stages", -1), ("loads", -1))
    assert digests.asked.total() == 8
    # Though the choice of pid matters, it isn't asked about.
    assert find_inert(SPACE, Digests("block"), known) == (("stages", -1), ("loads", -1))


def test_what_was_found_elsewhere_and_does_not_hold_is_looked_for_anew():
    known = [["loads", -1], ["stages", -1]]
    assert find_inert(SPACE, Digests("block", "pid", ("loads", 2)), known) == (
        ("stages", -1),
        ("loads", 0),
        ("loads", 1),
    )


def test_tunables_with_one_value_are_left_out():
    space = Space(
        (Integer("one", 3, 3, 3), ListOf("ones", Choice("c", ("a",), "a"), 2), *SPACE.tunables[:2]),
        default=(3, ("a", "a"), 16, "flat"),
    )
    assert find_inert(space, Digests("block", space=space)) == (("pid", -1),)


def test_the_space_then_has_fewer_points():
    digests = Digests("block", "order", ("loads", 1))
    kept = Space(SPACE.tunables, SPACE.default, inert=find_inert(SPACE, digests))
    assert kept.canonical((32, "persistent", 3, ("first",) * 3, (1, 0))) == (
        32,
        "flat",
        1,
        ("", "first", ""),
        (1, 0),
    )


@settings(max_examples=60, deadline=None)
@given(st.sets(st.sampled_from(["pid", "stages", ("loads", 0), ("loads", 1), ("loads", 2)])))
def test_what_counts_by_itself_is_never_inert_and_what_does_not_is(counting):
    digests = Digests("block", "order", *sorted(counting, key=str))
    inert = find_inert(SPACE, digests)
    loads = {("loads", at) for at in range(3)}
    expected = {(name, -1) for name in ("pid", "stages") if name not in counting}
    expected |= {("loads", -1)} if not loads & counting else loads - counting
    assert set(inert) == expected
