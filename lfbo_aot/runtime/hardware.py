"""The devices of this machine, as the database knows them. torch is used only if it is loaded."""

from __future__ import annotations

import os
import sys
from functools import lru_cache
from typing import Any

from lfbo_aot.registry.devices import CPU
from lfbo_aot.registry.devices import INTERPRETER
from lfbo_aot.registry.devices import DeviceId
from lfbo_aot.registry.devices import identify
from lfbo_aot.registry.devices import limits_of
from lfbo_aot.registry.limits import Limits


def device_of(tensor: Any) -> DeviceId:
    """The device that holds `tensor`; a CPU tensor's is the interpreter's where that is on."""
    return device_from_torch(tensor.device)


def device_from_torch(device: Any) -> DeviceId:
    """The identity of a `torch.device`, read for its own index."""
    kind = str(device.type)
    if kind == "cuda":
        return _cuda(_index(device))
    if kind == "cpu":
        return INTERPRETER if interpreted() else CPU
    return identify(kind, kind)


def current_device() -> DeviceId | None:
    """The device that torch would use now; None where torch isn't loaded, or has none."""
    torch: Any = _torch()
    if torch is None:
        return None
    if torch.cuda.is_available():
        return _cuda(int(torch.cuda.current_device()))
    return INTERPRETER if interpreted() else None


def _torch() -> Any:
    """Torch where it is loaded; None too while another thread is still loading it."""
    torch = sys.modules.get("torch")
    return torch if hasattr(torch, "cuda") and hasattr(torch, "version") else None


def identities() -> tuple[DeviceId, ...]:
    """Those of the CUDA or ROCm devices that this process sees, by index; empty without torch."""
    torch: Any = _torch()
    if torch is None or not torch.cuda.is_available():
        return ()
    return tuple(_cuda(index) for index in range(torch.cuda.device_count()))


@lru_cache(maxsize=1)
def uniform() -> bool:
    """Whether the devices that this process sees are all of one identity, asked once.

    Call it where there are tensors to be served: what it says before torch is loaded is kept too.
    """
    return len(set(identities())) <= 1


def limits_here(where: Any) -> Limits | None:
    """What a block may use on a device here, given by index, as a `torch.device` or by a tensor.

    As the device's own properties say; where torch doesn't show one, as its arch has it. None
    where neither is known.
    """
    if isinstance(where, int):
        return _cuda_limits(where)
    device = getattr(where, "device", where)
    if str(device.type) == "cuda":
        return _cuda_limits(_index(device))
    return limits_of(device_from_torch(device))


def interpreted() -> bool:
    """Whether triton runs kernels in its interpreter in this process.

    Triton reads the variable when it is imported, so that counts where it has been.
    """
    knobs: Any = sys.modules.get("triton.knobs")
    if knobs is not None:
        return bool(knobs.runtime.interpret)
    return os.environ.get("TRITON_INTERPRET", "0").lower() in ("1", "true", "yes", "on", "y")


def _index(device: Any) -> int:
    import torch

    return int(torch.cuda.current_device() if device.index is None else device.index)


# What the driver reports of a device can't change while the process lives.
@lru_cache(maxsize=64)
def _cuda(index: int) -> DeviceId:
    import torch

    properties: Any = torch.cuda.get_device_properties(index)
    hip = torch.version.hip is not None
    arch = properties.gcnArchName if hip else f"sm{properties.major}{properties.minor}"
    return identify(
        arch,
        properties.name,
        sms=getattr(properties, "multi_processor_count", None),
        memory_bytes=getattr(properties, "total_memory", None),
    )


@lru_cache(maxsize=64)
def _cuda_limits(index: int) -> Limits | None:
    import torch

    properties: Any = torch.cuda.get_device_properties(index)
    usual = limits_of(_cuda(index))

    def read(*names: str) -> int:
        return next((int(value) for n in names if (value := getattr(properties, n, 0))), 0)

    # CUDA's plain figure is what a block gets without opting in; ROCm has no such distinction.
    plain = ("shared_memory_per_block",) if torch.version.hip is not None else ()
    shared = read("shared_memory_per_block_optin", *plain)
    threads = read("max_threads_per_block")
    registers = read("regs_per_block")
    if usual is None:
        shared = shared or read("shared_memory_per_block")
        # Every CUDA and ROCm device allows 1024 threads; a block can have a whole register file.
        usual = Limits(shared, 1024, read("regs_per_multiprocessor") or 65536) if shared else None
    if usual is None:
        return None
    return Limits(
        shared or usual.shared_per_block,
        threads or usual.threads_per_block,
        registers or usual.registers_per_block,
    )
