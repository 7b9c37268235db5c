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
    torch: Any = sys.modules.get("torch")
    if torch is None:
        return None
    if torch.cuda.is_available():
        return _cuda(int(torch.cuda.current_device()))
    return INTERPRETER if interpreted() else None


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


@lru_cache(maxsize=64)
def _cuda(index: int) -> DeviceId:
    """What the driver reports of one device, which can't change while the process lives."""
    import torch

    properties: Any = torch.cuda.get_device_properties(index)
    if torch.version.hip is not None:
        return identify(properties.gcnArchName, properties.name)
    return identify(f"sm{properties.major}{properties.minor}", properties.name)
