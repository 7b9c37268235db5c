"""Which device a run tunes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lfbo_aot.errors import DeviceUnavailableError
from lfbo_aot.errors import SettingError
from lfbo_aot.registry.devices import INTERPRETER
from lfbo_aot.tuning.devices.probe import survey

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lfbo_aot.registry.devices import DeviceId
    from lfbo_aot.tuning.devices.device import Device
    from lfbo_aot.tuning.devices.probe import Survey

KINDS = ("auto", "gpu", "interpreter")


def choose_device(kind: str) -> tuple[DeviceId, str]:
    """(identity, why) of the device that `kind` means here, without starting anything on it.

    `auto` is what the first GPU is, else the interpreter. Raises DeviceUnavailableError where a GPU was
    asked for and none is there, saying what was looked for.
    """
    if kind not in KINDS:
        name = "device"
        raise SettingError(name, kind, KINDS)
    if kind == "interpreter":
        return INTERPRETER, "asked for"
    found = survey()
    if found.gpus:
        return found.gpus[0].id, found.looked_for
    if kind == "gpu":
        msg = f"no GPU to tune on: {found.looked_for}. --device interpreter tunes on the CPU."
        raise DeviceUnavailableError(msg)
    return INTERPRETER, found.looked_for


def start_device(
    identity: DeviceId,
    workers: int | None = None,
    *,
    found: Survey | None = None,
    preload: Sequence[str] = (),
) -> Device:
    """The device itself, its processes starting: of GPUs, all of that kind.

    `found`: the GPUs, if they are known. Modules of `preload` are imported there as soon as that can be.
    """
    if identity == INTERPRETER:
        from lfbo_aot.tuning.devices.interpreter import InterpreterDevice

        return InterpreterDevice(workers)
    from lfbo_aot.tuning.devices.gpu import GpuDevice

    gpus = [gpu for gpu in (found or survey()).gpus if gpu.id == identity]
    indices = [gpu.index for gpu in gpus] or [0]
    properties = gpus[0].properties if gpus else None
    return GpuDevice(identity, indices, workers=workers, properties=properties, preload=preload)
