from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lfbo_aot.database.journal import Journal
from lfbo_aot.errors import DatabaseError

RECORDS = [
    {"kind": "open", "kernel": "lfbo_aot.layer_norm", "space": "sha256:1"},
    {"kind": "ask", "config": {"block_sizes": [1, 2]}},
    {"kind": "trial", "status": "ok", "latency_us": 25.6},
    {"kind": "final", "note": "µs"},
]


def filled(path, records=RECORDS):
    with Journal(path) as journal:
        for record in records:
            journal.append(record)
    return path


def test_records_come_back_in_order(tmp_path):
    path = filled(tmp_path / "deep" / "folder" / "run.jsonl")
    assert list(Journal(path).records()) == RECORDS
    assert path.read_text().count("\n") == len(RECORDS)


def test_no_file_holds_no_records(tmp_path):
    assert list(Journal(tmp_path / "none.jsonl").records()) == []
    assert not (tmp_path / "none.jsonl").exists()


@given(cut=st.integers(0, 10_000))
def test_cut_at_any_byte_the_whole_records_stay(tmp_path_factory, cut):
    path = filled(tmp_path_factory.mktemp("cut") / "run.jsonl")
    content = path.read_bytes()
    cut %= len(content) + 1
    path.write_bytes(content[:cut])
    kept = RECORDS[: content[:cut].count(b"\n")]
    assert list(Journal(path).records()) == kept
    with Journal(path) as journal:
        journal.append({"kind": "more"})
    assert list(Journal(path).records()) == [*kept, {"kind": "more"}]


def test_a_reader_does_not_cut(tmp_path):
    path = filled(tmp_path / "run.jsonl")
    path.write_bytes(path.read_bytes() + b'{"kind": "tri')
    before = path.read_bytes()
    assert list(Journal(path).records()) == RECORDS
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "tail", [b"\0\0\0\0", b"\0\0\n", b"{]\n", b"\n", b"[1]\n", b'{"a": NaN}\n']
)
def test_a_last_line_that_is_no_record_is_cut(tmp_path, tail):
    path = filled(tmp_path / "run.jsonl")
    good = path.read_bytes()
    path.write_bytes(good + tail)
    assert list(Journal(path).records()) == RECORDS
    with Journal(path):
        pass
    assert path.read_bytes() == good


@pytest.mark.parametrize("line", [b"{]", b"", b"[1]", b"\xff"])
def test_an_invalid_line_in_the_middle_is_an_error(tmp_path, line):
    path = filled(tmp_path / "run.jsonl")
    lines = path.read_bytes().split(b"\n")
    lines[1] = line
    path.write_bytes(b"\n".join(lines))
    with pytest.raises(DatabaseError, match=r"run\.jsonl:2: ") as caught:
        list(Journal(path).records())
    assert caught.value.line == 2


def test_long_records_are_cut_whole(tmp_path):
    path = filled(tmp_path / "run.jsonl")
    good = path.read_bytes()
    path.write_bytes(good + b'{"long": "' + b"x" * 200_000)
    with Journal(path):
        pass
    assert path.read_bytes() == good


@pytest.mark.parametrize("bad", [{"x": math.nan}, {"x": math.inf}])
def test_what_is_no_json_is_not_written(tmp_path, bad):
    path = filled(tmp_path / "run.jsonl")
    with Journal(path) as journal, pytest.raises(ValueError):
        journal.append(bad)
    assert list(Journal(path).records()) == RECORDS


def test_a_short_write_is_taken_back(tmp_path, monkeypatch):
    path = filled(tmp_path / "run.jsonl")
    write = os.write
    with Journal(path) as journal:
        monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:5]))
        with pytest.raises(DatabaseError, match="in part"):
            journal.append({"kind": "trial"})
        monkeypatch.undo()
        journal.append({"kind": "trial"})
    assert list(Journal(path).records()) == [*RECORDS, {"kind": "trial"}]


def test_each_append_is_one_write_and_one_sync(tmp_path, monkeypatch):
    calls = []
    write, fsync = os.write, os.fsync
    with Journal(tmp_path / "run.jsonl") as journal:
        monkeypatch.setattr(os, "write", lambda fd, data: calls.append("write") or write(fd, data))
        monkeypatch.setattr(os, "fsync", lambda fd: calls.append("fsync") or fsync(fd))
        journal.append({"kind": "trial"})
    assert calls == ["write", "fsync"]


def test_a_killed_writer_loses_nothing_that_it_said_was_written(tmp_path):
    path = tmp_path / "run.jsonl"
    code = (
        "import itertools, sys; from lfbo_aot.database.journal import Journal\n"
        "journal = Journal(sys.argv[1])\n"
        "for i in itertools.count():\n"
        "    journal.append({'i': i, 'pad': 'x' * 5000}); print(i, flush=True)\n"
    )
    command = [sys.executable, "-c", code, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            if int(line) == 20:
                process.send_signal(signal.SIGKILL)
                break
        said = [20, *map(int, process.stdout.read().split())][-1]
    records = [record["i"] for record in Journal(path).records()]
    assert records == list(range(len(records)))
    assert len(records) > said
    assert json.loads(path.read_bytes().split(b"\n")[0])["i"] == 0
