"""What is told of a device that isn't there. That kernels compile with it: tests/tuning."""

from __future__ import annotations

import pytest

from lfbo_aot.adapters.standin import DeviceDescription
from lfbo_aot.adapters.standin import described
from lfbo_aot.adapters.standin import disagreement

PROPERTIES = {"name": "NVIDIA H200", "major": 9, "minor": 0, "warp_size": 32, "total_memory": 150}


def test_a_description_goes_through_json():
    found = described(PROPERTIES, 3)
    assert (found["backend"], found["arch"], found["warp_size"], found["index"]) == (
        "cuda",
        90,
        32,
        3,
    )
    assert DeviceDescription(**found).to_json() == found


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        ({}, True),
        ({"arch": 100}, False),
        ({"index": 1}, False),
        ({"runtime": "13.0"}, True),
        ({"properties": {**PROPERTIES, "total_memory": 149}}, True),
        ({"properties": {**PROPERTIES, "minor": 1}}, False),
        ({"properties": {"name": "NVIDIA H200", "more": 1}}, True),
    ],
)
def test_descriptions_agree_as_far_as_both_go(changes, same):
    one = described(PROPERTIES, 0)
    assert (disagreement(one, one | changes) == "") is same
    assert (disagreement(one | changes, one) == "") is same


def test_a_disagreement_names_what_differs():
    other = described({**PROPERTIES, "minor": 1}, 0)
    told = "arch 90, 91; minor 0, 1"
    assert disagreement(described(PROPERTIES, 0), other) == told
