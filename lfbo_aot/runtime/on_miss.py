"""`on_miss=tune`, for development: what a look-up missed is tuned now, by the command line.

The tuning runs in a process of its own, `python -m lfbo_aot tune`, which keeps the result in the
user's layer; a serving process never tunes in itself. Where it can't be done, or fails, there is one
warning with the reason, and the look-up's answer is the default.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING
from typing import Any

from lfbo_aot.database.text import dump_line
from lfbo_aot.registry import catalog
from lfbo_aot.registry.devices import INTERPRETER
from lfbo_aot.registry.locks import ForkLock
from lfbo_aot.runtime import hardware
from lfbo_aot.runtime import settings
from lfbo_aot.runtime.notices import warn_once
from lfbo_aot.runtime.tuning_process import run_command

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lfbo_aot.registry.buckets import Bucket
    from lfbo_aot.registry.devices import DeviceId
    from lfbo_aot.registry.spec import KernelSpec
    from lfbo_aot.runtime.request import Request

logger = logging.getLogger(__name__)

BUDGET_S = 300.0
"""For one bucket, where LFBO_AOT_BUDGET doesn't say."""
_GRACE_S = 600.0
"""On top of the budget, for imports, a last trial and the final measurement; then it is killed."""
_MARK = "_LFBO_AOT_TUNES_ON_MISS"
"""Set for the process that tunes: a kernel module that sets the policy must not start another."""

_lock = ForkLock()
_outcomes: dict[tuple[str, str, str], bool] = {}
_thread = threading.local()
"""`told`: the buckets that this thread was told the outcome of."""


class _CantTuneError(Exception):
    """Why a bucket can't be tuned from here."""


def tune_now(request: Request, module: str | None) -> bool:
    """Whether to look again: the bucket of `request` is in the user's layer now. May take minutes.

    Each bucket is tuned at most once in a process, whatever comes of it; a forked child keeps what
    was found out before the fork. Threads that miss at the same time wait for each other. A thread
    is sent to look again once for a bucket: what misses still, as for its layout, would for ever.
    `module` declares the kernel where this process doesn't know it; None: an installed package does.
    """
    spec = next((s for s in catalog.specs() if s.kernel_id == request.kernel_id), None)
    key = request.kernel_id, str(request.target), _bucket_text(request, spec)
    with _lock:
        if key not in _outcomes:
            # An interrupt is no outcome: the next miss tries again.
            _outcomes[key] = _try(request, spec, module, key[2])
        tuned = _outcomes[key]
    told: set[tuple[str, str, str]] = vars(_thread).setdefault("told", set())
    again = tuned and key not in told
    told.add(key)
    return again


def forget() -> None:
    """Try everything again: for tests."""
    with _lock:
        _outcomes.clear()
    vars(_thread).clear()


def _try(request: Request, spec: KernelSpec | None, module: str | None, bucket: str) -> bool:
    try:
        command, environment = _command(request, spec, module)
        budget_s = _budget_s()
        logger.warning(
            "%s: on_miss=tune: tuning %s on %s now, in another process. This call waits for it: up "
            "to %.0f s (LFBO_AOT_BUDGET) and what starting and the last measurement take. "
            "`lfbo-aot status` shows how far it is.",
            request.kernel_id,
            bucket,
            request.target,
            budget_s,
        )
        reason = run_command(command, environment, _record(request), budget_s + _GRACE_S)
    except _CantTuneError as error:
        reason = str(error)
    if reason:
        warn_once(
            request.kernel_id,
            f"on_miss=tune: {bucket} on {request.target} isn't tuned, and the default is served: "
            f"{reason}",
        )
        return False
    logger.warning("%s: on_miss=tune: %s is tuned", request.kernel_id, bucket)
    return True


def _budget_s() -> float:
    budget = settings.current().budget
    return BUDGET_S if budget is None else budget


def _bucket_text(request: Request, spec: KernelSpec | None) -> str:
    """The key of the declared bucket, so that its shapes are tuned once; else of the shape."""
    if spec is not None:
        for bucket in _buckets(spec, request):
            if bucket.contains(request.shape):
                return bucket.key
    return request.shape_key


def _buckets(spec: KernelSpec, request: Request) -> tuple[Bucket, ...]:
    return spec.small_buckets if request.target.device == INTERPRETER else spec.buckets


def _record(request: Request) -> str:
    """What `tune --from` reads: as a line of LFBO_AOT_RECORD_MISSES."""
    target = str(request.target)
    return dump_line({"kernel": request.kernel_id, "shape": request.shape, "arch": target}) + "\n"


def _command(
    request: Request, spec: KernelSpec | None, module: str | None
) -> tuple[list[str], dict[str, str]]:
    """The command line and its environment; _CantTuneError where there is none."""
    if os.environ.get(_MARK):
        msg = "this process was started to tune, so it starts no other"
        raise _CantTuneError(msg)
    if spec is not None:
        module = _module(spec)
        if not any(bucket.contains(request.shape) for bucket in _buckets(spec, request)):
            on_interpreter = request.target.device == INTERPRETER
            which = "small= shape" if on_interpreter else "declared bucket"
            msg = f"no {which} holds it; widen the kernel's declaration ({spec.place})"
            raise _CantTuneError(msg)
    kind, devices = _device(request)
    budget = f"{_budget_s():g}"
    words = [request.kernel_id, "--from", "-", "--device", kind, "--budget", budget, "--json"]
    words += ["--module", module] if module else []
    environment = {
        **os.environ,
        **devices,
        _MARK: "1",
        "LFBO_AOT_ON_MISS": "default",
        "LFBO_AOT_RECORD_MISSES": "",
        # What can be imported here can be there.
        "PYTHONPATH": os.pathsep.join(str(Path(p).absolute()) for p in sys.path if p),
    }
    return [sys.executable, "-m", "lfbo_aot", "tune", *words], environment


def _module(spec: KernelSpec) -> str:
    """What another process imports to have the kernel declared: a dotted name, or a file."""
    if spec.module == "__main__" or not Path(spec.file).is_file():
        msg = (
            f"it is defined in the program itself ({spec.place}), which another process can't "
            "import without running it again; move it to a module"
        )
        raise _CantTuneError(msg)
    top = spec.module.partition(".")[0]
    finders = [getattr(finder, "find_spec", None) for finder in sys.meta_path]
    found = any(find is not None and find(top, None) is not None for find in finders)
    return spec.module if found else spec.file


def _device(request: Request) -> tuple[str, dict[str, str]]:
    """What `--device` takes, and the variables that make it the device asked about."""
    target = request.target
    if target.device == INTERPRETER:
        return "interpreter", {}
    torch: Any = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        reason = "torch isn't loaded" if torch is None else "torch sees no GPU here"
        msg = f"it must be tuned on {target}, and {reason}"
        raise _CantTuneError(msg)
    here = list(_gpus(torch))
    index = next((i for i, d in here if target.device in (None, d) and d.arch == target.arch), None)
    if index is None:
        seen = ", ".join(dict.fromkeys(str(device) for _, device in here))
        msg = f"it must be tuned on {target}; the devices here are {seen}"
        raise _CantTuneError(msg)
    # The command tunes on the first GPU that it sees.
    visible = [w.strip() for w in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if w]
    return "gpu", {"CUDA_VISIBLE_DEVICES": visible[index] if visible else str(index)}


def _gpus(torch: Any) -> Iterator[tuple[int, DeviceId]]:
    """The GPUs of this process by index, the current one first."""
    current = int(torch.cuda.current_device())
    others = (i for i in range(int(torch.cuda.device_count())) if i != current)
    for index in (current, *others):
        yield index, hardware.device_from_torch(torch.device("cuda", index))
