"""The command line run for `on_miss=tune`: given a miss, listened to, and ended where it must be."""

from __future__ import annotations

import contextlib
import json
import logging
import subprocess
import threading
from typing import IO
from typing import TYPE_CHECKING
from typing import Any
from typing import cast

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Sequence

logger = logging.getLogger(__name__)

_STOP_S = 30.0
_ERROR = "lfbo-aot: error: "


def run_command(
    command: Sequence[str], environment: Mapping[str, str], record: str, patience_s: float
) -> str:
    """Run the command; why nothing was tuned, empty where the bucket is held now.

    Its messages go to the log as they come, at level INFO.
    """
    try:
        process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
        )
    except OSError as error:
        return f"{command[0]!r} can't be started: {error.strerror or error}"
    said: list[str] = []
    late = threading.Timer(patience_s, process.kill)
    late.daemon = True
    stdin, stdout = cast("IO[str]", process.stdin), cast("IO[str]", process.stdout)
    with stdout, stdin:
        try:
            listener = threading.Thread(target=_listen, args=(process.stderr, said), daemon=True)
            listener.start()
            late.start()
            with contextlib.suppress(BrokenPipeError):
                stdin.write(record)
                stdin.close()
            answer = stdout.read()
            status = process.wait()
            listener.join(_STOP_S)
        except BaseException:
            # Such as Ctrl-C: it stops as a run does, and its finished trials are kept.
            _stop(process)
            raise
        finally:
            late.cancel()
    return _why_not(status, answer, said)


def _stop(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _listen(stream: Any, said: list[str]) -> None:
    with stream:
        for line in stream:
            text = line.rstrip()
            said.append(text)
            logger.info("%s", text)


def _why_not(status: int, answer: str, said: list[str]) -> str:
    """Why the bucket isn't held; empty where it is."""
    try:
        page = json.loads(answer)
    except ValueError:
        page = {}
    results = page.get("results", [])
    if status == 0 and (page.get("held") or any(r["status"] == "tuned" for r in results)):
        return ""
    reasons = [r["reason"] for r in results if r["reason"]]
    reasons += [r["reason"] for r in page.get("from", {}).get("remarks", ())]
    reasons += [line.removeprefix(_ERROR) for line in said if line.startswith(_ERROR)]
    told = reasons[0] if reasons else (said[-1] if said else "no reason is given")
    return f"`lfbo-aot tune` ended with {status}: {told}"
