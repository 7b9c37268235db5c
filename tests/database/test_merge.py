from __future__ import annotations

import multiprocessing

import pytest
from filelock import FileLock
from filelock import Timeout

from lfbo_aot.database.combine import combine
from lfbo_aot.database.contents import read_folder
from lfbo_aot.database.database import Database
from lfbo_aot.database.declaration import Declaration
from lfbo_aot.database.line import encode_line
from lfbo_aot.database.merge import lock_path
from lfbo_aot.database.merge import locked
from lfbo_aot.database.merge import merge
from lfbo_aot.database.verify import verify
from lfbo_aot.errors import DatabaseError
from lfbo_aot.registry.buckets import Bucket
from lfbo_aot.registry.devices import DeviceId
from lfbo_aot.registry.dims import Range

H200 = DeviceId("sm90", "NVIDIA H200")
PCIE = DeviceId("sm90", "NVIDIA H100 PCIe")
B200 = DeviceId("sm100", "NVIDIA B200")
KERNEL = "mykern.scale"
DECLARED = Declaration(KERNEL, {"m": Range(1, 4096, factor=4)}, (), {}, "sha256:1")


def box(lo, hi):
    return Bucket.parse(f"m={lo}..{hi}")


def add(path, entries, declarations=(DECLARED,)):
    merge(path, {KERNEL: entries}, declarations)


def shard(path, arch="sm90"):
    return path / arch / f"{KERNEL}.jsonl"


def files(path):
    return {str(f.relative_to(path)): f.read_bytes() for f in path.rglob("*") if f.is_file()}


def test_what_is_written(tmp_path, make_entry):
    path = tmp_path / "tuned"
    add(path, {(H200, box(5, 16)): make_entry(2), (B200, box(1, 4)): make_entry(8)})
    add(path, {(PCIE, box(1, 4)): make_entry(1), (H200, box(1, 4)): make_entry(4)})
    lines = {
        "NVIDIA H100 PCIe|m=1..4": 1,
        "NVIDIA H200|m=1..4": 4,
        "NVIDIA H200|m=5..16": 2,
    }
    expected = "".join(encode_line(key, make_entry(w)) + "\n" for key, w in lines.items())
    assert files(path) == {
        "kernels/mykern.scale.json": DECLARED.dumps().encode(),
        "sm90/mykern.scale.jsonl": expected.encode(),
        "sm100/mykern.scale.jsonl": (
            encode_line("NVIDIA B200|m=1..4", make_entry(8)) + "\n"
        ).encode(),
    }
    assert verify(path) == ()


def test_the_order_of_merges_does_not_matter(tmp_path, make_entry):
    parts = [{(H200, box(i, i)): make_entry(i)} for i in (1, 2, 4, 8)]
    for name, order in (("a", parts), ("b", parts[::-1])):
        for part in order:
            add(tmp_path / name, part)
    assert files(tmp_path / "a") == files(tmp_path / "b")


def test_an_equal_key_is_replaced_and_others_stay_byte_for_byte(tmp_path, make_entry):
    add(tmp_path, {(H200, box(1, 4)): make_entry(1), (H200, box(5, 16)): make_entry(2)})
    # Another writer's spelling of the same data is valid, and none of this merge's business.
    lines = shard(tmp_path).read_bytes().splitlines(keepends=True)
    lines[1] = respelled(lines[1])
    shard(tmp_path).write_bytes(b"".join(lines))
    add(tmp_path, {(H200, box(1, 4)): make_entry(8)})
    after = shard(tmp_path).read_bytes().splitlines(keepends=True)
    assert after[1] == lines[1]
    assert Database(tmp_path).shard(KERNEL, "sm90").entry("NVIDIA H200|m=1..4") == make_entry(8)


def respelled(line):
    import zlib

    start = line.index(b"{")
    text = line[start:-2].replace(b", ", b",")
    head = line[:start].split(b'", "')[0]
    return head + b'", "%08x", ' % zlib.crc32(text) + text + b"]\n"


def test_nothing_new_touches_no_file(tmp_path, make_entry):
    entries = {(H200, box(1, 4)): make_entry(1)}
    add(tmp_path, entries)
    before = {f: f.stat().st_ino for f in tmp_path.rglob("*.json*")}
    add(tmp_path, entries)
    assert {f: f.stat().st_ino for f in tmp_path.rglob("*.json*")} == before


def test_a_newer_versions_line_is_carried_along_but_not_replaced(tmp_path, make_entry):
    import zlib

    add(tmp_path, {(H200, box(1, 4)): make_entry(1)})
    text = b'{"schema": 2, "key": "NVIDIA H200|m=5..16", "anything": true}'
    newer = b'["NVIDIA H200|m=5..16", "%08x", %s]\n' % (zlib.crc32(text), text)
    shard(tmp_path).write_bytes(shard(tmp_path).read_bytes() + newer)
    add(tmp_path, {(H200, box(1, 4)): make_entry(2)})
    assert shard(tmp_path).read_bytes().splitlines(keepends=True)[1] == newer
    with pytest.raises(DatabaseError, match=r"scale\.jsonl:2: schema 2 is newer"):
        add(tmp_path, {(H200, box(5, 16)): make_entry(2)})


@pytest.mark.parametrize(
    ("damage", "line", "says"),
    [
        (lambda lines: [lines[0], lines[1][:50] + b"\n"], 2, "cut or malformed"),
        (lambda lines: [lines[0].replace(b"25.6", b"25.7"), lines[1]], 1, "checksum"),
        (lambda lines: [lines[0], lines[0]], 2, "duplicate key"),
    ],
)
def test_a_damaged_shard_is_not_written_over(tmp_path, make_entry, damage, line, says):
    add(tmp_path, {(H200, box(1, 4)): make_entry(1), (H200, box(5, 16)): make_entry(2)})
    shard(tmp_path).write_bytes(b"".join(damage(shard(tmp_path).read_bytes().splitlines(True))))
    before = files(tmp_path)
    with pytest.raises(DatabaseError, match=says) as caught:
        add(tmp_path, {(B200, box(1, 4)): make_entry(1), (H200, box(17, 64)): make_entry(1)})
    assert (caught.value.path, caught.value.line) == (shard(tmp_path), line)
    assert files(tmp_path) == before


def test_a_damaged_declaration_is_not_written_over(tmp_path, make_entry):
    add(tmp_path, {(H200, box(1, 4)): make_entry(1)})
    (tmp_path / "kernels" / f"{KERNEL}.json").write_text("{")
    with pytest.raises(DatabaseError, match=r"scale\.json"):
        add(tmp_path, {})


def test_entries_need_a_declaration_that_they_fit(tmp_path, make_entry):
    with pytest.raises(DatabaseError, match="has entries and no declaration"):
        add(tmp_path, {(H200, box(1, 4)): make_entry(1)}, ())
    with pytest.raises(DatabaseError, match="has the dims m; an entry has m, n"):
        add(tmp_path, {(H200, Bucket.parse("m=1|n=2")): make_entry(1)})
    assert files(tmp_path) == {}
    add(tmp_path, {})
    add(tmp_path, {(H200, box(1, 4)): make_entry(1)}, ())
    assert verify(tmp_path) == ()


@pytest.mark.parametrize("arch", ["../up", "kernels", ".hidden", ""])
def test_archs_that_are_no_folder(tmp_path, make_entry, arch):
    with pytest.raises(DatabaseError, match="can't be the name of a folder"):
        add(tmp_path, {(DeviceId(arch, "X"), box(1, 4)): make_entry(1)})


def test_what_a_killed_merge_left_is_cleared(tmp_path, make_entry):
    path = tmp_path / "tuned"
    add(path, {(H200, box(1, 4)): make_entry(1)})
    leftover = shard(path).with_name(f".{KERNEL}.jsonl.tmp")
    leftover.write_text("half a li")
    assert [p.file for p in verify(path)] == [leftover]
    add(path, {})
    assert not leftover.exists()


def test_the_lock_stays_out_of_the_database(tmp_path, make_entry):
    path = tmp_path / "tuned"
    add(path, {(H200, box(1, 4)): make_entry(1)})
    assert lock_path(path) == tmp_path / ".tuned.lock"
    assert {f.name for f in path.iterdir()} == {"kernels", "sm90"}


def _merge_some(path, entry, first):
    for i in range(first, first + 10):
        merge(path, {KERNEL: {(H200, box(i, i)): entry}}, [DECLARED])


def test_merges_at_a_time_lose_nothing(tmp_path, make_entry):
    context = multiprocessing.get_context("fork")
    writers = [
        context.Process(target=_merge_some, args=(tmp_path / "tuned", make_entry(), first))
        for first in (1, 11, 21)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0, 0]
    assert len(Database(tmp_path / "tuned").shard(KERNEL, "sm90").keys) == 30
    assert verify(tmp_path / "tuned") == ()


def test_two_paths_to_one_database_are_one(tmp_path, make_entry):
    real, link = tmp_path / "a" / "tuned", tmp_path / "b" / "tuned"
    real.mkdir(parents=True)
    link.parent.mkdir()
    link.symlink_to(real)
    with locked(link), pytest.raises(Timeout):
        FileLock(lock_path(real), timeout=0).acquire()
    add(link, {(H200, box(1, 4)): make_entry()})
    combine(link, [read_folder(real)], "mine")
    assert link.is_symlink()
    assert shard(real).read_bytes().count(b"\n") == 1
    assert list(link.parent.iterdir()) == [link]


@pytest.mark.parametrize("what", ["sm90", f"sm90/{KERNEL}.jsonl", f"kernels/{KERNEL}.json"])
def test_a_link_is_never_replaced_by_a_file(tmp_path, make_entry, what):
    root, elsewhere = tmp_path / "tuned", tmp_path / "elsewhere"
    add(root, {(H200, box(1, 4)): make_entry()})
    (root / what).rename(elsewhere)
    (root / what).symlink_to(elsewhere)
    with pytest.raises(DatabaseError, match=rf"{root / what}: is a link to {elsewhere}"):
        add(root, {(H200, box(5, 16)): make_entry()})
    assert (root / what).is_symlink()
    assert shard(root).read_bytes().count(b"\n") == 1


def test_a_closed_folder_is_never_taken_for_an_empty_one(tmp_path, make_entry, closed):
    add(tmp_path / "tuned", {(H200, box(1, 4)): make_entry()})
    closed(tmp_path / "tuned" / "sm90")
    with pytest.raises(DatabaseError, match="sm90: can't be read: Permission denied"):
        read_folder(tmp_path / "tuned")


@pytest.mark.parametrize("place", ["/proc/tuned", "file/tuned"])
def test_where_nothing_can_be_written_a_merge_ends_with_an_error(tmp_path, make_entry, place):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=r"tuned|file"):
        add(tmp_path / place, {(H200, box(1, 4)): make_entry()})
