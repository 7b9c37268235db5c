from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from lfbo_aot.database.database import Database
from lfbo_aot.database.verify import verify
from lfbo_aot.runtime import settings
from lfbo_aot.runtime import state
from lfbo_aot.tuning.devices import probe

HERE = Path(__file__).parent
MODULE = str(HERE / "fake_tuning" / "declared.py")
FOUR, EIGHT = "m=4|dtype=float32", "m=8|dtype=float32"


pytestmark = pytest.mark.usefixtures("alone")


def lines(text):
    return text.strip().splitlines()


def test_everything_declared_is_tuned_and_then_held(device, tune, tmp_path):
    status, out, err = tune("norm", "--trials", "30", "--seed", "1", "--algorithm", "random")
    assert (status, err) == (0, "")
    told = lines(out)
    assert told[0] == (
        f"device cpu-interpreter/Triton interpreter (asked for); database {tmp_path / 'db'}"
    )
    assert told[1] == "[1/2] norm m=4 dtype=float32: starting"
    assert told[2].startswith("tuned      norm m=4 dtype=float32: 10.")
    assert told[2].endswith(" s")
    assert told[-2:] == [
        f"2 tuned, 0 held before, 0 missing; database {tmp_path / 'db'}",
        f"no look-up reads {tmp_path / 'db'} yet: name it in LFBO_AOT_PATH",
    ]
    assert verify(tmp_path / "db") == ()
    (made, workers) = device.started[0]
    assert (made.closed, workers) == (True, None)
    shard = Database(tmp_path / "db").shard("mine.norm", "cpu-interpreter")
    assert [shard.entry(key).search["trials"] for key in shard.keys] == [30, 30]
    status, out, _ = tune("norm")
    assert status == 0
    assert lines(out)[1:] == [
        "nothing to do: all 2 buckets are held (--again tunes them anew)",
        f"0 tuned, 2 held before, 0 missing; database {tmp_path / 'db'}",
        told[-1],
    ]
    assert len(device.started) == 1


def test_a_declaration_that_went_out_of_date_is_written_where_nothing_is_to_do(
    device, tune, tmp_path
):
    tune("norm", "--trials", "5")
    (declared,) = (tmp_path / "db" / "kernels").iterdir()
    as_made = declared.read_bytes()
    data = json.loads(as_made)
    data["settings"]["fast_math"] = True
    declared.write_text(json.dumps(data))
    status, out, _ = tune("norm")
    assert (status, lines(out)[1][:13]) == (0, "nothing to do")
    assert declared.read_bytes() == as_made
    assert len(device.started) == 1


def test_json_and_nothing_else_on_standard_output(device, tune, tmp_path):
    status, out, err = tune("norm", "m=4", "--trials", "20", "--json", "--workers", "3")
    assert status == 0
    found = json.loads(out)
    assert (found["device"], found["held"]) == ("cpu-interpreter/Triton interpreter", 0)
    assert found["into"] == str(tmp_path / "db")
    (row,) = found["results"]
    assert (row["kernel"], row["bucket"], row["status"]) == ("mine.norm", FOUR, "tuned")
    assert row["shape"] == {"m": 4, "dtype": "float32"}
    assert row["latency_us"] < row["default_us"] == 15.0
    assert set(row["config"]) == {"block", "warps"}
    assert row["default"] is False
    assert "starting" in err
    assert device.started[0][1] == 3
    status, out, _ = tune("norm", "m=4", "--json")
    assert json.loads(out) == {**found, "held": 1, "results": [], "profile": {}}
    status, out, _ = tune("norm", "--trials", "20", "--json")
    assert [row["bucket"] for row in json.loads(out)["results"]] == [EIGHT]
    assert json.loads(out)["held"] == 1


def test_a_dry_run_starts_nothing(device, tune, tmp_path):
    tune("norm", "m=4", "--trials", "5")
    status, out, _ = tune("norm", "--dry-run")
    assert status == 0
    assert lines(out)[1:] == [
        "held               mine.norm                    m=4 dtype=float32",
        "missing            mine.norm                    m=8 dtype=float32",
        "1 of 2 buckets to tune",
    ]
    status, out, _ = tune("norm", "--dry-run", "--json", "--again")
    rows = json.loads(out)["buckets"]
    assert [(r["bucket"], r["status"], r["why"]) for r in rows] == [
        (FOUR, "to tune", "asked for again"),
        (EIGHT, "to tune", "missing"),
    ]
    assert len(device.started) == 1


def test_no_budget(device, tune, tmp_path):
    status, out, err = tune("norm", "--budget", "0")
    assert (status, err) == (1, "")
    assert lines(out)[1:] == [
        "unfinished norm m=4 dtype=float32: the budget is spent",
        "unfinished norm m=8 dtype=float32: the budget is spent",
        f"0 tuned, 0 held before, 2 missing; database {tmp_path / 'db'}",
        "run the same command again to go on with the unfinished ones, or with more time",
    ]


def test_a_bucket_that_fails(device, tune):
    device.options["broken"] = (4,)
    status, out, _ = tune("norm", "--trials", "5")
    assert status == 1
    reason = "inputs= of kernel 'mine.norm' failed: RuntimeError: boom"
    assert f"failed     norm m=4 dtype=float32: {reason}" in lines(out)
    assert "1 tuned, 0 held before, 1 missing" in out
    _, out, _ = tune("norm", "--trials", "5", "--json")
    (row,) = json.loads(out)["results"]
    assert (row["status"], row["reason"], row["config"]) == ("failed", reason, None)


def test_kernels_without_small_shapes_are_named(device, tune):
    status, out, _ = tune("--trials", "5")
    assert status == 0
    text = "no small= shapes, which is what the interpreter tunes at: mine.total"
    assert f"left out, {text}" in lines(out)
    status, _, err = tune("total")
    assert (status, err) == (2, f"lfbo-aot: error: {text}\n")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nrm"], "unknown kernel 'nrm'. Did you mean 'mine.norm'?"),
        (["norm", "mm=4"], "unknown dim 'mm'"),
        (["norm", "m=5"], "no small= shape of mine.norm holds m=5"),
        (["norm", "m=four"], "no small= shape of mine.norm holds m=four"),
        (["norm", "m=1..4"], "m=1..4 is an interval; give one value"),
        (["norm", "m="], "'m=' isn't written dim=value"),
        (["norm", "m=4,"], "'m=' isn't written dim=value"),
        (["norm", "--budget", "-1"], "'-1' is not a number of seconds from 0 up"),
        (["norm", "--budget", "soon"], "'soon' is not a number of seconds from 0 up"),
        (["norm", "--per-bucket", "nan"], "'nan' is not a number of seconds from 0 up"),
        (["norm", "--trials", "0"], "'0' is not a whole number from 1 up"),
        (["norm", "--workers", "0"], "'0' is not a whole number from 1 up"),
        (["norm", "--seed", "x"], "invalid int value: 'x'"),
        (["norm", "--device", "tpu"], "invalid choice: 'tpu'"),
        (["norm", "--trails", "5"], "unknown argument '--trails'. Did you mean '--trials' or "),
    ],
    ids=lambda value: "_".join(value) if isinstance(value, list) else "",
)
def test_wrong_use(device, tune, words, says):
    status, out, err = tune(*words)
    assert (status, out) == (2, "")
    assert says in err
    assert len([line for line in lines(err) if not line.startswith("Try: ")]) == 1
    assert device.started == []


@pytest.mark.parametrize(
    ("module", "says"),
    [
        ("no.such.module", "kernel module 'no.such.module' can't be imported: ModuleNotFoundError"),
        ("nowhere/kernels.py", "can't be imported: ImportError: no such file: "),
        ("json", "no kernel is declared; name a module with --module"),
    ],
)
def test_a_module_that_declares_nothing(device, tune, module, says):
    status, out, err = tune(module=module)
    assert (status, out) == (2, "")
    assert says in err
    assert len(lines(err)) == 1


def test_into_a_file(device, tune, tmp_path):
    (tmp_path / "file").write_text("mine")
    status, _, err = tune("norm", into=tmp_path / "file")
    assert (status, err) == (
        2,
        f"lfbo-aot: error: --into {tmp_path / 'file'}: a file, not a folder\n",
    )
    status, _, err = tune("norm", into=tmp_path / "file" / "below")
    assert status == 1
    assert err.startswith(f"lfbo-aot: error: can't go on: {tmp_path / 'file'}")
    assert len(lines(err)) == 1
    assert all(made.closed for made, _ in device.started)


def test_a_state_folder_that_can_not_be_made(device, tune, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("mine")
    monkeypatch.setenv("LFBO_AOT_STATE", str(tmp_path / "file" / "state"))
    status, _, err = tune("norm")
    assert status == 1
    assert err.startswith(f"lfbo-aot: error: can't go on: {tmp_path / 'file'}")
    assert len(lines(err)) == 1


def test_a_disk_that_is_full(device, tune, monkeypatch):
    from lfbo_aot.database import journal

    real = os.write
    room = [9]

    def write(fd, data):
        if b'"kind"' in data:
            room[0] -= 1
            if room[0] < 0:
                raise OSError(28, "No space left on device")
        return real(fd, data)

    monkeypatch.setattr(journal.os, "write", write)
    status, _, err = tune("norm", "--trials", "20")
    assert status == 1
    assert lines(err)[0].endswith("can't be written: No space left on device")
    assert len(lines(err)) == 1
    room[0] = 10_000
    assert tune("norm", "--trials", "20")[0] == 0


def test_a_database_that_is_damaged(device, tune, tmp_path):
    tune("norm", "--trials", "5")
    shard = tmp_path / "db" / "cpu-interpreter" / "mine.norm.jsonl"
    shard.write_bytes(shard.read_bytes()[:-9])
    status, _, err = tune("norm", "--again")
    assert status == 1
    assert err.startswith(f"lfbo-aot: error: {shard}:2: ")
    assert len(lines(err)) == 1


def test_another_run_of_the_same_kernel(device, tune, tmp_path):
    from filelock import FileLock

    from lfbo_aot.registry.devices import INTERPRETER
    from lfbo_aot.tuning.folders import journal_path

    path = journal_path(tmp_path / "state", INTERPRETER, "mine.norm")
    path.parent.mkdir(parents=True)
    with FileLock(f"{path}.lock"):
        status, _, err = tune("norm")
    assert status == 1
    assert "another run is tuning mine.norm for this device" in err
    assert len(lines(err)) == 1


def test_no_gpu(tune, monkeypatch):
    monkeypatch.setattr(probe, "_DRIVERS", ("/dev/no-such-driver",))
    status, out, err = tune("norm", device="gpu")
    assert (status, out) == (1, "")
    assert err == (
        "lfbo-aot: error: no GPU to tune on: no GPU driver (/dev/no-such-driver). "
        "--device interpreter tunes on the CPU.\n"
    )
    status, out, _ = tune("norm", "--dry-run", device="gpu")
    assert status == 0
    assert "device gpu/none here (no GPU to tune on: " in out
    assert "1 of 1 buckets to tune" in out


def test_the_device_of_the_environment(device, tune, monkeypatch):
    monkeypatch.setattr(probe, "_DRIVERS", ("/dev/no-such-driver",))
    monkeypatch.setenv("LFBO_AOT_DEVICE", "gpu")
    assert tune("norm", device=None)[0] == 1
    from lfbo_aot.runtime import settings

    settings.current.cache_clear()
    monkeypatch.setenv("LFBO_AOT_DEVICE", "auto")
    status, out, _ = tune("norm", "--trials", "3", device=None)
    assert status == 0
    assert "(no GPU driver (/dev/no-such-driver))" in lines(out)[0]


def test_without_into_it_is_the_users_layer(device, tune, tmp_path):
    status, out, _ = tune("norm", "m=4", "--trials", "3", into=None)
    assert status == 0
    (shard,) = (tmp_path / "user-data").rglob("mine.norm.jsonl")
    assert f"database {shard.parents[1]}" in out


def test_an_interrupt_in_between(device, tune, monkeypatch):
    """Says how to go on; the device is closed, and going on finishes it."""
    from fake_tuning.device import FakeDevice

    real, count = FakeDevice.wait, [0]

    def wait(self, timeout_s):
        count[0] += 1
        if count[0] == 25:
            signal.raise_signal(signal.SIGINT)
        return real(self, timeout_s)

    monkeypatch.setattr(FakeDevice, "wait", wait)
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        status, out, err = tune("norm", "--trials", "20", "--json")
        # A second one, until the program has ended, is ignored.
        assert {signal.getsignal(number) for number in before} == {signal.SIG_IGN}
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert (status, out) == (130, "")
    assert lines(err)[-1].startswith("lfbo-aot: interrupted. 1 buckets were finished and are in ")
    assert lines(err)[-1].endswith("run the same command again to go on.")
    assert device.started[0][0].closed
    status, out, _ = tune("norm", "--trials", "20", "--json")
    assert (status, json.loads(out)["held"]) == (0, 1)


def test_a_module_that_ends_the_program(device, tune, tmp_path):
    module = tmp_path / "ends.py"
    module.write_text("import sys\nsys.exit(0)\n")
    status, out, err = tune(module=str(module))
    assert (status, out) == (2, "")
    assert "ends.py' can't be imported: SystemExit: 0" in err


def test_a_database_that_look_ups_read_needs_no_remark(device, tune, tmp_path, isolated):
    isolated.setenv("LFBO_AOT_PATH", str(tmp_path / "db"))
    (tmp_path / "db").mkdir()
    settings.current.cache_clear()
    state.refresh()
    assert tune("norm", "--trials", "5")[1].splitlines()[-1] == (
        f"2 tuned, 0 held before, 0 missing; database {tmp_path / 'db'}"
    )
