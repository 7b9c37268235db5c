from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lfbo_aot.database.entry import SCHEMA
from lfbo_aot.database.entry import Entry
from lfbo_aot.database.entry import SchemaError
from lfbo_aot.database.frozen import FrozenMapping

SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
)
JSON = st.recursive(
    SCALARS | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=5,
)
CONFIGS = st.dictionaries(st.text(st.characters(codec="utf-8")), JSON, max_size=4)
POSITIVE = st.floats(min_value=1e-9, max_value=1e12)


def test_field_order_is_the_formats(make_entry):
    assert list(make_entry().to_json()) == [
        "schema",
        "config",
        "alternates",
        "default",
        "latency_us",
        "default_us",
        "spread",
        "near_tie",
        "probes",
        "resources",
        "source",
        "space",
        "settings",
        "layout",
        "versions",
        "policy",
        "search",
        "measured",
        "status",
    ]
    assert list(make_entry(note="nothing compiles").to_json())[-1] == "note"


@given(config=CONFIGS, search=CONFIGS, latency=POSITIVE, tie=st.booleans())
def test_json_round_trip(make_entry, config, search, latency, tie):
    entry = make_entry(config=config, search=search, latency_us=latency, near_tie=tie)
    text = json.dumps(entry.to_json())
    assert Entry.from_json(json.loads(text)) == entry
    assert json.dumps(Entry.from_json(json.loads(text)).to_json()) == text


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("config", [1], "config is [1]; it must be an object"),
        ("config", {"a": math.nan}, "config.a is nan"),
        ("config", {"a": [1.0, math.inf]}, "config.a[1] is inf"),
        ("config", {"a": {1}}, "config.a is a set"),
        ("config", {1: 2}, "config has the name 1"),
        ("alternates", {}, "alternates is {}; it must be a list"),
        ("alternates", [1], "alternates[0] is 1"),
        ("default", 1, "default is 1; it must be true or false"),
        ("latency_us", "3", "latency_us is '3'"),
        ("latency_us", True, "latency_us is True"),
        ("latency_us", 0, "latency_us is 0; it must be finite and above 0"),
        ("default_us", -1.0, "default_us is -1.0"),
        ("latency_us", math.nan, "latency_us is nan"),
        ("latency_us", 10**400, "latency_us is 1000"),
        ("spread", -0.1, "spread is -0.1"),
        ("near_tie", None, "near_tie is None"),
        ("resources", {"shared": 1.5}, "resources.shared is 1.5"),
        ("resources", {"registers": 1}, "unknown field 'registers'"),
        ("source", "abc", "source is 'abc'"),
        ("space", None, "space is None"),
        ("versions", {"helion": 1.5}, "versions.helion is 1.5"),
        ("measured", "yesterday", "measured is 'yesterday'"),
        ("status", "guessed", "status is 'guessed'; it must be one of measured"),
        ("note", 3, "note is 3"),
    ],
)
def test_wrong_types_are_refused_by_field(make_entry, field, value, says):
    data = make_entry().to_json()
    data[field] = value
    with pytest.raises(ValueError) as caught:
        Entry.from_json(data)
    assert says in str(caught.value)


def test_missing_and_unknown_fields(make_entry):
    data = make_entry().to_json()
    del data["spread"]
    with pytest.raises(ValueError, match="'spread' is missing"):
        Entry.from_json(data)
    with pytest.raises(ValueError, match="unknown field 'colour'"):
        Entry.from_json({**make_entry().to_json(), "colour": "red"})
    with pytest.raises(ValueError, match="must be an object"):
        Entry.from_json([])


def test_deep_nesting_is_refused(make_entry):
    deep = []
    for _ in range(200):
        deep = [deep]
    with pytest.raises(ValueError, match="nested too deeply"):
        make_entry(config={"a": deep})


@pytest.mark.parametrize(
    ("schema", "newer", "says"),
    [
        (SCHEMA + 1, True, "is newer than"),
        (0, False, "older than any"),
        (-3, False, "older than any"),
    ],
)
def test_other_schemas(make_entry, schema, newer, says):
    with pytest.raises(SchemaError, match=says) as caught:
        Entry.from_json({**make_entry().to_json(), "schema": schema})
    assert caught.value.newer is newer


@pytest.mark.parametrize("schema", [True, 1.0, "1", None])
def test_a_schema_is_a_whole_number(make_entry, schema):
    with pytest.raises(ValueError, match="schema is"):
        Entry.from_json({**make_entry().to_json(), "schema": schema})


def test_an_entry_cannot_be_changed(make_entry):
    source = {"block_sizes": [1, 2]}
    entry = make_entry(config=source)
    source["block_sizes"].append(3)
    entry.config["block_sizes"].append(4)
    assert entry.config == {"block_sizes": [1, 2]}
    with pytest.raises(TypeError):
        entry.config["block_sizes"] = []
    with pytest.raises(AttributeError):
        entry.latency_us = 1.0


def test_frozen_mapping_is_a_mapping_of_plain_data():
    frozen = FrozenMapping({"a": [1, {"b": (2,)}], "c": "d"})
    assert dict(frozen) == {"a": [1, {"b": [2]}], "c": "d"}
    assert frozen == {"a": [1, {"b": [2]}], "c": "d"}
    assert frozen != {"a": 1}
    assert not FrozenMapping()
    assert type(frozen["a"][1]) is dict


def test_gain(make_entry):
    assert make_entry(latency_us=20.0, default_us=25.0).gain == 1.25


def test_a_default_that_does_not_run(make_entry):
    entry = make_entry(default_us=None)
    assert entry.gain is None
    assert entry.to_json()["default_us"] is None
    assert Entry.from_json(entry.to_json()) == entry
    with pytest.raises(ValueError, match=r"default_us is None; it must be a number"):
        make_entry(default_us=None, default=True)
