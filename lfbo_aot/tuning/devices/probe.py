"""Which GPUs this machine has, asked in a process of its own: the orchestrator never touches one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING
from typing import Any

from lfbo_aot.registry.devices import DeviceId
from lfbo_aot.registry.devices import identify

if TYPE_CHECKING:
    from collections.abc import Mapping

_DRIVERS = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")
_PATIENCE_S = 120.0
# What CUDA's driver says, without torch, which takes seconds to import; only where torch's build can
# use it. The numbers are those of CUdevice_attribute.
_DRIVER_SCRIPT = """
import ctypes, importlib.util, json, pathlib, re
spec = importlib.util.find_spec("torch")
text = pathlib.Path(spec.origin).with_name("version.py").read_text()
version = re.search(r"__version__[^=]*= *['\\"]([^'\\"]+)", text)[1]
re.search(r"^cuda\\b[^=]*= *['\\"]", text, re.M)[0]
cuda = ctypes.CDLL("libcuda.so.1")
def call(name, *args):
    if getattr(cuda, name)(*args):
        raise SystemExit(name)
count, device, value = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
ATTRIBUTES = {
    "max_threads_per_block": 1,
    "shared_memory_per_block": 8,
    "warp_size": 10,
    "multi_processor_count": 16,
    "is_integrated": 18,
    "L2_cache_size": 38,
    "max_threads_per_multi_processor": 39,
    "major": 75,
    "minor": 76,
    "shared_memory_per_multiprocessor": 81,
    "regs_per_multiprocessor": 82,
    "is_multi_gpu_board": 84,
    "shared_memory_per_block_optin": 97,
}
name, size = ctypes.create_string_buffer(256), ctypes.c_size_t()
call("cuInit", 0)
call("cuDeviceGetCount", ctypes.byref(count))
found = []
for i in range(count.value):
    call("cuDeviceGet", ctypes.byref(device), i)
    call("cuDeviceGetName", name, 256, device)
    call("cuDeviceTotalMem_v2", ctypes.byref(size), device)
    told = {"name": name.value.decode(), "total_memory": size.value}
    told["gcnArchName"] = told["name"]  # as torch says of a CUDA device
    for attribute, number in ATTRIBUTES.items():
        call("cuDeviceGetAttribute", ctypes.byref(value), number, device)
        told[attribute] = value.value
    found.append({
        "index": i,
        "arch": f"sm{told['major']}{told['minor']}",
        "name": told["name"],
        "sms": told["multi_processor_count"],
        "memory_bytes": size.value,
        "properties": told,
    })
print(json.dumps({"torch": version, "gpus": found}))
"""
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
    properties: Mapping[str, Any] | None = field(default=None, compare=False)
    """What the driver says of it, by torch's names; None where torch was asked."""


@dataclass(frozen=True, slots=True)
class Survey:
    """What was found, and a sentence on what was looked for."""

    gpus: tuple[Gpu, ...]
    looked_for: str


def _gpu(
    index: int,
    arch: str,
    name: str,
    *,
    sms: int,
    memory_bytes: int,
    properties: Mapping[str, Any] | None = None,
) -> Gpu:
    return Gpu(index, identify(arch, name, sms=sms, memory_bytes=memory_bytes), properties)


def survey() -> Survey:
    """The GPUs that torch sees in a fresh process like this one."""
    drivers = [path for path in _DRIVERS if Path(path).exists()]
    if not drivers:
        return Survey((), f"no GPU driver ({', '.join(_DRIVERS)})")
    found = f"driver {drivers[0]} is there, but torch"
    try:
        answer = _driver_answer() or _answer(_SCRIPT)
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


def _driver_answer() -> dict[str, Any] | None:
    """What the driver says; None where it has no GPU, or torch has to be asked."""
    try:
        answer = _answer(_DRIVER_SCRIPT)
    except (subprocess.SubprocessError, ValueError):
        return None
    return answer if answer["gpus"] else None


def _answer(script: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=_PATIENCE_S,
        check=True,
    )
    answer: dict[str, Any] = json.loads(done.stdout.strip().rpartition("\n")[2])
    return answer
