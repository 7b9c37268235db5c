"""The compile worker: turns points of the space into binaries in Triton's cache.

It binds the kernel on fake tensors, so it owns no device memory but a context, generates code, and
compiles in a forked child that is killed at the deadline: a hopeless config costs its deadline, not
the worker. It never loads a binary.
"""

from __future__ import annotations

import os
import re
import select
import signal
import time
import warnings
from typing import TYPE_CHECKING
from typing import Any

from lfbo_aot.adapters import helion as seam
from lfbo_aot.tuning.arguments import fake_arguments
from lfbo_aot.tuning.workers.serve import first_line
from lfbo_aot.tuning.workers.serve import import_kernel
from lfbo_aot.tuning.workers.serve import serve

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Sequence

    from lfbo_aot.tuning.channel import Message


class CompileWorker:
    """Holds the bucket in hand: the bound kernel and its space."""

    def __init__(self) -> None:
        self._bound: Any = None
        self._args: tuple[Any, ...] = ()
        self._codec: seam.SpaceCodec | None = None

    def open(self, request: Message) -> Message:
        """Bind a kernel on the described arguments; answers with the space found there."""
        spec = import_kernel(request["kernel"])
        self._args = fake_arguments(request["arguments"])
        self._bound = seam.bind(spec.kernel, self._args)
        self._codec = seam.SpaceCodec(self._bound)
        points = [self._codec.space.default, *self._codec.space.seeds]
        points += self._fitting(request.get("seeds", []))
        return {
            "space": self._codec.space.to_json(),
            "seeds": [list(p) for p in dict.fromkeys(points[1:])],
            "default": self._codec.config(self._codec.space.default),
            "versions": seam.versions(),
        }

    def compile(self, request: Message) -> Message:
        """Compile a `point` or a `config`; the answer's status says how it went."""
        assert self._codec is not None
        started = time.monotonic()
        try:
            if "config" in request:
                config = request["config"]
            else:
                config = self._codec.config(self._codec.space.check(request["point"]))
        except (seam.InvalidConfigError, ValueError) as e:
            return {"status": "invalid", "error": first_line(e)}
        found: Message = {"config": config}
        try:
            function, code = seam.generate(self._bound, config)
            found |= {"path": code.path, "function": code.function, "digest": code.digest}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                steps = [
                    seam.precompiler(launch, self._bound, config)
                    for launch in seam.launches(function, self._args)
                ]
        except Exception as e:  # noqa: BLE001 - whatever Helion raises is this trial's failure
            return found | {"status": "compile_error", "error": first_line(e)}
        found["codegen_s"] = round(time.monotonic() - started, 4)
        started = time.monotonic()
        found |= in_child(steps, deadline_s=request["deadline_s"])
        found["compile_s"] = round(time.monotonic() - started, 4)
        return found

    def _fitting(self, configs: Sequence[dict[str, Any]]) -> list[Any]:
        assert self._codec is not None
        points = []
        for config in configs:
            try:
                points.append(self._codec.point(config))
            except seam.InvalidConfigError:
                continue  # a neighbouring bucket's winner need not fit here
        return points


def in_child(steps: Sequence[Callable[[], bool]], *, deadline_s: float) -> Message:
    """Run the steps in a forked child; `status` is ok, compile_error, compile_timeout or crash."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:  # the child: nothing here may touch the device
        os.close(read)
        os.dup2(write, 1)
        os.dup2(write, 2)
        code = 1
        try:
            code = 0 if all(step() for step in steps) else 1
        except SystemExit as e:
            code = int(e.code or 0) if isinstance(e.code, int | None) else 1
        except BaseException as e:  # noqa: BLE001 - reported by text and status
            os.write(write, first_line(e).encode())
        finally:
            os._exit(code)
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
            os.kill(pid, signal.SIGKILL)
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
