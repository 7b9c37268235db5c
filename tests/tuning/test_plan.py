from __future__ import annotations

import pytest

from lfbo_aot.database.database import Database
from lfbo_aot.errors import UnknownNameError
from lfbo_aot.registry.buckets import Bucket
from lfbo_aot.registry.devices import INTERPRETER
from lfbo_aot.registry.devices import DeviceId
from lfbo_aot.registry.dims import Exact
from lfbo_aot.tuning.plan import make_plan
from lfbo_aot.tuning.plan import neighbours

H200 = DeviceId("sm90", "NVIDIA H200")
LOW, HIGH = "m=1..64|dtype=float32", "m=65..4096|dtype=float32"
SETTINGS = {"static_shapes": True, "index_dtype": None}


@pytest.fixture
def database(tmp_path, write_database, make_entry, spec):
    """Holds one bucket of the spec, as it is declared, and an entry of another bucket."""
    held = make_entry(settings=SETTINGS)
    entries = {"pkg.norm": {LOW: held, "m=1..9|dtype=float32": held}}
    return write_database(tmp_path / "db", entries, dims=spec.dims)


def rows(plan):
    return [(item.bucket.key, item.why) for item in plan]


def test_each_bucket_is_held_or_missing(database, spec):
    plan = make_plan([spec], H200, Database(database))
    assert rows(plan) == [
        (LOW, ""),
        ("m=1..64|dtype=bfloat16", "missing"),
        (HIGH, "missing"),
        ("m=65..4096|dtype=bfloat16", "missing"),
    ]
    assert plan[0].held.latency_us == 25.6
    assert plan[1].held is None
    assert plan[2].shape == {"m": 4096, "dtype": "float32"}


def test_an_entry_that_no_longer_holds_is_tuned_anew(
    database, spec, changed, tmp_path, *, write_database, make_entry
):
    where = {"m": [1], "dtype": ["float32"]}

    def why(spec, path=database, **words):
        return rows(make_plan([spec], H200, Database(path), where=where, **words))

    assert why(spec) == [(LOW, "")]
    assert why(changed(spec, source="sha256:new")) == [(LOW, "source changed")]
    assert why(changed(spec, settings={"static_shapes": True})) == [(LOW, "settings changed")]
    assert why(spec, again=True) == [(LOW, "asked for again")]
    entry = make_entry(settings=SETTINGS, status="imported")
    other = write_database(tmp_path / "other", {"pkg.norm": {LOW: entry}}, dims=spec.dims)
    assert why(spec, other) == [(LOW, "imported, not measured")]


def test_settings_with_lists_are_compared_by_value(
    spec, changed, tmp_path, write_database, make_entry
):
    settings = {"static_shapes": True, "lists": [1, {"a": [2]}]}
    entry = make_entry(settings=settings)
    path = write_database(tmp_path / "lists", {"pkg.norm": {LOW: entry}}, dims=spec.dims)
    spec = changed(spec, settings={"static_shapes": True, "lists": (1, {"a": (2,)})})
    plan = make_plan([spec], H200, Database(path), where={"m": [1], "dtype": ["float32"]})
    assert rows(plan) == [(LOW, "")]


def test_another_device_of_the_arch_holds_nothing(database, spec):
    plan = make_plan([spec], DeviceId("sm90", "NVIDIA H100 PCIe"), Database(database))
    assert {item.why for item in plan} == {"missing"}


def test_a_damaged_entry_counts_as_missing(database, spec):
    shard = database / "sm90" / "pkg.norm.jsonl"
    shard.write_bytes(shard.read_bytes().replace(b"25.6", b"15.6"))
    plan = make_plan([spec], H200, Database(database), where={"m": [1], "dtype": ["float32"]})
    assert rows(plan) == [(LOW, "missing")]


def test_values_pick_the_buckets_that_hold_one(database, spec, make_spec_of):
    other = make_spec_of("pkg.sum", dims={"k": Exact(1, 2)}, small=[], shape=lambda _: {"k": 1})
    plan = make_plan([spec, other], H200, Database(database), where={"m": [70, 4096]})
    assert [item.bucket.key for item in plan] == [HIGH, "m=65..4096|dtype=bfloat16"]
    plan = make_plan([spec, other], H200, Database(database), where={"k": [2, 3]})
    assert [item.bucket.key for item in plan] == ["k=2"]
    assert make_plan([spec], H200, Database(database), where={"m": ["64"]}) == []


def test_a_dim_that_no_kernel_has(database, spec):
    with pytest.raises(UnknownNameError, match=r"unknown dim 'dtyp'\. Did you mean 'dtype'\?"):
        make_plan([spec], H200, Database(database), where={"dtyp": ["float32"]})


def test_the_interpreter_tunes_small_shapes_once_each(tmp_path, make_spec_of):
    small = [{"m": 4, "dtype": "float32"}, {"m": 8, "dtype": "float32"}]
    spec = make_spec_of(small=[*small, small[0]])
    plan = make_plan([spec], INTERPRETER, Database(tmp_path))
    assert rows(plan) == [("m=4|dtype=float32", "missing"), ("m=8|dtype=float32", "missing")]


def test_neighbours_by_ratio_and_other_values_last(make_entry):
    keys = [
        "m=65..1024|n=64|dtype=float32",
        "m=1..64|n=64|dtype=float32",
        "m=1025..16384|n=64|dtype=float32",
        "m=65..1024|n=256|dtype=float32",
        "m=65..1024|n=64|dtype=float16",
        "m=65..1024|n=2048|dtype=float32",
    ]
    known = [(Bucket.parse(key), make_entry(1 << i)) for i, key in enumerate(keys)]
    found = neighbours(known[0][0], known, count=4)
    # n is 4 times away, m is 16 times away in both directions, n is 32 times away.
    assert [entry.config["num_warps"] for entry in found] == [8, 2, 4, 32]
    assert neighbours(known[0][0], known[4:5])[0].config["num_warps"] == 16
    assert neighbours(known[0][0], known[:1]) == []
