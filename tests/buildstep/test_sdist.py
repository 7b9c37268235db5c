from __future__ import annotations

import gzip
import os
import tarfile

import pytest

from lfbo_aot.buildstep.sdist import normalize

EPOCH = 1700000000


@pytest.fixture
def archive(tmp_path):
    """A function that makes an archive of a small tree, its files' times and modes given."""

    def make(name, when, mode, owner):
        top = tmp_path / name / "pkg-1.0"
        (top / "pkg").mkdir(parents=True)
        for path in ("pkg/b.py", "pkg/a.py", "run.sh", "long/" + "x" * 120 + ".py"):
            file = top / path
            file.parent.mkdir(exist_ok=True)
            file.write_text(f"# {path}\n")
            file.chmod(0o755 if path == "run.sh" else mode)
            os.utime(file, (when, when))

        def owned(member):
            member.uid, member.uname = owner
            return member

        made = tmp_path / f"{name}.tar.gz"
        with tarfile.open(made, "w:gz") as out:
            out.add(top, "pkg-1.0", filter=owned)
        return made

    return make


def test_equal_files_give_equal_bytes_whoever_made_them_and_when(archive):
    first = archive("first", 1.5e9 + 0.25, 0o644, (0, "root"))
    second = archive("second", 1.6e9, 0o600, (1000, "somebody"))
    assert first.read_bytes() != second.read_bytes()
    normalize(first, EPOCH)
    normalize(second, EPOCH)
    assert first.read_bytes() == second.read_bytes()
    assert {path.name for path in first.parent.glob("*")} == {
        "first", "second", "first.tar.gz", "second.tar.gz"
    }  # fmt: skip


def test_the_archive_holds_what_it_held(archive):
    made = archive("one", 1.5e9, 0o600, (1000, "somebody"))
    with tarfile.open(made) as old:
        before = {m.name: old.extractfile(m).read() for m in old.getmembers() if m.isreg()}
    normalize(made, EPOCH)
    with tarfile.open(made) as new:
        members = new.getmembers()
        assert {m.name: new.extractfile(m).read() for m in members if m.isreg()} == before
        assert [m.name for m in members] == sorted(m.name for m in members)
        assert {m.mtime for m in members} == {EPOCH}
        assert {(m.uid, m.uname) for m in members} == {(0, "")}
        modes = {m.name: m.mode for m in members}
    assert modes["pkg-1.0/run.sh"] == modes["pkg-1.0/pkg"] == 0o755
    assert modes["pkg-1.0/pkg/a.py"] == 0o644
    assert int.from_bytes(made.read_bytes()[4:8], "little") == EPOCH


def test_what_cannot_be_rewritten_stays_as_it_is(tmp_path):
    broken = tmp_path / "broken.tar.gz"
    broken.write_bytes(gzip.compress(b"not a tar"))
    before = broken.read_bytes()
    with pytest.raises(tarfile.ReadError):
        normalize(broken, EPOCH)
    assert broken.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["broken.tar.gz"]
