"""Child processes that all start alike: no caches, no settings of the caller, and a time limit."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Sequence

ROOT = Path(__file__).resolve().parents[2]
_DROPPED = ("HELION_", "LFBO_AOT_", "TRITON_", "TORCHINDUCTOR_", "TORCH_COMPILE_")
_TOLD = 3000
_running: set[int] = set()


@dataclass(frozen=True, slots=True)
class Slot:
    """Where a child runs: one GPU, and the cores that belong to it; None: all cores."""

    number: int = 0
    cores: frozenset[int] | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """How a child ended. Times in seconds."""

    code: int | None
    """None where it was killed at its limit."""
    wall_s: float
    """From the start of the process to its exit."""
    started: float
    """Seconds since the epoch."""
    output: str
    errors: str
    """The end of what it wrote to its standard error."""


@dataclass(slots=True)
class Fresh:
    """A folder that only one child uses, and the environment that keeps all it writes in there."""

    folder: Path
    slot: Slot = field(default_factory=Slot)
    extra: dict[str, str] = field(default_factory=dict)

    def environment(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(_DROPPED)}
        caches = {
            "TRITON_CACHE_DIR": "triton",
            "TORCHINDUCTOR_CACHE_DIR": "inductor",
            "HELION_CACHE_DIR": "helion",
            "LFBO_AOT_STATE": "state",
        }
        kept |= {name: str(self.folder / sub) for name, sub in caches.items()}
        # One GPU for every side: ours would use all that there are.
        kept["CUDA_VISIBLE_DEVICES"] = _visible(kept.get("CUDA_VISIBLE_DEVICES"), self.slot.number)
        if self.slot.cores is not None:
            # os.cpu_count() doesn't know that a process is kept to some of the cores.
            kept["HELION_AUTOTUNE_PRECOMPILE_JOBS"] = str(len(self.slot.cores))
        return kept | self.extra


def _visible(visible: str | None, number: int) -> str:
    """The name of one of the GPUs that the caller may use."""
    if not visible:
        return str(number)
    names = visible.split(",")
    if number >= len(names):
        msg = f"there is no GPU {number} among CUDA_VISIBLE_DEVICES={visible}; use fewer --slots"
        raise SystemExit(msg)
    return names[number]


@contextlib.contextmanager
def fresh(slot: Slot, **extra: str) -> Iterator[Fresh]:
    """A new folder for one child, removed in the end."""
    folder = Path(tempfile.mkdtemp(prefix="compare_"))
    try:
        yield Fresh(folder, slot, extra)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run(command: Sequence[str], where: Fresh, limit_s: float) -> Ended:
    """Run a command in a fresh place; at its limit it is killed with all that it started."""
    out, err = where.folder / "stdout", where.folder / "stderr"
    with out.open("wb") as output, err.open("wb") as errors:
        started, began = time.time(), time.monotonic()
        child = subprocess.Popen(
            command,
            cwd=ROOT,
            env=where.environment(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            start_new_session=True,
        )
        _running.add(child.pid)
        code: int | None
        try:
            if where.slot.cores is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.sched_setaffinity(child.pid, where.slot.cores)
            code = child.wait(timeout=max(limit_s, 0.0))
        except subprocess.TimeoutExpired:
            code = None
        finally:
            wall_s = time.monotonic() - began
            _kill(_below(child.pid) if child.poll() is None else [], child.pid)
            child.wait()
            _running.discard(child.pid)
    text = err.read_text(errors="replace")[-_TOLD:]
    return Ended(code, wall_s, started, out.read_text(errors="replace"), text)


def end_all() -> None:
    """Kill every child that runs now, with all that it started."""
    for pid in tuple(_running):
        _kill(_below(pid), pid)


def _kill(pids: Sequence[int], group: int) -> None:
    """End these processes, and what is left of the child's own group."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def _below(pid: int) -> list[int]:
    """A process and its descendants. Some of Helion's have groups of their own."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = stat.read_text().rpartition(")")[2].split()
            children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found = [pid]
    for one in found:
        found += children.get(one, [])
    return found
