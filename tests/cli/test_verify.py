from __future__ import annotations

import json
import zlib

import pytest

from lfbo_aot.cli.main import main
from lfbo_aot.database.store import built_in_database

pytestmark = pytest.mark.usefixtures("isolated")

KERNEL = "mykern.norm"
BUCKETS = ("m=1..16|n=2048|dtype=bfloat16", "m=17..256|n=2048|dtype=bfloat16")


@pytest.fixture
def database(tmp_path, write_database, make_entry):
    held = {bucket: make_entry(w) for bucket, w in zip(BUCKETS, (1, 2), strict=True)}
    return write_database(tmp_path / "tuned", {KERNEL: held})


def reworded(line, **fields):
    key, _, entry = json.loads(line)
    text = json.dumps({**entry, **fields}).encode()
    return b'["%s", "%08x", %s]\n' % (key.encode(), zlib.crc32(text), text)


def another_device(line):
    key, _, entry = json.loads(line)
    del entry["key"]
    text = json.dumps(entry).encode()
    key = key.replace("H200", "H300").encode()
    return b'["%s", "%08x", %s]\n' % (key, zlib.crc32(text), text)


def test_all_well(database, capsys):
    assert main(["verify", str(database)]) == 0
    assert capsys.readouterr().out == f"{database}: 1 shards, 2 lines, all well\n"
    assert main(["verify", str(database), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "database": str(database),
        "shards": 1,
        "lines": 2,
        "problems": [],
    }


DAMAGE = {
    "a cut line": (lambda one, two: [one, two[:70]], 2, "cut or malformed"),
    "a flipped digit": (lambda one, two: [one, two.replace(b"25.6", b"25.7")], 2, "checksum"),
    "a duplicate key": (lambda one, two: [one, two, two], 3, "duplicate key"),
    "an unsorted line": (lambda one, two: [two, one], 2, "not sorted"),
    "an unknown device": (lambda one, two: [one, two, another_device(two)], 3, "unknown device"),
    "an unknown field": (lambda one, two: [reworded(one, x=1), two], 1, "unknown field 'x'"),
    "a NaN": (lambda one, two: [reworded(one, spread=float("nan")), two], 1, "isn't finite"),
    "an older schema": (lambda one, two: [one, reworded(two, schema=0)], 2, "older than any"),
    "a newer schema": (lambda one, two: [one, reworded(two, schema=9)], 2, "is newer than"),
}


@pytest.mark.parametrize(("damage", "line", "says"), DAMAGE.values(), ids=DAMAGE)
def test_each_kind_of_damage_is_named_by_file_and_line(database, capsys, damage, line, says):
    shard = database / "sm90" / f"{KERNEL}.jsonl"
    shard.write_bytes(b"".join(damage(*shard.read_bytes().splitlines(keepends=True))))
    assert main(["verify", str(database)]) == 1
    first, *_, summary = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{shard}:{line}: ")
    assert says in first
    assert " problem" in summary
    assert main(["verify", str(database), "--json"]) == 1
    problem = json.loads(capsys.readouterr().out)["problems"][0]
    assert (problem["file"], problem["line"]) == (str(shard), line)
    assert says in problem["reason"]


def test_a_shard_without_a_declaration(database, capsys):
    (database / "kernels" / f"{KERNEL}.json").unlink()
    assert main(["verify", str(database)]) == 1
    shard = database / "sm90" / f"{KERNEL}.jsonl"
    assert capsys.readouterr().out.startswith(f"{shard}:1: a shard without a declaration: ")


def test_the_built_in_database_is_well(capsys):
    assert main(["verify"]) == 0
    assert capsys.readouterr().out.startswith(f"{built_in_database()}: ")


def test_no_such_folder(tmp_path, capsys):
    assert main(["verify", str(tmp_path / "none")]) == 2
    assert capsys.readouterr().err == f"lfbo-aot: error: no such folder: {tmp_path / 'none'}\n"


def test_a_folder_that_is_no_database(tmp_path, capsys):
    (tmp_path / "notes.txt").write_text("")
    assert main(["verify", str(tmp_path)]) == 1
    first, summary = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{tmp_path}: isn't a database: ")
    assert summary.endswith("0 shards, 0 lines, 1 problem")
