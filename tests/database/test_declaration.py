from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from lfbo_aot.database.declaration import Declaration
from lfbo_aot.errors import DatabaseError
from lfbo_aot.registry.buckets import enumerate_buckets
from lfbo_aot.registry.dims import Exact
from lfbo_aot.registry.dims import Range

DIMS = {"m": Range(1, 64, factor=4), "k": Range(2, 9, edges=[4]), "flag": Exact(True, False)}


def spec(dims=DIMS):
    return SimpleNamespace(
        kernel_id="mykern.scale",
        dims=dims,
        buckets=enumerate_buckets(dims),
        settings={"static_shapes": True},
        source="sha256:1",
    )


def test_round_trip_keeps_order_and_kinds(tmp_path):
    declared = Declaration.of(spec())
    path = tmp_path / "mykern.scale.json"
    path.write_text(declared.dumps())
    assert Declaration.read(path) == declared
    assert list(Declaration.read(path).dims) == ["m", "k", "flag"]
    assert Declaration.read(path).dims == DIMS
    assert declared.buckets[0] == "m=1..4|k=2..4|flag=true"
    assert path.read_text().endswith("}\n")
    assert Declaration.read(path).dumps() == declared.dumps()


def test_what_is_written():
    assert json.loads(Declaration.of(spec({"m": Range(1, 8)})).dumps()) == {
        "schema": 1,
        "kernel": "mykern.scale",
        "source": "sha256:1",
        "settings": {"static_shapes": True},
        "dims": {"m": {"range": [1, 8]}},
        "buckets": ["m=1..8"],
    }


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"schema": 2}, "newer than"),
        ({"schema": 0}, "older than any"),
        ({"colour": 1}, "unknown field 'colour'"),
        ({"kernel": 3}, "'kernel' is missing or isn't text"),
        ({"dims": []}, "'dims' is missing or isn't an object"),
        ({"dims": {}}, "dims is empty"),
        ({"dims": {"m": {"range": [4, 1]}}}, "dims.m: .* is empty"),
        ({"dims": {"m": {"sizes": [4, 1]}}}, "dims.m: .* describes no dim"),
        ({"buckets": ["m=1"]}, "has the dims m, not m, k, flag"),
        ({"buckets": [3]}, "buckets holds 3"),
        ({"buckets": ["m"]}, "isn't written dim=value"),
    ],
)
def test_damage_names_the_file_and_the_field(tmp_path, change, says):
    path = tmp_path / "mykern.scale.json"
    path.write_text(json.dumps({**Declaration.of(spec()).to_json(), **change}))
    with pytest.raises(DatabaseError, match=says) as caught:
        Declaration.read(path)
    assert caught.value.path == path


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[]", b'{"schema": NaN}'])
def test_what_is_no_json_object(tmp_path, content):
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(DatabaseError, match=r"x.json"):
        Declaration.read(path)


def test_a_cut_file_names_the_line(tmp_path):
    path = tmp_path / "x.json"
    path.write_text(Declaration.of(spec()).dumps()[:80])
    with pytest.raises(DatabaseError) as caught:
        Declaration.read(path)
    assert caught.value.line == 5
