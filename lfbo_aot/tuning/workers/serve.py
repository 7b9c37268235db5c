"""The loop that every worker runs, and how it finds the kernel that it is asked about."""

from __future__ import annotations

import importlib.util
import logging
import os
import signal
import sys
import threading
import traceback
from typing import TYPE_CHECKING

from lfbo_aot.registry import catalog
from lfbo_aot.registry.discovery import load_kernels
from lfbo_aot.tuning.channel import Channel
from lfbo_aot.tuning.channel import Message

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Mapping

    from lfbo_aot.registry.spec import KernelSpec

logger = logging.getLogger(__name__)


def serve(handlers: Mapping[str, Callable[[Message], Message]]) -> None:
    """Answer requests until the orchestrator is gone. An exception is an answer, not an end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the orchestrator decides when this one ends
    channel = Channel.from_fd(int(sys.argv[1]))
    _leave_with_parent(os.getppid())
    while (request := channel.receive()) is not None:
        try:
            reply: Message = {"reply": handlers[request["op"]](request)}
        except Exception as e:  # noqa: BLE001 - told to the orchestrator, which decides
            traceback.print_exc()
            reply = {"error": first_line(e), "kind": type(e).__name__}
        channel.send(reply)
    os._exit(0)


def _leave_with_parent(parent: int, every_s: float = 2.0) -> None:
    """A second line behind the watchdog: end this process when its parent has changed."""

    def look() -> None:
        pause = threading.Event()
        while os.getppid() == parent:
            pause.wait(every_s)
        os.killpg(os.getpgrp(), signal.SIGKILL)

    threading.Thread(target=look, daemon=True).start()


def first_line(error: BaseException, limit: int = 300) -> str:
    """One line for a journal: the error's type and the start of what it says."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:limit]


def kernel_reference(spec: KernelSpec) -> Message:
    """What a worker needs to import the kernel of a spec."""
    return {"kernel": spec.kernel_id, "module": spec.module, "file": str(spec.file)}


def import_kernel(reference: Message) -> KernelSpec:
    """The spec of a kernel, its module imported in this process: by name, else from its file."""
    kernel_id, name, file = reference["kernel"], reference["module"], reference["file"]
    if any(spec.kernel_id == kernel_id for spec in catalog.specs()):
        return catalog.find(kernel_id)
    # A module that only its file knows (a script, or one loaded by path) has no import name here.
    found = name != "__main__" and importlib.util.find_spec(name.partition(".")[0]) is not None
    load_kernels([name if found else file])
    return catalog.find(kernel_id)
