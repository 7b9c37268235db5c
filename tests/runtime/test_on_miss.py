"""`on_miss=tune`: what is started, and what comes of it. The processes are real, their device isn't."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from filelock import FileLock

import lfbo_aot
from lfbo_aot.database.database import Database
from lfbo_aot.database.store import user_database
from lfbo_aot.registry import catalog
from lfbo_aot.registry.devices import INTERPRETER
from lfbo_aot.registry.devices import DeviceId
from lfbo_aot.registry.devices import Target
from lfbo_aot.registry.discovery import load_kernels
from lfbo_aot.runtime import on_miss
from lfbo_aot.runtime.environment import Environment
from lfbo_aot.runtime.on_miss import tune_now
from lfbo_aot.runtime.request import Request
from lfbo_aot.tuning.folders import journal_path

CLI = Path(__file__).parents[1] / "cli"
DECLARED = str(CLI / "fake_tuning" / "declared.py")
HERE = Target(INTERPRETER.arch, INTERPRETER)
H200 = DeviceId("sm90", "NVIDIA H200")


@pytest.fixture
def started(tmp_path, isolated):
    """Lets `tune_now` start the command with a fake device; gives what was started."""
    folder = tmp_path / "started"
    folder.mkdir()
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -m fake_tuning.tunes "$@"\n')
    python.chmod(0o755)
    isolated.setattr(sys, "executable", str(python))
    isolated.setattr(sys, "path", [*sys.path, str(CLI)])
    isolated.setenv("STARTED", str(folder))
    isolated.setenv("LFBO_AOT_STATE", str(tmp_path / "state"))
    isolated.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    on_miss.forget()
    yield lambda: [path.read_text().splitlines() for path in sorted(folder.iterdir())]
    on_miss.forget()
    sys.modules.pop("declared", None)


def request(m=4, target=HERE, kernel="mine.norm"):
    return Request(kernel, {"m": m, "dtype": "float32"}, target, Environment())


def held():
    shard = Database(user_database()).shard("mine.norm", "cpu-interpreter")
    return () if shard is None else tuple(key.partition("|")[2] for key in shard.keys)


def warnings(caplog):
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


def the_reason(caplog):
    """Why nothing was tuned, which is said in one warning."""
    (text,) = (t for t in warnings(caplog) if "isn't tuned, and the default is served: " in t)
    return text.partition("is served: ")[2]


def test_exactly_the_bucket_missed_is_tuned_into_the_users_layer(started, caplog):
    caplog.set_level(logging.INFO)
    assert tune_now(request(), DECLARED)
    assert held() == ("m=4|dtype=float32",)
    ((_, *words),) = started()
    assert words == [
        *("-m", "lfbo_aot", "tune", "mine.norm", "--from", "-", "--device", "interpreter"),
        *("--budget", "300", "--json", "--module", DECLARED),
    ]
    first, last = warnings(caplog)
    assert first.startswith(
        "mine.norm: on_miss=tune: tuning m=4|dtype=float32 on cpu-interpreter/Triton interpreter "
        "now, in another process. This call waits for it: up to 300 s (LFBO_AOT_BUDGET)"
    )
    assert last == "mine.norm: on_miss=tune: m=4|dtype=float32 is tuned"
    passed_on = [r.getMessage() for r in caplog.records if r.levelno == logging.INFO]
    assert "[1/1] norm m=4 dtype=float32: starting" in passed_on


def test_the_budget_of_the_environment(isolated):
    isolated.setenv("LFBO_AOT_BUDGET", "7.5")
    command, _ = on_miss._command(request(), None, DECLARED)
    assert command[command.index("--budget") + 1] == "7.5"


def test_once_for_a_bucket_and_process(started, caplog, isolated):
    assert tune_now(request(), DECLARED)
    assert not tune_now(request(), DECLARED)  # what misses still isn't a matter of tuning
    isolated.setenv("BROKEN", "8")
    assert not tune_now(request(8), DECLARED)
    assert not tune_now(request(8), DECLARED)
    assert len(started()) == 2
    assert the_reason(caplog).endswith("inputs= of kernel 'mine.norm' failed: RuntimeError: boom")


def test_threads_that_miss_at_the_same_time_share_one_run(started):
    gate, found = threading.Barrier(4), []

    def miss():
        gate.wait()
        found.append(tune_now(request(), DECLARED))

    threads = [threading.Thread(target=miss) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 4
    assert len(started()) == 1


def test_a_kernel_declared_here_needs_no_module(started):
    """Loaded by path, so another process gets the file; all of the package's ids are the same."""
    load_kernels([DECLARED])
    assert tune_now(request(), None)
    assert started()[0][-2:] == ["--module", os.path.realpath(DECLARED)]
    assert held() == ("m=4|dtype=float32",)


def test_a_module_that_can_be_imported_goes_by_its_name(started, isolated):
    isolated.setattr(sys, "path", [str(CLI / "fake_tuning"), *sys.path])
    (spec,) = (s for s in load_kernels(["declared"]) if s.kernel_id == "mine.norm")
    command, environment = on_miss._command(request(), spec, None)
    assert command[-2:] == ["--module", "declared"]
    assert str(CLI / "fake_tuning") in environment["PYTHONPATH"].split(os.pathsep)


@pytest.mark.parametrize(
    "changed",
    [{"module": "__main__"}, {"file": "<ipython-input-3-0f2a>"}],
    ids=["a script", "a notebook"],
)
def test_a_kernel_of_the_program_itself(started, caplog, changed):
    (spec,) = (s for s in load_kernels([DECLARED]) if s.kernel_id == "mine.norm")
    catalog.discard("mine.norm")
    catalog.add(replace(spec, **changed))
    assert not tune_now(request(), None)
    assert started() == []
    reason = the_reason(caplog)
    assert reason.startswith("it is defined in the program itself (")
    assert reason.endswith("; move it to a module")


def test_a_shape_outside_every_bucket_starts_nothing(started, caplog):
    load_kernels([DECLARED])
    assert not tune_now(request(5), None)
    assert started() == []
    assert the_reason(caplog).startswith("no small= shape holds it; widen the kernel's declaration")


@pytest.mark.parametrize("target", [Target("sm90", H200), Target("sm90", None)])
def test_a_device_of_another_machine(started, caplog, isolated, target):
    isolated.delitem(sys.modules, "torch", raising=False)
    assert not tune_now(request(target=target), DECLARED)
    assert started() == []
    assert the_reason(caplog) == f"it must be tuned on {target}, and torch isn't loaded"


class FakeTorch:
    """Two GPUs, as torch tells of them."""

    class cuda:  # noqa: N801 - torch's name
        is_available = staticmethod(lambda: True)
        current_device = staticmethod(lambda: 0)
        device_count = staticmethod(lambda: 2)

    @staticmethod
    def device(kind, index):
        return kind, index


@pytest.mark.parametrize(
    ("target", "visible", "chosen"),
    [
        (Target("sm90", H200), "", "1"),
        (Target("sm90", H200), "4,6", "6"),
        (Target("sm90", None), "GPU-aa, GPU-bb", "GPU-bb"),
        (Target("sm80", None), "", "0"),
    ],
)
def test_of_several_gpus_the_one_asked_about_is_tuned_on(isolated, target, visible, chosen):
    here = [DeviceId("sm80", "NVIDIA A100-SXM4-80GB"), H200]
    isolated.setitem(sys.modules, "torch", FakeTorch)
    isolated.setattr(on_miss.hardware, "device_from_torch", lambda device: here[device[1]])
    isolated.setenv("CUDA_VISIBLE_DEVICES", visible)
    kind, variables = on_miss._device(request(target=target))
    assert (kind, variables) == ("gpu", {"CUDA_VISIBLE_DEVICES": chosen})


def test_a_gpu_that_is_not_here(started, caplog, isolated):
    isolated.setitem(sys.modules, "torch", FakeTorch)
    isolated.setattr(on_miss.hardware, "device_from_torch", lambda _: H200)
    assert not tune_now(request(target=Target("sm100", None)), DECLARED)
    assert the_reason(caplog) == (
        "it must be tuned on sm100; the devices here are sm90/NVIDIA H200"
    )


def test_another_run_of_the_same_bucket(started, caplog, tmp_path):
    path = journal_path(tmp_path / "state", INTERPRETER, "mine.norm")
    path.parent.mkdir(parents=True)
    with FileLock(f"{path}.lock"):
        assert not tune_now(request(), DECLARED)
    assert "ended with 1: another run is tuning mine.norm for this device" in the_reason(caplog)


def test_a_module_that_can_not_be_imported(started, caplog):
    assert not tune_now(request(), "no.such.module")
    assert "ended with 2: kernel module 'no.such.module' can't be imported" in the_reason(caplog)


def test_a_kernel_that_the_module_does_not_declare(started, caplog):
    assert not tune_now(request(kernel="mine.other"), DECLARED)
    assert "ended with 2: unknown kernel 'mine.other'" in the_reason(caplog)


def test_an_interpreter_that_can_not_be_started(started, caplog, isolated):
    isolated.setattr(sys, "executable", "/no/such/python")
    assert not tune_now(request(), DECLARED)
    assert the_reason(caplog) == "'/no/such/python' can't be started: No such file or directory"


def test_one_that_says_nothing(started, caplog, isolated, tmp_path):
    isolated.setattr(sys, "executable", "/bin/false")
    assert not tune_now(request(), DECLARED)
    assert the_reason(caplog) == "`lfbo-aot tune` ended with 1: no reason is given"


def test_what_tunes_starts_no_other(started, caplog, isolated):
    isolated.setenv(on_miss._MARK, "1")
    assert not tune_now(request(), DECLARED)
    assert started() == []
    assert the_reason(caplog) == "this process was started to tune, so it starts no other"


def test_the_process_that_tunes_neither_tunes_on_a_miss_nor_records_any(started, isolated):
    isolated.setenv("LFBO_AOT_ON_MISS", "tune")
    isolated.setenv("LFBO_AOT_RECORD_MISSES", "/tmp/misses")
    _, environment = on_miss._command(request(), None, DECLARED)
    assert environment["LFBO_AOT_ON_MISS"] == "default"
    assert environment["LFBO_AOT_RECORD_MISSES"] == ""
    assert environment[on_miss._MARK] == "1"


def in_a_forked_child(work):
    """What `work` returns there."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(writing, repr(work()).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        text = answer.read()
    os.waitpid(pid, 0)
    return text


def test_a_forked_worker_tunes_too(started):
    assert in_a_forked_child(lambda: tune_now(request(), DECLARED)) == "True"
    assert held() == ("m=4|dtype=float32",)
    assert tune_now(request(), DECLARED)  # of what is held already nothing is tuned again
    assert len(started()) == 2


def test_a_forked_worker_keeps_what_its_parent_found_out(started, isolated):
    isolated.setenv("BROKEN", "4")
    assert not tune_now(request(), DECLARED)
    assert in_a_forked_child(lambda: tune_now(request(), DECLARED)) == "False"
    assert len(started()) == 1


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_fork_while_a_thread_tunes(started):
    """The child has no thread that would let go of the lock."""
    taken, done = threading.Event(), threading.Event()

    def hold():
        with on_miss._lock:
            taken.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    taken.wait()
    try:
        assert in_a_forked_child(lambda: tune_now(request(), DECLARED)) == "True"
    finally:
        done.set()
        thread.join()


def stuck(folder, first=":"):
    """A program that never ends by itself."""
    path = folder / "stuck"
    path.write_text(f"#!/bin/sh\n{first}\nexec sleep 600\n")
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def interruptible():
    """Ctrl-C raises, also where the tests run in the background of a shell that ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_ends_the_run_and_is_no_outcome(started, isolated, tmp_path):
    """Ctrl-C while the command runs: nothing stays behind, and the next miss tries again."""
    real, fifo, pids = sys.executable, tmp_path / "fifo", []
    os.mkfifo(fifo)
    isolated.setattr(sys, "executable", stuck(tmp_path, f"read line; echo $$ > {fifo}"))

    def interrupt():
        pids.append(int(fifo.read_text()))
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        tune_now(request(), DECLARED)
    thread.join()
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)
    isolated.setattr(sys, "executable", real)
    assert tune_now(request(), DECLARED)


def test_one_that_takes_too_long_is_ended(started, caplog, isolated, tmp_path):
    isolated.setattr(sys, "executable", stuck(tmp_path))
    isolated.setattr(on_miss, "_GRACE_S", 0.0)
    isolated.setenv("LFBO_AOT_BUDGET", "0.1")
    assert not tune_now(request(), DECLARED)
    assert the_reason(caplog) == "`lfbo-aot tune` ended with -9: no reason is given"


def test_a_look_up_answers_with_what_it_had_tuned(started, tmp_path, isolated):
    load_kernels([DECLARED])
    lfbo_aot.use_policy(on_miss="tune")
    shape = {"m": 4, "dtype": "float32"}
    found = lfbo_aot.resolve("norm", shape, str(INTERPRETER))
    assert (found.status, found.layer) == ("exact", "user")
    assert set(found.config) == {"block", "warps"}
    assert lfbo_aot.resolve("norm", shape, str(INTERPRETER)) == found
    assert len(started()) == 1


def test_a_look_up_that_can_not_be_tuned_for_answers_with_the_default(started, caplog, isolated):
    load_kernels([DECLARED])
    lfbo_aot.use_policy(on_miss="tune")
    isolated.setenv("BROKEN", "4")
    for _ in range(3):
        found = lfbo_aot.resolve("norm", {"m": 4, "dtype": "float32"}, str(INTERPRETER))
        assert (found.status, found.config) == ("default", {})
    assert "boom" in the_reason(caplog)
    assert len(started()) == 1


KERNEL = """
import helion.language as hl
import torch

import lfbo_aot
from lfbo_aot import Exact

@lfbo_aot.kernel(
    dims={"n": Exact(8), "dtype": Exact("float32")},
    shape=lambda x: {"n": x.size(0), "dtype": x.dtype},
    inputs=lambda shape, device: (torch.arange(1.0, 9.0, device=device),),
    reference=torch.tanh,
    small=[{"n": 8, "dtype": "float32"}],
    package="mine",
)
def squash(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for i in hl.tile(x.size(0)):
        out[i] = torch.tanh(x[i])
    return out
"""


@pytest.mark.slow
def test_with_triton_s_interpreter(isolated, tmp_path):
    isolated.setenv("LFBO_AOT_STATE", str(tmp_path / "state"))
    on_miss.forget()
    (tmp_path / "kernels_of_mine.py").write_text(KERNEL)
    isolated.setattr(sys, "path", [*sys.path, str(tmp_path)])
    wanted = Request("mine.squash", {"n": 8, "dtype": "float32"}, HERE, Environment())
    assert tune_now(wanted, "kernels_of_mine")
    shard = Database(user_database()).shard("mine.squash", INTERPRETER.arch)
    assert shard.keys == (f"{INTERPRETER.name}|n=8|dtype=float32",)
    on_miss.forget()
