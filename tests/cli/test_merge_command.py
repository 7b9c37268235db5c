from __future__ import annotations

import json

import pytest

from lfbo_aot.cli.main import main
from lfbo_aot.registry.devices import DeviceId

pytestmark = pytest.mark.usefixtures("isolated")

ONE, TWO = "m=1..16|n=2048|dtype=bfloat16", "m=17..256|n=2048|dtype=bfloat16"
B200 = DeviceId("sm100", "NVIDIA B200")


@pytest.fixture
def sources(tmp_path, write_database, make_entry):
    a = write_database(tmp_path / "a", {"k.norm": {ONE: make_entry(1), TWO: make_entry(1)}})
    b = write_database(
        tmp_path / "b",
        {"k.norm": {ONE: make_entry(2, latency_us=20.0), (B200, ONE): make_entry(4)}},
    )
    return a, b


def call(*words):
    return main(["merge", *map(str, words)])


def test_conflicts_exit_1_and_write_nothing(sources, tmp_path, capsys):
    a, b = sources
    assert call(a, b, "--into", tmp_path / "new") == 1
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        f"conflict k.norm sm90/NVIDIA H200 {ONE} ({a}): held otherwise in {b}; "
        f"best would keep that of {b}: 20.00 us, not 25.60 us",
        "k.norm  sm100/NVIDIA B200: 1 added",
        "k.norm  sm90/NVIDIA H200: 1 added, 1 conflict",
        f"{tmp_path / 'new'}: not touched",
    ]
    assert err == (
        "lfbo-aot: error: 1 conflict, nothing was written; choose with --rule best or --rule newest\n"
    )
    assert not (tmp_path / "new").exists()


def test_best(sources, tmp_path, capsys):
    a, b = sources
    assert call(b, "--into", a, "--rule", "best", "--json") == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["into"], data["rule"], data["written"]) == (str(a), "best", True)
    assert data["sources"] == [str(b)]
    zero = {"kept": 0, "equal": 0, "refused": 0, "conflict": 0}
    assert data["kernels"] == [
        {"kernel": "k.norm", "device": "sm100/NVIDIA B200", "added": 1, "replaced": 0, **zero},
        {"kernel": "k.norm", "device": "sm90/NVIDIA H200", "added": 0, "replaced": 1, **zero},
    ]
    assert data["changes"][1] == {
        "what": "replaced",
        "kernel": "k.norm",
        "device": "sm90/NVIDIA H200",
        "bucket": ONE,
        "source": str(b),
        "reason": "20.00 us, not 25.60 us",
    }
    assert call(b, "--into", a, "--rule", "best") == 0
    assert capsys.readouterr().out.splitlines() == [
        "k.norm  sm100/NVIDIA B200: 1 equal",
        "k.norm  sm90/NVIDIA H200: 1 equal",
        f"{a}: written",
    ]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nowhere", "--into", "x"], "no such folder: nowhere"),
        (["{a}", "--into", "{file}"], "a file, not a folder"),
        (["{a}"], "the following arguments are required: --into"),
        (["{a}", "--into", "x", "--rule", "bets"], "invalid choice: 'bets'"),
    ],
)
def test_wrong_use(sources, tmp_path, capsys, words, says):
    (tmp_path / "file").write_text("")
    assert call(*(w.format(a=sources[0], file=tmp_path / "file") for w in words)) == 2
    err = capsys.readouterr().err
    assert says in err
    assert "Traceback" not in err


def test_damage_names_the_line(sources, tmp_path, capsys):
    a, b = sources
    file = b / "sm90" / "k.norm.jsonl"
    file.write_bytes(file.read_bytes()[:90])
    assert call(b, "--into", a) == 1
    assert f"{file}:1: the last line is cut" in capsys.readouterr().err


def test_help_has_an_example(capsys):
    assert call("--help") == 0
    assert "example: lfbo-aot merge" in capsys.readouterr().out
