from __future__ import annotations

import json
from pathlib import Path

import pytest

from lfbo_aot.cli.main import main
from lfbo_aot.database import store
from lfbo_aot.database.journal import Journal
from lfbo_aot.registry.devices import DeviceId
from lfbo_aot.registry.dims import Exact
from lfbo_aot.registry.dims import Range

pytestmark = pytest.mark.usefixtures("alone")

DECLARED = str(Path(__file__).parent / "fake_tuning" / "declared.py")

DIMS = {"m": Range(1, 256, edges=[16]), "n": Exact(8)}
ONE, TWO = "m=1..16|n=8", "m=17..256|n=8"
H200, H100 = DeviceId("sm90", "NVIDIA H200"), DeviceId("sm90", "NVIDIA H100 PCIe")
B200 = DeviceId("sm100", "NVIDIA B200")


@pytest.fixture
def cover(tmp_path, write_database, capsys):
    """Writes a database of one kernel, and runs the command on it; gives (status, JSON, stderr)."""

    def run(held, *words, path=tmp_path / "tuned"):
        if held is not None:
            write_database(path, {"mine.norm": held}, dims=DIMS)
        status = main(["coverage", str(path), *words, "--json"])
        out, err = capsys.readouterr()
        return status, json.loads(out) if out else None, err

    return run


def states(found):
    return [(row["arch"], row["bucket"], row["status"]) for row in found["buckets"]]


def only(found, bucket):
    (row,) = (row for row in found["buckets"] if row["bucket"] == bucket)
    return row


def test_every_declared_bucket_of_every_arch_held(cover, make_entry):
    held = {(H200, ONE): make_entry(), (H200, TWO): make_entry(), (B200, TWO): make_entry()}
    status, found, err = cover(held)
    assert (status, err) == (0, "")
    assert states(found) == [
        ("sm100", ONE, "missing"),
        ("sm100", TWO, "measured"),
        ("sm90", ONE, "measured"),
        ("sm90", TWO, "measured"),
    ]
    assert (found["archs"], found["complete"]) == (["sm100", "sm90"], False)
    assert found["counts"] == {
        "measured": 3,
        "same_arch": 0,
        "imported": 0,
        "transferred": 0,
        "outdated": 0,
        "failed": 0,
        "missing": 1,
    }
    assert found["buckets"][0] == {
        "arch": "sm100",
        "kernel": "mine.norm",
        "bucket": ONE,
        "status": "missing",
        "fresh": None,
        "layer": None,
        "key": "",
        "why": ["nothing is held"],
    }


@pytest.mark.parametrize(
    ("arch", "complete"),
    [("sm90/NVIDIA H200", True), ("sm90", True), ("sm90/NVIDIA H100 PCIe", False), ("sm80", False)],
)
def test_require_takes_what_was_measured_there_only(cover, make_entry, arch, complete):
    held = {(H200, ONE): make_entry(), (H200, TWO): make_entry()}
    status, found, _ = cover(held, "--arch", arch, "--require")
    assert (status, found["complete"]) == (int(not complete), complete)
    assert cover(None, "--arch", arch)[0] == 0


def test_another_device_of_the_arch(cover, make_entry):
    held = {(H100, ONE): make_entry(), (H200, TWO): make_entry()}
    _, found, _ = cover(held, "--arch", str(H200))
    assert states(found) == [(str(H200), ONE, "same_arch"), (str(H200), TWO, "measured")]
    assert only(found, ONE)["key"] == f"NVIDIA H100 PCIe|{ONE}"
    assert only(found, ONE)["why"] == [f"same_arch: measured on {H100}"]


@pytest.mark.parametrize("status", ["imported", "transferred"])
@pytest.mark.parametrize("arch", ["sm90", str(H200)])
def test_what_was_not_measured(cover, make_entry, status, arch):
    _, found, _ = cover({(H200, ONE): make_entry(status=status)}, "--arch", arch)
    assert only(found, ONE)["status"] == status


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"source": "sha256:01d"}, "source: entry=sha256:01d here=sha256:50ce"),
        ({"settings": {"static_shapes": True, "fast_math": True}}, "fast_math: entry=True"),
        ({"resources": {"shared": 300000}}, "shared entry=300000 limit=232448 of sm90/NVIDIA H200"),
    ],
)
def test_what_is_held_and_not_served(cover, make_entry, fields, says):
    status, found, _ = cover({ONE: make_entry(**fields)}, "--arch", str(H200), "--require")
    row = only(found, ONE)
    assert (status, row["status"], row["key"]) == (1, "outdated", "")
    assert says in row["why"][0]


def test_a_box_that_covers_a_part_of_a_bucket(cover, make_entry):
    """The worst of a bucket's points counts: shapes that miss would make it no cover."""
    _, found, _ = cover({"m=9..16|n=8": make_entry()}, "--arch", str(H200))
    row = only(found, ONE)
    assert (row["status"], row["why"][0]) == ("missing", "at m=1 n=8")
    _, found, _ = cover({"m=1..300|n=8": make_entry()}, "--arch", str(H200))
    assert [row["status"] for row in found["buckets"]] == ["measured", "measured"]


def test_a_bucket_where_only_the_default_works(cover, make_entry):
    held = {ONE: make_entry(default=True, note="37 of 37 failed: timeout")}
    row = only(cover(held, "--arch", "sm90")[1], ONE)
    assert row["status"] == "measured"
    assert row["why"] == ["nothing but the default works: 37 of 37 failed: timeout"]


def journal(tmp_path, device, *records):
    folder = tmp_path / "state" / "journals" / "somewhere"
    with Journal(folder / "mine.norm.jsonl") as found:
        for bucket, kind, fields in records:
            names = {"kernel": "mine.norm", "bucket": bucket, "device": str(device)}
            found.append({"kind": kind, "session": bucket, **names, **fields})


def test_what_a_run_could_not_tune(cover, make_entry, tmp_path):
    journal(
        tmp_path,
        H200,
        (ONE, "open", {}),
        (ONE, "final", {"entry": None, "reason": "inputs= failed: boom"}),
        (TWO, "open", {}),
    )
    held = {(B200, ONE): make_entry()}
    _, found, _ = cover(held, "--arch", "sm90", "--arch", str(H200), "--arch", str(H100))
    assert states(found) == [
        ("sm90", ONE, "failed"),
        ("sm90", TWO, "missing"),
        (str(H200), ONE, "failed"),
        (str(H200), TWO, "missing"),
        (str(H100), ONE, "missing"),
        (str(H100), TWO, "missing"),
    ]
    assert [row["why"] for row in found["buckets"][:2]] == [
        [f"on {H200}: inputs= failed: boom"],
        [f"its tuning on {H200} is interrupted"],
    ]


def test_a_damaged_journal_changes_no_answer(cover, make_entry, tmp_path):
    journal(tmp_path, H200, (ONE, "open", {}))
    path = tmp_path / "state" / "journals" / "somewhere" / "mine.norm.jsonl"
    path.write_bytes(b"no record\n" + path.read_bytes())
    held = {ONE: make_entry(), TWO: make_entry()}
    status, found, err = cover(held, "--arch", "sm90", "--require")
    assert (status, found["complete"], found["damage"]) == (0, True, [])
    assert err.startswith(f"lfbo-aot: damaged: {path}:1: ")


def test_a_bucket_that_failed_once_and_is_held_now(cover, make_entry, tmp_path):
    journal(tmp_path, H200, (ONE, "open", {}), (ONE, "final", {"entry": None, "reason": "boom"}))
    assert only(cover({ONE: make_entry()}, "--arch", "sm90")[1], ONE)["status"] == "measured"


def test_damage_is_named(cover, make_entry, tmp_path):
    held = {ONE: make_entry(), TWO: make_entry()}
    cover(held)
    shard = tmp_path / "tuned" / "sm90" / "mine.norm.jsonl"
    shard.write_bytes(shard.read_bytes().replace(b"25.6", b"15.6", 1))
    status, found, err = cover(None)
    assert status == 1
    assert states(found) == [("sm90", ONE, "missing"), ("sm90", TWO, "measured")]
    assert err.startswith(f"lfbo-aot: damaged: {shard}:1: checksum")
    assert found["damage"] == [err.removeprefix("lfbo-aot: damaged: ").strip()]


def test_entries_without_a_declaration(cover, make_entry, tmp_path, write_database):
    write_database(tmp_path / "tuned", {"mine.soft": {ONE: make_entry()}}, dims=DIMS)
    (tmp_path / "tuned" / "kernels" / "mine.soft.json").unlink()
    status, found, err = cover({ONE: make_entry()})
    assert status == 1
    assert {row["kernel"] for row in found["buckets"]} == {"mine.norm"}
    assert "mine.soft: has entries and no declaration" in err


def test_a_database_of_which_nothing_can_be_read(cover, tmp_path):
    (tmp_path / "tuned" / "kernels").mkdir(parents=True)
    file = tmp_path / "tuned" / "kernels" / "mine.norm.json"
    file.write_text("{")
    status, found, err = cover(None, "--arch", "sm90", "--require")
    assert (status, found["buckets"], found["complete"]) == (1, [], False)
    assert err.startswith(f"lfbo-aot: damaged: {file}:1: ")


def test_all_layers_without_a_database(isolated, tmp_path, write_database, make_entry, capsys):
    isolated.setattr(store, "built_in_database", lambda: tmp_path / "nothing-shipped")
    low = write_database(tmp_path / "low", {"a.norm": {ONE: make_entry()}}, dims=DIMS)
    isolated.setenv("LFBO_AOT_PATH", str(low))
    assert main(["coverage", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["buckets"]
    assert [(r["kernel"], r["layer"]) for r in rows] == [("a.norm", str(low)), ("a.norm", None)]


def test_text(tmp_path, write_database, make_entry, capsys):
    path = tmp_path / "tuned"
    held = {(H100, ONE): make_entry(source="sha256:01d")}
    write_database(path, {"mine.norm": held}, dims=DIMS)
    assert main(["coverage", str(path), "--arch", "sm90"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "sm90  mine.norm: 1 outdated, 1 missing of 2",
        "  outdated    m=1..16 n=8",
        f"              source: entry=sha256:01d here=sha256:50ce ({path}: NVIDIA H100 PCIe|{ONE})",
        "  missing     m=17..256 n=8",
    ]


def test_the_kernels_of_a_module_as_declared_now(tmp_path, write_database, make_entry, capsys):
    """Buckets and source are the module's, not those that the database was tuned with."""
    dims = {"m": Range(1, 64), "dtype": Exact("float32")}
    held = {"m=1..64|dtype=float32": make_entry(settings={"static_shapes": True})}
    path = str(write_database(tmp_path / "tuned", {"mine.norm": held}, dims=dims))
    words = ["coverage", path, "--module", DECLARED, "--json", "--arch"]
    assert main([*words, "sm90"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(r["kernel"], r["status"]) for r in found["buckets"]] == [
        ("mine.norm", "measured"),
        ("mine.total", "missing"),
        ("mine.total", "missing"),
    ]
    assert found["buckets"][0]["fresh"] is not None  # the versions loaded here are compared
    assert main([*words, "cpu-interpreter"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [r["bucket"] for r in found["buckets"]] == ["m=4|dtype=float32", "m=8|dtype=float32"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--arch", "sm9"], "unknown arch 'sm9'"),
        (["--arch", "h200"], "unknown arch 'h200'. Did you mean 'sm90/NVIDIA H200'"),
        (["--arch", "cpu-interpreter"], "small= shapes, which no database lists"),
        (["--module", "no.such.module"], "kernel module 'no.such.module' can't be imported"),
        (["--reqire"], "unknown argument '--reqire'. Did you mean '--require' or '--kernel'?"),
        (["--kernel", "nrm"], "unknown kernel 'nrm'. Did you mean 'norm'?"),
    ],
)
def test_wrong_use(cover, make_entry, words, says):
    status, found, err = cover({ONE: make_entry()}, *words)
    assert (status, found) == (2, None)
    assert err.startswith("lfbo-aot: error: ")
    assert says in err


def test_nothing_to_cover(tmp_path, capsys):
    assert main(["coverage", str(tmp_path / "none")]) == 2
    assert capsys.readouterr().err == f"lfbo-aot: error: no such folder: {tmp_path / 'none'}\n"
    (tmp_path / "empty").mkdir()
    assert main(["coverage", str(tmp_path / "empty")]) == 2
    assert "the databases hold no arch; name one with --arch" in capsys.readouterr().err
    assert main(["coverage", str(tmp_path / "empty"), "--arch", "sm90"]) == 2
    assert "no kernel is declared" in capsys.readouterr().err


def test_help(capsys):
    assert main(["coverage", "--help"]) == 0
    assert "example: lfbo-aot coverage" in capsys.readouterr().out


def test_only_some_kernels(cover, make_entry, write_database, tmp_path):
    write_database(tmp_path / "tuned", {"mine.soft": {TWO: make_entry()}}, dims=DIMS)
    status, found, err = cover({ONE: make_entry()}, "--kernel", "soft", "--arch", "sm90")
    assert (status, err) == (0, "")
    assert [(row["kernel"], row["bucket"]) for row in found["buckets"]] == [
        ("mine.soft", ONE),
        ("mine.soft", TWO),
    ]
    both = cover(None, "--kernel", "soft", "--kernel", "mine.norm", "--arch", "sm90")[1]
    assert len(both["buckets"]) == 4


def test_of_a_kernel_whose_declaration_is_damaged_the_damage_is_said(cover, make_entry, tmp_path):
    cover({ONE: make_entry()})
    declared = tmp_path / "tuned" / "kernels" / "mine.norm.json"
    declared.write_text("{")
    status, _, err = cover(None, "--kernel", "norm", "--arch", "sm90")
    assert status == 1
    assert f"damaged: {declared}:1: " in err
