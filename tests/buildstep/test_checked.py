from __future__ import annotations

import pytest

from lfbo_aot.buildstep.checked import database_of
from lfbo_aot.buildstep.checked import disagreement
from lfbo_aot.buildstep.checked import every_line
from lfbo_aot.buildstep.checked import read_checked_in

FIRST = "m=1..16|n=2048|dtype=bfloat16"
SECOND = "m=17..256|n=2048|dtype=bfloat16"


@pytest.fixture
def folder(tmp_path, write_database, make_entry):
    held = {FIRST: make_entry(1), SECOND: make_entry(2)}
    return write_database(tmp_path / "tuned", {"pkg.k": held, "pkg.other": {FIRST: make_entry(3)}})


def files(folder):
    return {
        p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()
    }


def test_a_sound_database_comes_back_byte_for_byte(folder):
    found = read_checked_in(folder, "tuned")
    assert found.problems == []
    assert found.archs() == ("sm90",)
    assert database_of(found) == files(folder)
    keys = [(arch, kernel, held.bucket) for arch, kernel, _, held in every_line(found)]
    assert keys == [
        ("sm90", "pkg.k", FIRST),
        ("sm90", "pkg.k", SECOND),
        ("sm90", "pkg.other", FIRST),
    ]


def test_a_missing_folder_is_an_empty_database(tmp_path):
    found = read_checked_in(tmp_path / "none", "none")
    assert (found.lines, found.declarations, found.problems) == ({}, {}, [])


def test_a_damaged_line_is_left_out_and_named(folder):
    shard = folder / "sm90" / "pkg.k.jsonl"
    shard.write_bytes(shard.read_bytes().replace(b'"num_warps": 1', b'"num_warps": 8', 1))
    found = read_checked_in(folder, "tuned")
    assert [held.bucket for held in found.lines["sm90", "pkg.k"].values()] == [SECOND]
    assert len(found.problems) == 1
    assert found.problems[0].startswith("tuned/sm90/pkg.k.jsonl:1: ")


def test_of_two_lines_for_one_key_neither_is_taken(folder):
    shard = folder / "sm90" / "pkg.k.jsonl"
    lines = shard.read_bytes().splitlines(keepends=True)
    shard.write_bytes(b"".join([lines[0], *lines]))
    found = read_checked_in(folder, "tuned")
    assert [held.bucket for held in found.lines["sm90", "pkg.k"].values()] == [SECOND]
    assert "duplicate key" in found.problems[0]


def test_a_line_of_other_dims_is_left_out(folder):
    shard, other = folder / "sm90" / "pkg.k.jsonl", folder / "kernels" / "pkg.k.json"
    other.write_bytes(other.read_bytes().replace(b"n=", b"k=").replace(b'"n"', b'"k"'))
    found = read_checked_in(folder, "tuned")
    assert found.lines["sm90", "pkg.k"] == {}
    assert found.problems[0].startswith(f"tuned/sm90/{shard.name}:1: the dims are m, n, dtype")


def test_a_shard_without_a_readable_declaration_is_left_out(folder):
    (folder / "kernels" / "pkg.k.json").write_text("{")
    (folder / "kernels" / "pkg.other.json").unlink()
    found = read_checked_in(folder, "tuned")
    assert found.lines == {}
    assert [problem.partition(":")[0] for problem in found.problems] == [
        "tuned/kernels/pkg.k.json",
        "tuned/sm90/pkg.k.jsonl",
        "tuned/sm90/pkg.other.jsonl",
    ]


def test_a_declaration_of_another_kernel_is_named(folder):
    text = (folder / "kernels" / "pkg.other.json").read_bytes()
    (folder / "kernels" / "pkg.k.json").write_bytes(text)
    assert "declares 'pkg.other'" in read_checked_in(folder, "tuned").problems[0]


def test_an_entry_agrees_with_its_own_source_and_settings(make_entry):
    entry = make_entry()
    settings = {"static_shapes": True, "fast_math": False}
    assert disagreement(entry, entry.source, settings) == ""
    assert disagreement(entry, entry.source, None) == ""
    assert "source has changed" in disagreement(entry, "sha256:else", settings)
    assert "settings have changed" in disagreement(entry, entry.source, {"static_shapes": False})
