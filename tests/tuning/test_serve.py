from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from lfbo_aot.errors import UnknownNameError
from lfbo_aot.registry import catalog
from lfbo_aot.registry.discovery import load_kernels
from lfbo_aot.tuning.channel import Channel
from lfbo_aot.tuning.workers.serve import first_line
from lfbo_aot.tuning.workers.serve import import_kernel
from lfbo_aot.tuning.workers.serve import kernel_reference

pytestmark = pytest.mark.usefixtures("isolated")

# What a declaration comes to, without Helion.
DECLARE = """
import inspect
from lfbo_aot.registry import catalog
from lfbo_aot.registry.dims import Exact
from lfbo_aot.registry.spec import make_spec

def declare(place, shape):
    catalog.add(make_spec(
        kernel=object(), kernel_id="mine.copy", signature=inspect.signature(lambda x: x),
        place=place, source="sha256:0", settings={}, dims={"n": Exact(4)}, shape=shape,
    ))
"""
WRITTEN = """
from declare import declare
PLACE = __name__, __file__, 3
declare(PLACE, lambda x: {"n": 4})
"""
ELSEWHERE = """
from declare import declare
declare(("bare", "BARE", 3), lambda x: {"n": 4})
"""


@pytest.fixture
def folders(tmp_path, monkeypatch):
    lib, other = tmp_path / "lib", tmp_path / "other"
    lib.mkdir()
    other.mkdir()
    (lib / "declare.py").write_text(DECLARE)
    (other / "declare.py").write_text(DECLARE)
    (lib / "written.py").write_text(WRITTEN)
    (lib / "bare.py").write_text("")
    (lib / "elsewhere.py").write_text(ELSEWHERE.replace("BARE", str(lib / "bare.py")))
    (other / "written.py").write_text("raise ImportError('another one')")
    before = set(sys.modules)
    yield lib, other
    for name in set(sys.modules) - before:
        del sys.modules[name]


def referred(monkeypatch, module, lib, seen_by_the_worker):
    """The spec that a worker imports, whose path is another one."""
    names = set(sys.modules)
    with monkeypatch.context() as patch:
        patch.syspath_prepend(str(lib))
        load_kernels([module])
        reference = kernel_reference(catalog.find("mine.copy"))
    for name in set(sys.modules) - names:
        del sys.modules[name]
    catalog.discard("mine.copy")
    monkeypatch.syspath_prepend(str(seen_by_the_worker))
    return import_kernel(reference)


def test_by_name(folders, monkeypatch):
    lib, _ = folders
    assert referred(monkeypatch, "written", lib, lib).module == "written"


def test_by_path_where_something_else_has_the_name(folders, monkeypatch):
    lib, other = folders
    found = referred(monkeypatch, str(lib / "written.py"), lib, other)
    assert found.file == str(lib / "written.py")


def test_one_that_is_registered_elsewhere_than_it_is_written(folders, monkeypatch):
    lib, _ = folders
    found = referred(monkeypatch, "elsewhere", lib, lib)
    assert (found.module, found.shape.__module__) == ("bare", "elsewhere")


def test_one_that_its_modules_do_not_declare(folders, monkeypatch):
    lib, _ = folders
    monkeypatch.syspath_prepend(str(lib))
    places = [["bare", str(lib / "bare.py")], ["__main__", str(lib / "bare.py")]]
    with pytest.raises(UnknownNameError, match=r"unknown kernel 'mine\.copy'"):
        import_kernel({"kernel": "mine.copy", "places": places})


def test_an_error_on_one_line():
    assert first_line(ValueError("a\n\n  b")) == "ValueError: a b"
    assert len(first_line(ValueError("x" * 999))) == 300


# Answers with what had been done by then.
WORKER = """
from lfbo_aot.tuning.workers.serve import serve

DONE = []

def work(request):
    DONE.append(request["n"])
    if request["n"] < 0:
        raise ValueError("less than nothing")
    return {"done": DONE}

serve({"work": work}, **THEN)
"""


@pytest.mark.parametrize("once", [True, False], ids=["something to do", "nothing"])
def test_what_is_done_after_the_first_answer(once):
    then = "dict(then=lambda: DONE.append('warm'))" if once else "{}"
    ours, theirs = socket.socketpair()
    with theirs:
        script = WORKER.replace("THEN", then)
        words = [str(theirs.fileno()), str(os.getpid())]
        process = subprocess.Popen(
            [sys.executable, "-c", script, *words],
            pass_fds=[theirs.fileno()],
            stderr=subprocess.DEVNULL,
        )
    channel = Channel(ours)
    for n in (-1, 2, 3):
        channel.send({"op": "work", "n": n})
    assert channel.receive() == {"error": "ValueError: less than nothing"}
    warm = ["warm"] if once else []
    assert channel.receive() == {"reply": {"done": [-1, *warm, 2]}}
    assert channel.receive() == {"reply": {"done": [-1, *warm, 2, 3]}}
    channel.close()
    assert process.wait(timeout=30) == 0
