from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from lfbo_aot.database.line import encode_line
from lfbo_aot.database.shard import Shard
from lfbo_aot.errors import DatabaseError
from lfbo_aot.registry.buckets import Bucket
from lfbo_aot.registry.buckets import part_text
from lfbo_aot.registry.dims import Interval


def write(path, entries):
    path.write_text("".join(encode_line(key, entries[key]) + "\n" for key in sorted(entries)))
    return Shard(path)


@st.composite
def boxes(draw):
    los = draw(st.tuples(st.integers(1, 12), st.integers(1, 12)))
    sizes = draw(st.tuples(st.integers(0, 8), st.integers(0, 8)))
    m, n = (Interval(lo, lo + size) for lo, size in zip(los, sizes, strict=True))
    return f"m={part_text(m)}|n={part_text(n)}"


@given(
    keys=st.lists(boxes(), unique=True, min_size=1, max_size=8),
    m=st.integers(1, 20),
    n=st.integers(1, 20),
)
def test_the_smallest_box_wins(tmp_path_factory, make_entry, keys, m, n):
    path = tmp_path_factory.mktemp("shard") / "k.jsonl"
    shard = write(path, {f"H200|{key}": make_entry() for key in keys})
    shape = {"m": m, "n": n}
    holding = [b for b in map(Bucket.parse, keys) if b.contains(shape)]
    expected = min(holding, key=lambda b: (b.volume, b.key)).key if holding else None
    assert shard.find("H200", shape) == (expected and f"H200|{expected}")
    assert shard.find("H100", shape) is None


def test_index_and_entries(tmp_path, make_entry):
    entries = {
        "H100|m=1..4": make_entry(1),
        "H200|m=1..4": make_entry(2),
        "H200|m=5": make_entry(4),
    }
    shard = write(tmp_path / "k.jsonl", entries)
    assert shard.keys == ("H100|m=1..4", "H200|m=1..4", "H200|m=5")
    assert shard.device_names == ("H100", "H200")
    assert [key for _, key in shard.boxes("H200")] == ["H200|m=5", "H200|m=1..4"]
    assert shard.entry("H200|m=5") == make_entry(4)
    assert shard.problems == ()
    with pytest.raises(KeyError):
        shard.entry("H200|m=6")


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(DatabaseError, match="can't be read"):
        _ = Shard(tmp_path).keys


def test_undamaged_lines_of_a_damaged_shard_are_served(tmp_path, make_entry):
    path = tmp_path / "k.jsonl"
    write(path, {"H200|m=1": make_entry(1), "H200|m=2": make_entry(2), "H200|m=3": make_entry(4)})
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(
        lines[0] + lines[1].replace(b'", "', b'", ', 1) + lines[2][: len(lines[2]) // 2]
    )
    shard = Shard(path)
    assert shard.find("H200", {"m": 1}) == "H200|m=1"
    assert [(p.line, "malformed" in p.reason) for p in shard.problems] == [(2, True), (3, True)]
    for m, line in ((2, 2), (3, 3)):
        with pytest.raises(DatabaseError) as caught:
            shard.find("H200", {"m": m})
        assert (caught.value.path, caught.value.line) == (path, line)


def test_of_two_lines_for_one_key_neither_is_served(tmp_path, make_entry):
    path = tmp_path / "k.jsonl"
    lines = [encode_line("H200|m=1", make_entry(w)) for w in (1, 2)]
    path.write_text("\n".join([*lines, encode_line("H200|m=1..9", make_entry(4))]) + "\n")
    with pytest.raises(DatabaseError, match=r"duplicate key .* line 1 too"):
        Shard(path).find("H200", {"m": 1})
    assert Shard(path).find("H200", {"m": 2}) == "H200|m=1..9"


def test_a_damaged_entry_names_its_line(tmp_path, make_entry):
    path = tmp_path / "k.jsonl"
    write(path, {"H200|m=1": make_entry(1), "H200|m=2": make_entry(2)})
    path.write_bytes(path.read_bytes().replace(b'"num_warps": 2', b'"num_warps": 8'))
    with pytest.raises(DatabaseError, match=r"k.jsonl:2: checksum"):
        Shard(path).entry("H200|m=2")
    assert Shard(path).entry("H200|m=1") == make_entry(1)


@settings(max_examples=400, deadline=None)
@given(data=st.data())
def test_no_flipped_byte_gives_another_config(tmp_path_factory, make_entry, data):
    # Nested and neighbouring boxes, so that a lost or a moved one would change an answer.
    entries = {
        "H200|m=1..4|dtype=bfloat16": make_entry(1),
        "H200|m=1..16|dtype=bfloat16": make_entry(2),
        "H200|m=17..64|dtype=bfloat16": make_entry(4),
        "H100|m=1..64|dtype=bfloat16": make_entry(8),
    }
    path = tmp_path_factory.mktemp("flip") / "k.jsonl"
    write(path, entries)
    content = bytearray(path.read_bytes())
    intact = answers(Shard(path))
    # Half of the flips hit keys, which are a small part of the file.
    places = [i for key in entries for i in occurrences(content, key.encode())]
    place = data.draw(st.sampled_from(places) | st.integers(0, len(content) - 1))
    value = data.draw(st.integers(0, 255) | st.sampled_from(b'0123456789.|="\n'))
    content[place] = value
    path.write_bytes(content)
    for asked, answer in answers(Shard(path)).items():
        assert answer in (intact[asked], "damaged"), asked


def test_no_cut_and_no_hole_gives_a_larger_box(tmp_path, make_entry):
    entries = {
        "H200|m=1..64|dtype=bfloat16": make_entry(2),
        "H200|m=1..16|dtype=bfloat16": make_entry(1),
        "H200|m=60..64|dtype=bfloat16": make_entry(4),
    }
    path = tmp_path / "k.jsonl"
    write(path, entries)
    content = path.read_bytes()
    lines = content.splitlines(keepends=True)
    intact = answers(Shard(path))
    for kept in range(1, 60):  # of the line of the small box, whose key ends within
        cut = lines[0][:kept]
        for damaged in (
            lines[1] + lines[2] + cut,
            cut + lines[1] + lines[2],
            cut + b"\n" + lines[1] + lines[2],
        ):
            path.write_bytes(damaged)
            for asked, answer in answers(Shard(path)).items():
                # What is lost with the newline after it may be missing, but not stand in for others.
                assert answer in (intact[asked], "damaged", None), (kept, asked)


def occurrences(content, text):
    start = content.find(text)
    while start >= 0:
        yield from range(start - 2, start + len(text) + 2)
        start = content.find(text, start + 1)


def answers(shard):
    found = {}
    for device in ("H200", "H100"):
        for m in (1, 4, 5, 9, 16, 17, 40, 64, 65, 94):
            try:
                key = shard.find(device, {"m": m, "dtype": "bfloat16"})
                found[device, m] = key and shard.entry(key).config
            except DatabaseError:
                found[device, m] = "damaged"
    return found


def test_two_lines_without_the_newline_between_them_are_both_damaged(tmp_path, make_entry):
    path = tmp_path / "k.jsonl"
    write(
        path, {"H200|m=1": make_entry(1), "H200|m=2": make_entry(2), "H200|m=1..9": make_entry(4)}
    )
    first, second, third = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + second.replace(b"\n", b"\r") + third)
    shard = Shard(path)
    assert shard.entry(shard.find("H200", {"m": 1})) == make_entry(1)
    for m in (2, 3):
        with pytest.raises(DatabaseError, match=r"k\.jsonl:2: the line is cut or malformed"):
            shard.find("H200", {"m": m})
