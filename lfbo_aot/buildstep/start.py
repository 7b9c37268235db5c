"""Running the tuning process of a build, and hearing how it ended."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections import deque
from typing import TYPE_CHECKING

from lfbo_aot.buildstep.ask import Answer
from lfbo_aot.buildstep.ask import Request
from lfbo_aot.buildstep.ask import write_request
from lfbo_aot.buildstep.mirror import library_folder

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from lfbo_aot.buildstep.interpreter import Interpreter

MODULE = "lfbo_aot.buildstep.child"
_GRACE_S = 30.0
_TOLD = 3


def ask_child(
    request: Request, interpreter: Interpreter, root: Path, folder: Path
) -> tuple[Answer | None, str]:
    """The answer to `request`, or None; and, where the process failed, its last words.

    A process that dies while tuning is started once more to collect what was finished.
    """
    library = library_folder(root, folder)
    request = dataclasses.replace(request, library=str(library))
    environment = _environment(interpreter.environment, [root, library])
    answer, failure = _run(request, interpreter, environment, folder)
    if answer is None and request.tune:
        again = dataclasses.replace(request, tune=False)
        answer, _ = _run(again, interpreter, environment, folder)
    return answer, failure


def _environment(environ: Mapping[str, str], first: list[Path]) -> dict[str, str]:
    path = [str(p) for p in dict.fromkeys(first)]
    if environ.get("PYTHONPATH"):
        path.append(environ["PYTHONPATH"])
    return {
        **environ,
        "PYTHONPATH": os.pathsep.join(path),
        # What is imported from the build's folder must not leave anything there to be packed.
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
    }


def _run(
    request: Request, interpreter: Interpreter, environment: Mapping[str, str], folder: Path
) -> tuple[Answer | None, str]:
    asked, answered, cwd = folder / "request.json", folder / "answer.json", folder / "empty"
    cwd.mkdir(exist_ok=True)
    write_request(request, asked)
    last: deque[str] = deque(maxlen=_TOLD)
    with subprocess.Popen(  # closes its pipes: the child ends where nobody holds its input
        [interpreter.program, "-m", MODULE, str(asked), str(answered)],
        env=environment,
        cwd=cwd,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None  # noqa: S101 - it is a pipe
        try:
            for line in process.stdout:
                sys.stderr.write(line)
                if line.strip():
                    last.append(line.strip())
            status = process.wait()
        except BaseException:
            _end(process)
            raise
    answer = Answer.read(answered)
    if status == 0 and answer is not None:
        return answer, ""
    return None, f"the tuning process ended with status {status}: {last[-1] if last else 'silent'}"


def _end(process: subprocess.Popen[str]) -> None:
    """Let it close its workers; kill it where it doesn't."""
    process.terminate()
    try:
        process.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
