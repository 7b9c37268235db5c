from __future__ import annotations

import os

import pytest

from lfbo_aot.database.contents import read_folder
from lfbo_aot.database.declaration import Declaration
from lfbo_aot.database.files import read_file
from lfbo_aot.errors import DatabaseError


def put(kind, path):
    """Something at `path` that isn't a file."""
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(path.with_name("nowhere"))


KINDS = {
    "pipe": "can't be read: not a file",
    "folder": "can't be read: not a file",
    "broken link": "can't be read: No such file or directory",
}


def test_a_file_and_a_link_to_one(tmp_path):
    (tmp_path / "file").write_bytes(b"here")
    (tmp_path / "link").symlink_to("file")
    assert read_file(tmp_path / "file") == read_file(tmp_path / "link") == b"here"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("read", [read_file, Declaration.read])
def test_what_is_no_file_is_named_and_not_waited_for(tmp_path, kind, read):
    path = tmp_path / "k.norm.json"
    put(kind, path)
    with pytest.raises(DatabaseError) as caught:
        read(path)
    assert str(caught.value) == f"{path}: {KINDS[kind]}"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["kernels/k.other.json", "sm90/k.other.jsonl"])
def test_contents_do_not_leave_it_out(tmp_path, write_database, make_entry, kind, name):
    bucket = "m=1..16|n=2048|dtype=bfloat16"
    database = write_database(tmp_path / "db", {"k.norm": {bucket: make_entry()}})
    assert len(read_folder(database).entries) == 1
    put(kind, database / name)
    with pytest.raises(DatabaseError) as caught:
        read_folder(database)
    assert str(caught.value) == f"{database / name}: {KINDS[kind]}"
