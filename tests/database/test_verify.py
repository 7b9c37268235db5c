from __future__ import annotations

import json
import zlib

import pytest

from lfbo_aot.database.verify import Problem
from lfbo_aot.database.verify import verify
from lfbo_aot.errors import DatabaseError

KERNEL = "lfbo_aot.layer_norm"
BUCKETS = ("m=1..16|n=2048|dtype=bfloat16", "m=17..256|n=2048|dtype=bfloat16")


@pytest.fixture
def database(tmp_path, write_database, make_entry):
    return write_database(
        tmp_path / "tuned",
        {KERNEL: {bucket: make_entry(w) for bucket, w in zip(BUCKETS, (1, 2), strict=True)}},
    )


@pytest.fixture
def shard(database):
    return database / "sm90" / f"{KERNEL}.jsonl"


def lines_of(shard):
    return shard.read_bytes().splitlines(keepends=True)


def put(shard, lines):
    shard.write_bytes(b"".join(lines))


def reworded(line, change):
    """The line with its entry changed, and a checksum that fits."""
    key, _, entry = json.loads(line)
    change(entry)
    text = json.dumps(entry)
    return f'["{key}", "{zlib.crc32(text.encode()):08x}", {text}]\n'.encode()


def test_nothing_is_wrong(database):
    assert verify(database) == ()


def test_an_empty_database(tmp_path):
    (tmp_path / "kernels").mkdir()
    assert verify(tmp_path) == ()


def test_a_folder_that_is_no_database(tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "module.py").write_text("")
    (tmp_path / "README.md").write_text("")
    (problem,) = verify(tmp_path)
    assert (problem.file, problem.line) == (tmp_path, None)
    assert problem.reason.startswith("isn't a database: a database is a folder that holds kernels/")


def test_a_folder_that_cannot_be_read_is_a_problem(database, closed):
    closed(database / "sm90")
    assert [str(p) for p in verify(database)] == [
        f"{database / 'sm90'}: can't be read: Permission denied"
    ]


def test_no_folder(tmp_path):
    with pytest.raises(DatabaseError, match="no such folder"):
        verify(tmp_path / "none")


def test_a_cut_line(database, shard):
    one, two = lines_of(shard)
    put(shard, [one, two[:-20]])
    (malformed, unended) = verify(database)
    assert (malformed.file, malformed.line) == (shard, 2)
    assert "cut or malformed" in malformed.reason
    assert unended == Problem(shard, 2, "the last line is cut: it doesn't end in a newline")


def test_only_the_newline_is_cut(database, shard):
    put(shard, [lines_of(shard)[0], lines_of(shard)[1].rstrip()])
    assert [(p.line, "newline" in p.reason) for p in verify(database)] == [(2, True)]


def test_a_flipped_digit_in_a_latency(database, shard):
    one, two = lines_of(shard)
    put(shard, [one, two.replace(b'"latency_us": 25.6', b'"latency_us": 15.6')])
    (problem,) = verify(database)
    assert (problem.file, problem.line) == (shard, 2)
    assert problem.reason.startswith("checksum ")
    assert str(problem).startswith(f"{shard}:2: checksum ")


def test_a_duplicate_key(database, shard):
    one, two = lines_of(shard)
    put(shard, [one, two, two])
    key = f"NVIDIA H200|{BUCKETS[1]}"
    assert verify(database) == (
        Problem(shard, 3, f"duplicate key {key!r}: it stands on line 2 too"),
    )


def test_an_unsorted_line(database, shard):
    put(shard, lines_of(shard)[::-1])
    (problem,) = verify(database)
    assert (problem.line, problem.reason[:11]) == (2, "not sorted:")


def test_a_shard_without_a_declaration(database, shard):
    declared = database / "kernels" / f"{KERNEL}.json"
    declared.unlink()
    assert verify(database) == (
        Problem(shard, 1, f"a shard without a declaration: {declared} is missing"),
    )


def test_a_damaged_declaration(database):
    declared = database / "kernels" / f"{KERNEL}.json"
    declared.write_text(declared.read_text().replace('"dims"', '"dimes"'))
    assert verify(database) == (Problem(declared, None, "unknown field 'dimes'"),)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("NVIDIA H300", "unknown device 'NVIDIA H300' of arch sm90. Did you mean 'NVIDIA H"),
        ("NVIDIA H100", "look-ups call it 'NVIDIA H100 80GB HBM3'"),
        ("NVIDIA B200", "device 'NVIDIA B200' is of arch sm100, not sm90"),
        ("H200", "unknown device 'H200'"),
    ],
)
def test_an_unknown_device(database, shard, name, says):
    one, two = lines_of(shard)
    renamed = reworded(one, lambda entry: entry.pop("key"))
    put(shard, sorted([renamed.replace(b"NVIDIA H200", name.encode()), two]))
    (problem,) = verify(database)
    assert says in problem.reason
    assert problem.line == 1 + (name > "NVIDIA H200")


def test_an_unknown_arch(database, shard):
    (database / "sm90").rename(database / "sm_90")
    assert [p.reason for p in verify(database)] == [
        "no look-up reads it: the folder of this arch is 'sm90'"
    ]


def test_an_unknown_field(database, shard):
    one, two = lines_of(shard)
    put(shard, [reworded(one, lambda entry: entry.update(colour="red")), two])
    assert verify(database) == (Problem(shard, 1, "unknown field 'colour'"),)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_is_not_finite(database, shard, number):
    one, two = lines_of(shard)
    put(shard, [one, reworded(two, lambda entry: entry.update(spread=number))])
    (problem,) = verify(database)
    assert problem.line == 2
    assert "isn't finite" in problem.reason


def test_an_overflowing_number(database, shard):
    one, two = lines_of(shard)
    text = two[two.index(b"{") : -2].replace(b"0.011", b"1e999")
    put(shard, [one, two[: two.index(b'", "')] + b'", "%08x", %s]\n' % (zlib.crc32(text), text)])
    assert [(p.line, p.reason[:13]) for p in verify(database)] == [(2, "spread is inf")]


@pytest.mark.parametrize(
    ("schema", "says"), [(0, "schema 0 is older than any"), (2, "schema 2 is newer than 1")]
)
def test_an_older_and_a_newer_schema(database, shard, schema, says):
    one, two = lines_of(shard)
    put(shard, [reworded(one, lambda entry: entry.update(schema=schema)), two])
    (problem,) = verify(database)
    assert (problem.file, problem.line) == (shard, 1)
    assert says in problem.reason


def test_a_wrong_type(database, shard):
    one, two = lines_of(shard)
    put(shard, [reworded(one, lambda entry: entry.update(near_tie="no")), two])
    assert [(p.line, p.reason[:11]) for p in verify(database)] == [(1, "near_tie is")]


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        (b"|n=2048", b"", "unreachable: the dims are m, dtype, and m, n, dtype are declared"),
        (b"m=1..16|n=2048", b"n=2048|m=1..16", "unreachable: the dims are n, m, dtype"),
        (b"m=1..16", b"m=01..16", "should be written"),
        (b"m=1..16", b"m=16..1", "is empty"),
    ],
)
def test_a_key_that_no_lookup_reaches(database, shard, before, after, says):
    one, two = lines_of(shard)
    one = reworded(one, lambda entry: entry.pop("key"))
    put(shard, sorted([one.replace(before, after, 1), two]))
    (problem,) = verify(database)
    assert says in problem.reason


def test_a_key_of_another_entry(database, shard):
    one, two = lines_of(shard)
    put(shard, [one.replace(b"m=1..16", b"m=1..15", 1), two])
    assert [(p.line, p.reason[:20]) for p in verify(database)] == [(1, "the entry belongs to")]


def test_an_older_box_is_no_problem(tmp_path, write_database, make_entry):
    path = write_database(tmp_path / "old", {KERNEL: {"m=3..99|n=4|dtype=float32": make_entry()}})
    assert verify(path) == ()


@pytest.mark.parametrize(
    "stray", ["notes.txt", "sm90/notes.txt", "sm90/deep/x.jsonl", "kernels/x.jsonl", "sm90/x.json"]
)
def test_stray_files(database, stray):
    file = database / stray
    file.parent.mkdir(exist_ok=True)
    file.write_text("")
    (problem,) = verify(database)
    assert problem.reason.startswith("stray: ")
    assert str(file).startswith(str(problem.file))


def test_what_may_stand_beside(database):
    (database / "__init__.py").write_text("")
    (database / "__pycache__").mkdir()
    (database / "manifest.json").write_text("{}")
    assert verify(database) == ()
