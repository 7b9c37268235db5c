"""A GPU's stand-in: kernels are bound and compiled in a process that never touches the GPU.

Helion and Triton ask the device what it is, not to do anything, until a binary is loaded. Here they
are answered from a description, so that compiling needs no context on the device (half a gigabyte
each, and seconds to make), may go on in forked children, where CUDA can't be used at all, and works
for a device that isn't there.
"""

from __future__ import annotations

from dataclasses import asdict
from dataclasses import dataclass
from dataclasses import field
from types import SimpleNamespace
from typing import TYPE_CHECKING
from typing import Any

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class DeviceDescription:
    """All that Helion and Triton ask of a device; JSON-able by `to_json`."""

    backend: str
    """Triton's name: `cuda` or `hip`."""
    arch: int | str
    """As Triton has it: 90, `gfx942`."""
    warp_size: int
    index: int
    properties: Mapping[str, Any] = field(default_factory=dict)
    """What torch tells of the device, by its names."""
    runtime: str = ""
    """The version of CUDA or ROCm that torch was built for."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def describe(index: int) -> DeviceDescription:
    """The description of a device of this machine; makes a context on it."""
    import torch
    from triton.runtime import driver

    torch.cuda.set_device(index)
    target = driver.active.get_current_target()
    return DeviceDescription(
        target.backend,
        target.arch,
        target.warp_size,
        index,
        _plain(torch.cuda.get_device_properties(index)),
        str(torch.version.cuda or torch.version.hip or ""),
    )


def described(properties: Mapping[str, Any], index: int) -> dict[str, Any]:
    """The description of a CUDA device by what its driver says, as JSON; `runtime` isn't known."""
    arch = 10 * int(properties["major"]) + int(properties["minor"])
    warp_size = int(properties["warp_size"])
    return DeviceDescription("cuda", arch, warp_size, index, properties).to_json()


_TOLD = (
    "name",
    "major",
    "minor",
    "multi_processor_count",
    "warp_size",
    "regs_per_multiprocessor",
    "shared_memory_per_block",
    "shared_memory_per_block_optin",
    "shared_memory_per_multiprocessor",
    "max_threads_per_block",
    "max_threads_per_multi_processor",
    "L2_cache_size",
)
"""What code may depend on."""


def disagreement(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """In what two descriptions, as JSON, differ as far as both go; empty where they don't."""
    found = [
        f"{key} {one[key]!r}, {other[key]!r}"
        for key in ("backend", "arch", "warp_size", "index")
        if one[key] != other[key]
    ]
    ours, theirs = one["properties"], other["properties"]
    found += [
        f"{key} {ours[key]!r}, {theirs[key]!r}"
        for key in _TOLD
        if key in ours and key in theirs and ours[key] != theirs[key]
    ]
    return "; ".join(found)


def _plain(properties: Any) -> dict[str, Any]:
    names = [name for name in dir(properties) if not name.startswith("_")]
    found = {name: getattr(properties, name, None) for name in names}
    return {k: v for k, v in found.items() if isinstance(v, int | float | str)}


def install(description: DeviceDescription) -> None:
    """Let torch and Triton answer for the described device from now on, in this process.

    Before Helion is imported, which asks at once and remembers. There is no way back.
    """
    _install_in_torch(description)
    _install_in_triton(description)


def _install_in_torch(description: DeviceDescription) -> None:
    import torch
    from torch._subclasses import fake_tensor

    properties = SimpleNamespace(**description.properties)
    capability = (getattr(properties, "major", 0), getattr(properties, "minor", 0))
    answers: dict[str, Any] = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "device_count": lambda: description.index + 1,
        "current_device": lambda: description.index,
        "set_device": lambda _device: None,
        "get_device_properties": lambda _device=None: properties,
        "get_device_capability": lambda _device=None: capability,
        "get_device_name": lambda _device=None: getattr(properties, "name", ""),
        "_lazy_init": lambda: None,
    }
    for name, answer in answers.items():
        setattr(torch.cuda, name, answer)
    # A fake tensor's first act is to make a context.
    setattr(fake_tensor, "init_gpu_context", lambda _device: None)  # noqa: B010 - it has a type
    if description.backend == "cuda" and torch.version.cuda is None:
        torch.version.cuda = description.runtime


def _install_in_triton(description: DeviceDescription) -> None:
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver

    target = GPUTarget(description.backend, description.arch, description.warp_size)
    driver.set_active(_Driver(target, description.index))


class _Driver:
    """As much of a Triton driver as compiling asks for."""

    def __init__(self, target: Any, index: int) -> None:
        self._target = target
        self._index = index

    def get_current_target(self) -> Any:
        return self._target

    def get_current_device(self) -> int:
        return self._index

    def get_current_stream(self, _device: int | None = None) -> int:
        return 0

    def get_active_torch_device(self) -> Any:
        import torch

        return torch.device("cuda", self._index)

    def get_device_interface(self) -> Any:
        import torch

        return torch.cuda

    def map_python_to_cpp_type(self, kind: str) -> str:
        return kind
