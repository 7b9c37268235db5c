from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from lfbo_aot.runtime.environment import Environment
from lfbo_aot.runtime.environment import check
from lfbo_aot.runtime.environment import comparable_version

VERSIONS = {"helion": "1.5.0", "triton": "3.6.0", "torch": "2.11.0", "runtime": "13.0"}
RELEASES = st.lists(st.integers(0, 30), min_size=1, max_size=4).map(lambda p: ".".join(map(str, p)))
SUFFIXES = st.sampled_from(["", "a0", "rc1", ".post2", ".dev3", "+cu130", "a0+git12ab", "rc1.dev2"])


@given(left=RELEASES, right=RELEASES, suffixes=st.tuples(SUFFIXES, SUFFIXES))
def test_versions_compare_as_pep_440_base_versions(left, right, suffixes):
    one, two = left + suffixes[0], right + suffixes[1]
    equal = Version(Version(one).base_version) == Version(Version(two).base_version)
    assert (comparable_version(one) == comparable_version(two)) is equal


def test_texts_that_are_no_version_compare_as_they_are():
    assert comparable_version("main") == "main"
    assert comparable_version("v1.5") == comparable_version("1.5.0+x")
    assert comparable_version("1!1.5") != comparable_version("1.5")


def told(checks, kind, verdict="differs"):
    return [(c.name, c.entry, c.here) for c in checks if (c.kind, c.verdict) == (kind, verdict)]


def test_nothing_given_is_nothing_checked(make_entry):
    checks = list(check(make_entry(), Environment()))
    assert [(c.name, c.here, c.verdict) for c in checks] == [
        ("source", None, "unchecked"),
        ("settings", None, "unchecked"),
        ("versions", None, "unchecked"),
    ]


def test_everything_agrees(make_entry):
    here = {**VERSIONS, "torch": "2.11.0+cu130"}
    settings = {"fast_math": False, "static_shapes": True}
    checks = list(check(make_entry(), Environment("sha256:50ce", settings, here)))
    assert {c.verdict for c in checks} == {"equal"}
    assert [c.name for c in checks] == [
        "source",
        "settings.static_shapes",
        "settings.fast_math",
        "helion",
        "runtime",
        "torch",
        "triton",
    ]


@pytest.mark.parametrize(
    ("environment", "hard"),
    [
        (Environment(source="sha256:new"), [("source", "sha256:50ce", "sha256:new")]),
        (
            Environment(settings={"static_shapes": False, "fast_math": False}),
            [("settings.static_shapes", True, False)],
        ),
        (
            Environment(settings={"static_shapes": True, "dot_precision": None}),
            [("settings.fast_math", False, None), ("settings.dot_precision", None, None)],
        ),
    ],
)
def test_source_and_settings_are_hard(make_entry, environment, hard):
    assert told(check(make_entry(), environment), "hard") == hard


def test_versions_are_soft_and_each_is_named(make_entry):
    here = {"helion": "1.6.0", "triton": "3.6.1", "torch": "2.11.0", "driver": "580"}
    checks = list(check(make_entry(), Environment(versions=here)))
    assert not any(c.forbids for c in checks)
    assert told(checks, "soft") == [
        ("driver", None, "580"),
        ("helion", "1.5.0", "1.6.0"),
        ("triton", "3.6.0", "3.6.1"),
    ]
    assert [name for name, *_ in told(checks, "hard", "unchecked")] == ["source", "settings"]
