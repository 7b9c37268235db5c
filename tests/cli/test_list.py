from __future__ import annotations

import json

import pytest

import lfbo_aot
from lfbo_aot.cli.main import main
from lfbo_aot.database import store
from lfbo_aot.registry.devices import DeviceId

pytestmark = pytest.mark.usefixtures("isolated")

ONE, TWO = "m=1..16|n=2048|dtype=bfloat16", "m=17..256|n=2048|dtype=bfloat16"
B200 = DeviceId("sm100", "NVIDIA B200")


@pytest.fixture
def layers(tmp_path, write_database, make_entry, monkeypatch):
    monkeypatch.setattr(store, "built_in_database", lambda: tmp_path / "nothing-shipped")
    low = write_database(
        tmp_path / "low",
        {
            "a.norm": {ONE: make_entry(1), TWO: make_entry(2), (B200, ONE): make_entry(4)},
            "b.soft": {ONE: make_entry(8, default=True)},
        },
    )
    high = write_database(tmp_path / "high", {"a.norm": {TWO: make_entry(1, latency_us=17.0)}})
    lfbo_aot.use_database(low)
    return high, low


def rows(capsys, *words):
    assert main(["list", *map(str, words), "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return [(r["kernel"], r["bucket"], r["arch"], r["layer"]) for r in json.loads(out)]


def test_all_layers_are_listed_in_order(layers, capsys):
    high, low = map(str, layers)
    assert rows(capsys, "--database", high) == [
        ("a.norm", TWO, "sm90/NVIDIA H200", high),
        ("a.norm", ONE, "sm100/NVIDIA B200", low),
        ("a.norm", ONE, "sm90/NVIDIA H200", low),
        ("a.norm", TWO, "sm90/NVIDIA H200", low),
        ("b.soft", ONE, "sm90/NVIDIA H200", low),
    ]


@pytest.mark.parametrize(
    ("words", "count"),
    [
        (["norm"], 3),
        (["a.norm", "m=16"], 2),
        (["m=16"], 3),
        (["m=16", "n=5120"], 0),
        (["--arch", "sm100"], 1),
        (["--arch", "sm90/NVIDIA H200"], 3),
        (["--arch", "sm90/NVIDIA H100"], 0),
        (["norm", "--arch", "sm90", "m=200"], 1),
    ],
)
def test_filters(layers, capsys, words, count):
    assert len(rows(capsys, *words)) == count


def test_json_fields(layers, capsys, make_entry):
    assert main(["list", "--database", str(layers[0]), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0] == {
        "kernel": "a.norm",
        "bucket": TWO,
        "arch": "sm90/NVIDIA H200",
        "latency_us": 17.0,
        "default_us": 34.0,
        "gain": 2.0,
        "default": False,
        "pinned": False,
        "layer": str(layers[0]),
        "measured": "2026-12-01",
        "versions": dict(make_entry().versions),
    }


def test_table(layers, capsys):
    assert main(["list", "soft"]) == 0
    head, row = capsys.readouterr().out.splitlines()
    assert head.split() == [
        "kernel",
        "bucket",
        "device",
        "latency",
        "us",
        "default",
        "us",
        "gain",
        "layer",
    ]
    assert row.split() == [
        "b.soft",
        ONE,
        "sm90/NVIDIA",
        "H200",
        "25.60",
        "34.00",
        "default",
        str(layers[1]),
    ]


def test_a_default_that_does_not_run(tmp_path, write_database, make_entry, capsys):
    path = write_database(tmp_path / "one", {"c.new": {ONE: make_entry(default_us=None)}})
    assert main(["list", "c.new", "--database", str(path)]) == 0
    assert "  25.60  doesn't run  " in capsys.readouterr().out
    words = ["c.new", "m=1", "n=2048", "dtype=bfloat16", "--arch", "sm90", "--database", str(path)]
    assert main(["get", *words]) == 0
    assert "latency  25.60 us, and the default doesn't run" in capsys.readouterr().out


def test_nothing(capsys):
    assert main(["list", "--arch", "sm77"]) == 0
    assert capsys.readouterr().out == "no entries\n"
    assert rows(capsys, "--arch", "sm77") == []


def test_damage_is_named_and_the_rest_listed(layers, capsys):
    shard = layers[1] / "sm90" / "a.norm.jsonl"
    lines = shard.read_bytes().splitlines(keepends=True)
    shard.write_bytes(lines[0].replace(b"25.6", b"15.6") + lines[1][:60])
    assert main(["list", "norm", "--json"]) == 1
    out, err = capsys.readouterr()
    assert [r["arch"] for r in json.loads(out)] == ["sm100/NVIDIA B200"]
    assert f"damaged: {shard}:1: checksum" in err
    assert f"damaged: {shard}:2: the line is cut" in err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nrom"], "unknown kernel 'nrom'. Did you mean 'norm'?"),
        (["norm", "soft"], "'soft' is a second kernel"),
        (["norm", "dtyp=float16"], "unknown dim 'dtyp'. Did you mean 'dtype'?"),
        (["--arch", "?"], "unknown arch '?'"),
        (["--arch", "h200"], "unknown arch 'h200'. Did you mean 'sm90/NVIDIA H200' or"),
        (["--jsn"], "unknown argument '--jsn'. Did you mean '--json'?"),
    ],
)
def test_wrong_use(layers, capsys, words, says):
    assert main(["list", *words]) == 2
    assert says in capsys.readouterr().err


def test_a_folder_that_cannot_be_read_is_named(layers, capsys, closed):
    closed(layers[1] / "sm90")
    assert main(["list", "norm", "--json"]) == 1
    out, err = capsys.readouterr()
    assert [r["arch"] for r in json.loads(out)] == ["sm100/NVIDIA B200"]
    assert err == f"lfbo-aot: damaged: {layers[1] / 'sm90'}: can't be read: Permission denied\n"
