from __future__ import annotations

from lfbo_aot.buildstep.target import database_files
from lfbo_aot.buildstep.target import files_on_disk
from lfbo_aot.buildstep.target import write_target

FILES = {"__init__.py": b"", "kernels/k.json": b"{}\n", "sm90/k.jsonl": b"line\n"}


def tree(folder):
    return {
        p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()
    }


def test_the_folder_holds_what_it_is_given(tmp_path):
    write_target(tmp_path / "tuned", FILES)
    assert tree(tmp_path / "tuned") == FILES
    assert [p.name for p in tmp_path.iterdir()] == ["tuned"], "nothing is left beside it"


def test_what_an_earlier_build_left_goes(tmp_path):
    write_target(tmp_path / "tuned", {**FILES, "sm80/k.jsonl": b"old\n", "manifest.json": b"{}"})
    (tmp_path / "tuned" / "__pycache__").mkdir()
    (tmp_path / "tuned" / "__pycache__" / "x.pyc").write_bytes(b"")
    (tmp_path / "tuned" / "sm90" / "link").symlink_to("/etc/hostname")
    write_target(tmp_path / "tuned", FILES)
    assert tree(tmp_path / "tuned") == FILES
    assert not (tmp_path / "tuned" / "sm80").exists()


def test_a_file_that_is_right_is_not_touched(tmp_path):
    write_target(tmp_path, FILES)
    before = (tmp_path / "sm90" / "k.jsonl").stat()
    write_target(tmp_path, {**FILES, "kernels/k.json": b"{ }\n"})
    after = (tmp_path / "sm90" / "k.jsonl").stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


def test_a_link_is_replaced_and_what_it_names_is_left_alone(tmp_path):
    outside = tmp_path / "outside"
    outside.write_bytes(b"line\n")
    (tmp_path / "tuned" / "sm90").mkdir(parents=True)
    (tmp_path / "tuned" / "sm90" / "k.jsonl").symlink_to(outside)
    write_target(tmp_path / "tuned", {"sm90/k.jsonl": b"new\n"})
    assert outside.read_bytes() == b"line\n"
    assert not (tmp_path / "tuned" / "sm90" / "k.jsonl").is_symlink()


def test_modes_do_not_depend_on_whose_files_they_were(tmp_path):
    write_target(tmp_path, FILES)
    (tmp_path / "sm90" / "k.jsonl").chmod(0o400)
    write_target(tmp_path, FILES)
    assert (tmp_path / "sm90" / "k.jsonl").stat().st_mode & 0o777 == 0o644


def test_only_the_databases_own_files_are_listed(tmp_path):
    write_target(
        tmp_path, {**FILES, "manifest.json": b"", "sm90/.k.jsonl.tmp": b"", "x/y.txt": b""}
    )
    assert database_files(tmp_path) == ["kernels/k.json", "sm90/k.jsonl"]
    assert files_on_disk(tmp_path) == [
        "__init__.py",
        "kernels/k.json",
        "manifest.json",
        "sm90/k.jsonl",
    ]
    assert files_on_disk(tmp_path / "none") == []
