from __future__ import annotations

import gc
import json
import sys
import textwrap
import warnings

import pytest

from lfbo_aot.buildstep import start
from lfbo_aot.buildstep.ask import Answer
from lfbo_aot.buildstep.ask import Request
from lfbo_aot.buildstep.interpreter import Interpreter

CHILD = """
import sys
print("at work")
assert sys.argv[1].endswith("request.json")
if STATUS:
    sys.exit(STATUS)
with open(sys.argv[2], "w") as file:
    file.write(ANSWER)
"""


@pytest.fixture
def ask(tmp_path, monkeypatch):
    """A function that asks a tuning process that ends with this status."""

    def of(status=0):
        answered = tmp_path / "kept.json"
        Answer(archs=("sm90",)).write(answered)
        text = f"STATUS = {status}\nANSWER = {json.dumps(answered.read_text())}\n" + CHILD
        (tmp_path / "stands_in.py").write_text(textwrap.dedent(text))
        monkeypatch.setattr(start, "MODULE", "stands_in")
        request = Request(
            modules=("pkg.ops",),
            library="",
            roots=(str(tmp_path),),
            source=str(tmp_path / "tuned"),
            built=str(tmp_path / "built"),
            state=str(tmp_path),
            archs=("sm90",),
            device="auto",
            budget_s=1.0,
            trials=None,
            tune=False,
        )
        folder = tmp_path / "temporary"
        folder.mkdir()
        return start.ask_child(request, Interpreter(sys.executable, {}), tmp_path, folder)

    return of


def test_the_answer_and_what_was_said_come_back(ask, capfd):
    answer, failure = ask()
    assert answer == Answer(archs=("sm90",))
    assert failure == ""
    assert "at work" in capfd.readouterr().err


def test_a_process_that_fails_is_told_with_its_last_words(ask):
    assert ask(3) == (None, "the tuning process ended with status 3: at work")


@pytest.mark.parametrize("status", [0, 3])
def test_no_pipe_is_left_open(ask, status):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        ask(status)
        gc.collect()
    assert [str(w.message) for w in said if w.category is ResourceWarning] == []
