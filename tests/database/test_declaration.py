from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from lfbo_aot.database.declaration import Declaration
from lfbo_aot.errors import DatabaseError
from lfbo_aot.registry.buckets import Bucket
from lfbo_aot.registry.buckets import enumerate_buckets
from lfbo_aot.registry.dims import Exact
from lfbo_aot.registry.dims import Range

DIMS = {"m": Range(1, 64, factor=4), "k": Range(2, 9, edges=[4]), "flag": Exact(True, False)}


DIGEST = "sha256:" + 64 * "0"
SOURCE = """
import lfbo_aot
from lfbo_aot import Range

@lfbo_aot.kernel(dims={"m": Range(1, 8)}, shape=lambda x: {"m": x.size(0)})
def scale(x):
    return x
"""


def spec(dims=DIMS, file="nowhere.py", small=()):
    return SimpleNamespace(
        kernel_id="mykern.scale",
        dims=dims,
        buckets=enumerate_buckets(dims),
        small_buckets=tuple(Bucket.parse(key) for key in small),
        settings={"static_shapes": True},
        source="sha256:1",
        module="mykern",
        file=str(file),
    )


@pytest.fixture
def plain(tmp_path):
    """A spec whose module says all that there is to know of it."""
    file = tmp_path / "mykern.py"
    file.write_text(SOURCE)
    return spec({"m": Range(1, 8)}, file, ["m=2", "m=3", "m=2"])


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


def test_what_is_written_of_a_plain_module(plain):
    declared = Declaration.of(plain)
    page = json.loads(declared.dumps())
    assert list(page)[-1] == "enumeration"
    assert page["enumeration"]["digest"].startswith("sha256:")
    assert page["enumeration"]["small"] == ["m=2", "m=3"]
    assert Declaration.from_json(page) == declared
    assert declared.bare() == Declaration.of(spec({"m": Range(1, 8)}))


def test_the_digest_is_of_all_that_the_file_declares(plain):
    digests = {Declaration.of(plain).enumeration.digest}
    for change in (
        {"source": "sha256:2"},
        {"settings": {"static_shapes": False}},
        {"buckets": ()},
        {"dims": {"m": Range(1, 8, factor=2)}},
        {"small_buckets": ()},
    ):
        digests.add(Declaration.of(SimpleNamespace(**{**vars(plain), **change})).enumeration.digest)
    assert len(digests) == 6


def test_under_a_variable_that_changes_helions_settings_nothing_is_claimed(plain, monkeypatch):
    monkeypatch.setenv("HELION_FAST_MATH", "1")
    assert Declaration.of(plain).enumeration is None


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
        ({"enumeration": None}, "enumeration must be an object with the fields digest and small"),
        ({"enumeration": {"digest": DIGEST}}, "with the fields digest and small"),
        ({"enumeration": {"digest": DIGEST, "small": [], "x": 1}}, "with the fields"),
        ({"enumeration": {"digest": "sha256:1", "small": []}}, "it must be sha256: and 64 hex"),
        ({"enumeration": {"digest": DIGEST, "small": "m=1"}}, "enumeration.small isn't a list"),
        ({"enumeration": {"digest": DIGEST, "small": [3]}}, "enumeration.small holds 3"),
        ({"enumeration": {"digest": DIGEST, "small": ["m=1"]}}, "has the dims m, not m, k, flag"),
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
