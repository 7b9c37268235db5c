"""Which GPUs this machine has, asked in a process of its own: the orchestrator never touches one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from lfbo_aot.registry.devices import DeviceId
from lfbo_aot.registry.devices import identify

_DRIVERS = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")
_PATIENCE_S = 120.0
_SCRIPT = """
import json, torch
found = []
for i in range(torch.cuda.device_count()):
    p = torch.cuda.get_device_properties(i)
    arch = p.gcnArchName if torch.version.hip else f"sm{p.major}{p.minor}"
    found.append({
        "index": i,
        "arch": arch,
        "name": p.name,
        "sms": p.multi_processor_count,
        "memory_bytes": p.total_memory,
    })
print(json.dumps({"torch": torch.__version__, "gpus": found}))
"""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU as the driver reports it."""

    index: int
    id: DeviceId


@dataclass(frozen=True, slots=True)
class Survey:
    """What was found, and a sentence on what was looked for."""

    gpus: tuple[Gpu, ...]
    looked_for: str


def _gpu(index: int, arch: str, name: str, sms: int, memory_bytes: int) -> Gpu:
    return Gpu(index, identify(arch, name, sms=sms, memory_bytes=memory_bytes))


def survey() -> Survey:
    """The GPUs that torch sees in a fresh process like this one."""
    drivers = [path for path in _DRIVERS if Path(path).exists()]
    if not drivers:
        return Survey((), f"no GPU driver ({', '.join(_DRIVERS)})")
    found = f"driver {drivers[0]} is there, but torch"
    try:
        done = subprocess.run(
            [sys.executable, "-c", _SCRIPT],
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
            check=True,
        )
        answer = json.loads(done.stdout.strip().rpartition("\n")[2])
    except subprocess.TimeoutExpired:
        return Survey((), f"{found} gave no answer in {_PATIENCE_S:.0f} s")
    except subprocess.CalledProcessError as e:
        lines = e.stderr.strip().splitlines() or [f"exit {e.returncode}"]
        return Survey((), f"{found} can't be asked: {lines[-1]}")
    except ValueError as e:
        return Survey((), f"{found} gave an answer that can't be read: {e}")
    gpus = tuple(_gpu(**g) for g in answer["gpus"])
    if gpus:
        return Survey(gpus, f"torch {answer['torch']} sees {', '.join(str(g.id) for g in gpus)}")
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    why = f"; CUDA_VISIBLE_DEVICES is {hidden!r}" if hidden is not None else ""
    return Survey((), f"{found} {answer['torch']} sees no GPU{why}")
