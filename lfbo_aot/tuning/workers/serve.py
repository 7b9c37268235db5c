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

from lfbo_aot.errors import LfboAotError
from lfbo_aot.registry import catalog
from lfbo_aot.registry.discovery import load_kernels
from lfbo_aot.tuning.channel import Channel
from lfbo_aot.tuning.channel import Message

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Mapping
    from collections.abc import Sequence

    from lfbo_aot.registry.spec import KernelSpec

logger = logging.getLogger(__name__)


def serve(
    handlers: Mapping[str, Callable[[Message], Message]],
    then: Callable[[], object] = lambda: None,
) -> None:
    """Answer requests until the orchestrator is gone. An exception is an answer, not an end.

    `then` is called once, after the first answer: for what a later one needs.

    The command line holds the channel's file descriptor and the orchestrator's process id.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the orchestrator decides when this one ends
    channel = Channel.from_fd(int(sys.argv[1]))
    answered = False
    _leave_with_parent(int(sys.argv[2]))
    while (request := channel.receive()) is not None:
        try:
            reply: Message = {"reply": handlers[request["op"]](request)}
        except Exception as e:  # noqa: BLE001 - told to the orchestrator, which decides
            traceback.print_exc()
            reply = {"error": first_line(e)}
        channel.send(reply)
        if not answered:
            answered = True
            then()
    os._exit(0)  # whatever threads the code under test has left


def _leave_with_parent(parent: int, every_s: float = 2.0) -> None:
    """A second line behind the watchdog: end this process when its parent has changed."""

    def look() -> None:
        pause = threading.Event()
        while os.getppid() == parent:
            pause.wait(every_s)
        os.killpg(os.getpgrp(), signal.SIGKILL)

    threading.Thread(target=look, daemon=True).start()


def first_line(error: BaseException, limit: int = 300) -> str:
    """One line for a journal: the error's type, unless it is one of ours, and what it says."""
    text = " ".join(str(error).split())
    return (text if isinstance(error, LfboAotError) else f"{type(error).__name__}: {text}")[:limit]


def kernel_reference(spec: KernelSpec) -> Message:
    """What a worker needs to import the kernel of a spec.

    A kernel may be registered elsewhere than where it is written: its shape function tells where.
    """
    code = getattr(spec.shape, "__code__", None)
    places = [[spec.module, spec.file]]
    if code is not None:
        places.append([str(spec.shape.__module__), str(code.co_filename)])
    return {"kernel": spec.kernel_id, "places": places}


def preload(modules: Sequence[str]) -> None:
    """Import modules with kernels before they are asked for; what fails is told when it is."""
    for module in modules:
        try:
            load_kernels([module])
        except Exception:
            logger.info("%s can't be imported yet", module, exc_info=True)


def import_kernel(reference: Message) -> KernelSpec:
    """The spec of a kernel, declared in this process by importing one place after the other."""
    kernel_id = reference["kernel"]
    for module, file in reference["places"]:
        if any(spec.kernel_id == kernel_id for spec in catalog.specs()):
            break
        load_kernels([module if _has_import_name(module, file) else file])
    return catalog.find(kernel_id)


def _has_import_name(module: str, file: str) -> bool:
    """Whether `module` is found here under its name, and is this file.

    One that was run as a script, or loaded by path, isn't; something else may have its name.
    """
    if module == "__main__":
        return False
    try:
        found = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return False
    return found is not None and os.path.realpath(found.origin or "") == os.path.realpath(file)
