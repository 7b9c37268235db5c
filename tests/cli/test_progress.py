from __future__ import annotations

import io
import sys
from types import SimpleNamespace

import pytest

from lfbo_aot.cli import progress
from lfbo_aot.registry.buckets import Bucket
from lfbo_aot.tuning.run import Result
from lfbo_aot.tuning.task import Step

ITEM = SimpleNamespace(
    spec=SimpleNamespace(name="norm"), bucket=Bucket.parse("m=1..64|dtype=float32")
)


@pytest.fixture
def clock(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def step(trials, **changed):
    return Step(
        **{
            "trials": trials,
            "best_us": 20.0,
            "default_us": 30.0,
            "failures": {},
            **changed,
        }
    )


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (step(5), "5 trials, best 20.00 us (default 30.00, 1.50x)"),
        (step(0, best_us=None), "0 trials"),
        (step(1, default_us=None), "1 trials, best 20.00 us"),
        (
            step(2, best_us=2345.6, default_us=2345.6),
            "2 trials, best 2346 us (default 2346, 1.00x)",
        ),
        (
            step(9, failures={"timeout": 1, "crash": 2}, best_us=None),
            "9 trials, 3 failed (2 crash, 1 timeout)",
        ),
        (
            step(9, stage="final"),
            "9 trials, best 20.00 us (default 30.00, 1.50x), measuring the best again",
        ),
    ],
)
def test_where_a_search_stands(made, text):
    assert progress.step_text(made) == text


def test_what_became_of_a_bucket(make_entry):
    head = "norm m=1..64 dtype=float32"
    tuned = Result(ITEM, "tuned", make_entry(), seconds=31.4)
    assert progress.result_text(tuned) == (
        f"tuned      {head}: 25.60 us (default 34.00, 1.33x), 412 trials in 31 s"
    )
    default = make_entry(default=True, latency_us=34.0)
    assert "(default 34.00, 1.00x), the default is the best found, 412" in progress.result_text(
        Result(ITEM, "tuned", default)
    )
    assert progress.result_text(Result(ITEM, "tuned", make_entry(default_us=None))).startswith(
        f"tuned      {head}: 25.60 us, 412 trials"
    )
    failed = Result(ITEM, "failed", reason="crash: dead")
    assert progress.result_text(failed) == f"failed     {head}: crash: dead"


def test_a_line_every_ten_seconds(clock, capsys, make_entry):
    watcher = progress.make_watcher(60.0, quiet=False)
    assert type(watcher) is progress.LineWatcher
    with watcher:
        watcher.begins(ITEM, 1, 2)
        for at in range(1, 25):
            clock[0] = 1000.0 + at
            watcher.steps(step(at))
        watcher.ends(Result(ITEM, "tuned", make_entry()))
        watcher.ends(Result(ITEM, "failed", reason="no"))
    told = capsys.readouterr().out.splitlines()
    assert told[0] == "[1/2] norm m=1..64 dtype=float32: starting"
    assert told[1].endswith(
        "10 trials, best 20.00 us (default 30.00, 1.50x), 50 s of the budget left"
    )
    assert told[2].startswith("[1/2] norm m=1..64 dtype=float32: 20 trials")
    assert len(told) == 5
    assert watcher.finished == 1


def test_quiet_keeps_standard_output(clock, capsys):
    watcher = progress.make_watcher(None, quiet=True)
    watcher.begins(ITEM, 1, 1)
    clock[0] += 11
    watcher.steps(step(3))
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[1] == (
        "[1/1] norm m=1..64 dtype=float32: 3 trials, best 20.00 us (default 30.00, 1.50x)"
    )


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_live_line_on_a_terminal(monkeypatch, make_entry):
    out = Terminal()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setenv("TERM", "xterm")
    watcher = progress.make_watcher(None, quiet=False)
    assert type(watcher) is progress.LiveWatcher

    def interrupted():
        with watcher:
            watcher.begins(ITEM, 1, 1)
            watcher.steps(step(3))
            watcher.ends(Result(ITEM, "tuned", make_entry()))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    text = out.getvalue()
    assert "tuned      norm m=1..64 dtype=float32: 25.60 us" in text.replace("\n", "")
    # The cursor is hidden while the line is live, and shown again.
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l") >= 0
