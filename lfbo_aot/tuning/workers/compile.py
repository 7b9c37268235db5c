"""The compile worker: turns points of the space into binaries in Triton's cache.

It binds the kernel on fake tensors, so it owns no device memory but a context, generates code, and
compiles in a forked child that is killed at the deadline: a hopeless config costs its deadline, not
the worker. It never loads a binary.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from typing import Any
from typing import NoReturn

from lfbo_aot.adapters import helion as seam
from lfbo_aot.errors import TuningError
from lfbo_aot.tuning.arguments import fake_arguments
from lfbo_aot.tuning.workers.serve import first_line
from lfbo_aot.tuning.workers.serve import import_kernel
from lfbo_aot.tuning.workers.serve import serve

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Sequence

    from lfbo_aot.tuning.channel import Message


@dataclass(frozen=True, slots=True)
class _Bucket:
    """The bucket in hand: the bound kernel, what it is bound on, and its space."""

    bound: Any
    args: tuple[Any, ...]
    codec: seam.SpaceCodec


class CompileWorker:
    """Compiles candidates of one bucket after another."""

    def __init__(self) -> None:
        self._open: _Bucket | None = None

    @property
    def _bucket(self) -> _Bucket:
        if self._open is None:
            msg = "no bucket is open"
            raise TuningError(msg)
        return self._open

    def open(self, request: Message) -> Message:
        """Bind a kernel on the described arguments; answers with the space found there."""
        self._open = None
        spec = import_kernel(request["kernel"])
        args = fake_arguments(request["arguments"])
        bound = seam.bind(spec.kernel, args)
        codec = seam.SpaceCodec(bound)
        self._open = _Bucket(bound, args, codec)
        return {
            "space": codec.space.to_json(),
            "seeds": [list(p) for p in codec.start(request["seeds"])],
            "default": codec.config(codec.space.default),
            "versions": seam.versions(),
        }

    def compile(self, request: Message) -> Message:
        """Compile a `point` or a `config`; the answer's status says how it went."""
        bucket = self._bucket
        started = time.monotonic()
        try:
            if "config" in request:
                config = request["config"]
            else:
                config = bucket.codec.config(bucket.codec.space.check(request["point"]))
        except (seam.InvalidConfigError, ValueError) as e:
            return {"status": "invalid", "error": first_line(e)}
        found: Message = {"config": config}
        try:
            function, code = seam.generate(bucket.bound, config)
            found |= {"path": code.path, "function": code.function, "digest": code.digest}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                steps = [
                    seam.precompiler(launch, bucket.bound, config)
                    for launch in seam.launches(function, bucket.args)
                ]
        except Exception as e:  # noqa: BLE001 - whatever Helion raises is this trial's failure
            return found | {"status": "compile_error", "error": first_line(e)}
        found["codegen_s"] = round(time.monotonic() - started, 4)
        started = time.monotonic()
        found |= in_child(steps, deadline_s=request["deadline_s"])
        found["compile_s"] = round(time.monotonic() - started, 4)
        return found


def in_child(steps: Sequence[Callable[[], bool]], *, deadline_s: float) -> Message:
    """Run the steps in a forked child; `status` is ok, compile_error, compile_timeout or crash."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:  # the child: nothing here may touch the device
        os.close(read)
        _run_and_exit(steps, write)
    os.close(write)
    output = bytearray()
    ends = time.monotonic() + deadline_s
    try:
        while (left := ends - time.monotonic()) > 0:
            if select.select([read], [], [], left)[0]:
                data = os.read(read, 1 << 16)
                if not data:
                    break
                output += data
                del output[:-4000]
        else:
            kill_tree(pid)
            os.waitpid(pid, 0)
            return {"status": "compile_timeout", "error": f"killed after {deadline_s:.1f} s"}
    finally:
        os.close(read)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        return {"status": "crash", "error": f"the compiler was ended by {name}"}
    if os.WEXITSTATUS(status):
        return {"status": "compile_error", "error": told(output.decode(errors="replace"))}
    return {"status": "ok"}


def _run_and_exit(steps: Sequence[Callable[[], bool]], output: int) -> NoReturn:
    os.dup2(output, 1)
    os.dup2(output, 2)
    code = 1
    try:
        code = 0 if all(step() for step in steps) else 1
    except SystemExit as e:
        code = int(e.code or 0) if isinstance(e.code, int | None) else 1
    except BaseException as e:  # noqa: BLE001 - reported by text and status
        os.write(output, first_line(e).encode())
    finally:
        os._exit(code)


def kill_tree(pid: int) -> None:
    """SIGKILL for a child and what it started (ptxas may run for minutes), but not for our group."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)  # so that it starts nothing more
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError):
            # pid (name) state parent ...; the name may hold anything
            parent = int(stat.read_text(errors="replace").rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(stat.parent.name))
    doomed = [pid]
    for each in doomed:  # grows while it is walked
        doomed += children.get(each, [])
    for each in doomed:
        with contextlib.suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)


def told(output: str, limit: int = 300) -> str:
    """The line of a compiler's output that says what was wrong, else the last ones."""
    lines = [" ".join(line.split()) for line in output.splitlines() if line.strip()]
    telling = [line for line in lines if re.search(r"error|fatal|exceed", line, re.IGNORECASE)]
    return " | ".join(telling[:2] or lines[-3:])[:limit]


def main() -> None:
    seam.versions()  # imports Helion now, while the orchestrator still plans
    worker = CompileWorker()
    serve({"open": worker.open, "compile": worker.compile})


if __name__ == "__main__":
    main()
