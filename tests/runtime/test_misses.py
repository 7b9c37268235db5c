from __future__ import annotations

import json
import os

import pytest

import lfbo_aot

pytestmark = pytest.mark.usefixtures("isolated")

BUCKET = "m=17..256|n=2048|dtype=bfloat16"
ARCH = "sm90/NVIDIA H200"


@pytest.fixture
def ask(tmp_path, write_database, make_entry):
    lfbo_aot.use_database(write_database(tmp_path / "tuned", {"k.norm": {BUCKET: make_entry()}}))
    return lambda m, arch=ARCH: lfbo_aot.get_config("norm", (m, 2048, "bfloat16"), arch)


def test_each_missed_shape_stands_there_once(isolated, tmp_path, ask):
    path = tmp_path / "records" / "misses.jsonl"
    isolated.setenv("LFBO_AOT_RECORD_MISSES", str(path))
    for m in (300, 100, 300, 301):
        ask(m)
    with lfbo_aot.use_policy("any"):
        ask(300)
    ask(300, "sm80")
    assert [json.loads(line) for line in path.read_text().splitlines()] == [
        {"kernel": "k.norm", "shape": {"m": m, "n": 2048, "dtype": "bfloat16"}, "arch": arch}
        for m, arch in ((300, ARCH), (301, ARCH), (300, "sm80"))
    ]


def test_nothing_is_recorded_unasked(tmp_path, ask):
    before = set(tmp_path.rglob("*"))
    ask(300)
    assert set(tmp_path.rglob("*")) == before


def test_a_file_that_cannot_be_written_is_warned_of_once(isolated, tmp_path, ask, caplog):
    isolated.setenv("LFBO_AOT_RECORD_MISSES", str(tmp_path))
    assert [ask(300), ask(301)] == [{}, {}]
    said = [r.getMessage() for r in caplog.records if "RECORD_MISSES" in r.getMessage()]
    assert said == [f"LFBO_AOT_RECORD_MISSES: {tmp_path} can't be written: Is a directory"]


@pytest.mark.parametrize("read", [False, True])
def test_a_pipe_is_not_waited_for(isolated, tmp_path, ask, caplog, read):
    """Neither where nobody reads it, nor where its reader would be stuck when it is full."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    isolated.setenv("LFBO_AOT_RECORD_MISSES", str(pipe))
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK) if read else None
    assert [ask(300), ask(301)] == [{}, {}]
    if reader is not None:
        assert os.read(reader, 1) == b""
        os.close(reader)
    said = [r.getMessage() for r in caplog.records if "RECORD_MISSES" in r.getMessage()]
    why = "not a regular file" if read else "No such device or address"
    assert said == [f"LFBO_AOT_RECORD_MISSES: {pipe} can't be written: {why}"]
