"""The store and the policy of a process: what each setter sets, and takes back."""

from __future__ import annotations

import os
import threading

import pytest

import lfbo_aot
from lfbo_aot.database import store as store_module
from lfbo_aot.runtime import memo
from lfbo_aot.runtime import state
from lfbo_aot.runtime.resolve import resolve

pytestmark = pytest.mark.usefixtures("isolated")

KERNEL = "mykern.norm"
ARCH = "sm90/NVIDIA H200"
BUCKET = "m=17..256|n=2048|dtype=bfloat16"
SHAPE = {"m": 100, "n": 2048, "dtype": "bfloat16"}


@pytest.fixture
def folders(tmp_path):
    made = [tmp_path / name for name in "ab"]
    for folder in made:
        folder.mkdir()
    return made


def in_force():
    return state._chosen.databases, state.policy(), state.on_miss()


def test_blocks_that_end_in_any_order_leave_nothing_behind(folders):
    before, mark = in_force(), memo.mark()
    one = lfbo_aot.use_database(folders[0])
    two = lfbo_aot.use_policy("exact")
    three = lfbo_aot.use_database(folders[1])
    assert in_force() == ((folders[1], folders[0]), "exact", "default")
    one.__exit__(None, None, None)
    assert in_force() == ((folders[1],), "exact", "default")
    three.__exit__(None, None, None)
    two.__exit__(None, None, None)
    two.__exit__(None, None, None)
    assert (in_force(), memo.mark()) == (before, mark)


def test_what_is_set_without_a_block_stays_and_takes_no_room(folders):
    for at in range(50):
        lfbo_aot.use_policy(("exact", "any")[at % 2])
        lfbo_aot.use_database(folders[at % 2])
    with lfbo_aot.use_policy(on_miss="error"):
        assert in_force() == ((folders[1], folders[0]), "any", "error")
    assert in_force() == ((folders[1], folders[0]), "any", "default")
    assert len(state._changes) <= 1


def test_a_refresh_is_another_store():
    mark = memo.mark()
    state.refresh()
    assert memo.mark() != mark


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_forked_while_another_thread_looks_up_can_look_up(
    tmp_path, write_database, make_entry, monkeypatch
):
    lfbo_aot.use_database(write_database(tmp_path / "db", {KERNEL: {BUCKET: make_entry(8)}}))
    inside, go_on = threading.Event(), threading.Event()
    real = store_module.package_layers

    def slow():
        if threading.current_thread() is not threading.main_thread():
            inside.set()
            go_on.wait(30)
        return real()

    monkeypatch.setattr(store_module, "package_layers", slow)
    state.refresh()
    thread = threading.Thread(target=resolve, args=(KERNEL, SHAPE, ARCH))
    thread.start()
    assert inside.wait(30)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, resolve(KERNEL, SHAPE, ARCH).status.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as answers:
        assert answers.read() == b"exact"
    os.waitpid(child, 0)
    go_on.set()
    thread.join()
