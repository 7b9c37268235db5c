"""Devices: what a timing holds for. Names are matched exactly, never in part."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from typing import NamedTuple

from lfbo_aot.errors import UnknownNameError

if TYPE_CHECKING:
    from collections.abc import Iterable

MIB = 1 << 20
INTERPRETER_ARCH = "cpu-interpreter"
_NVIDIA = re.compile(r"sm_?([0-9]{2,3})[af]?")
_NVIDIA_LIKE = re.compile(r"sm_?[0-9].*|[0-9]+")
_SAFE = re.compile(r"[a-z0-9][a-z0-9_-]*")
_USUAL = re.compile(r"sm[0-9]{2,3}|gfx[0-9a-f]{3,4}")


@dataclass(frozen=True, slots=True, order=True)
class DeviceId:
    """A device by arch and product name; as text, `sm90/NVIDIA H200`."""

    arch: str
    name: str

    def __str__(self) -> str:
        return f"{self.arch}/{self.name}"

    @classmethod
    def parse(cls, text: str) -> DeviceId:
        """The device written `text`; ValueError where it isn't written `arch/name`."""
        arch, slash, name = text.partition("/")
        if not slash or _clean(name) != name or _normal(arch) is None:
            msg = f"device {text!r} isn't written arch/name, such as 'sm90/NVIDIA H200'"
            raise ValueError(msg)
        return cls(normalize_arch(arch), name)


@dataclass(frozen=True, slots=True)
class KnownDevice:
    """A product, the exact names that drivers report for it, and its limits (sizes in bytes)."""

    id: DeviceId
    aliases: tuple[str, ...]
    sms: int
    shared_per_block: int
    """With opt-in, where the vendor has one."""
    threads_per_block: int
    registers_per_block: int
    l2_bytes: int
    memory_bytes: int


class Target(NamedTuple):
    """What someone asks an answer for: an arch, and perhaps one device of it."""

    arch: str
    device: DeviceId | None

    def __str__(self) -> str:
        return str(self.device or self.arch)


def _known(
    arch: str,
    name: str,
    *aliases: str,
    sms: int,
    shared: int,
    l2: int,
    memory: int,
) -> KnownDevice:
    """`shared` in KiB, `l2` and `memory` in MiB. All of these allow 1024 threads, 65536 registers."""
    return KnownDevice(
        id=DeviceId(arch, name),
        aliases=aliases,
        sms=sms,
        shared_per_block=shared * 1024,
        threads_per_block=1024,
        registers_per_block=65536,
        l2_bytes=l2 * MIB,
        memory_bytes=memory * MIB,
    )


# Multiprocessors, shared memory and L2: the vendors' tuning guides and data sheets. Memory: what
# the vendor's tool shows in total. Old drivers leave out the vendor's name.
_TABLE = (
    _known("sm90", "NVIDIA H200", sms=132, shared=227, l2=60, memory=143771),
    _known("sm90", "NVIDIA H200 NVL", sms=132, shared=227, l2=60, memory=143771),
    _known(
        "sm90",
        "NVIDIA H100 80GB HBM3",
        "NVIDIA H100",
        "NVIDIA H100 SXM5 80GB",
        "H100 80GB HBM3",
        sms=132,
        shared=227,
        l2=50,
        memory=81559,
    ),
    _known("sm90", "NVIDIA H100 PCIe", "H100 PCIe", sms=114, shared=227, l2=50, memory=81559),
    _known("sm90", "NVIDIA H100 NVL", sms=132, shared=227, l2=60, memory=95830),
    _known(
        "sm80",
        "NVIDIA A100-SXM4-80GB",
        "A100-SXM4-80GB",
        sms=108,
        shared=163,
        l2=40,
        memory=81920,
    ),
    _known(
        "sm80",
        "NVIDIA A100-SXM4-40GB",
        "A100-SXM4-40GB",
        sms=108,
        shared=163,
        l2=40,
        memory=40960,
    ),
    _known("sm80", "NVIDIA A100 80GB PCIe", sms=108, shared=163, l2=40, memory=81920),
    _known(
        "sm80",
        "NVIDIA A100-PCIE-40GB",
        "A100-PCIE-40GB",
        sms=108,
        shared=163,
        l2=40,
        memory=40960,
    ),
    _known("sm100", "NVIDIA B200", sms=148, shared=227, l2=126, memory=183359),
    # L2 is that of one of the eight dies, which is what the driver reports.
    _known("gfx942", "AMD Instinct MI300X", sms=304, shared=64, l2=4, memory=196608),
    # Limits that no config of the declared small shapes is meant to meet.
    _known(
        INTERPRETER_ARCH,
        "Triton interpreter",
        sms=1,
        shared=1 << 20,
        l2=0,
        memory=0,
    ),
)

KNOWN: dict[DeviceId, KnownDevice] = {device.id: device for device in _TABLE}
CPU = DeviceId("cpu", "CPU")
INTERPRETER = DeviceId(INTERPRETER_ARCH, "Triton interpreter")
_BY_NAME: dict[DeviceId, DeviceId] = {
    DeviceId(device.id.arch, name): device.id
    for device in _TABLE
    for name in (device.id.name, *device.aliases)
}


def normalize_arch(text: str) -> str:
    """An arch in Helion's spelling: `sm_90a` gives `sm90`, `gfx942:sramecc+` gives `gfx942`.

    Raises UnknownNameError where it can't be the name of an arch (nor of a folder).
    """
    arch = _normal(text)
    if arch is None:
        raise _unknown_arch(text)
    return arch


def identify(arch: str, reported_name: str) -> DeviceId:
    """The one device that a driver means by `reported_name` on `arch`.

    A name that isn't known, word for word, stays a device of its own, with `/` and `|` replaced.
    """
    found = DeviceId(normalize_arch(arch), _clean(reported_name))
    return _BY_NAME.get(found, found)


def known(device: DeviceId) -> KnownDevice | None:
    """What is known of `device`; None where it isn't in the table."""
    return KNOWN.get(device)


def parse_target(text: str) -> Target:
    """The target written `sm90/NVIDIA H200` or `sm90`; a driver's name for a device will do.

    Raises UnknownNameError where it is neither.
    """
    arch, slash, name = text.partition("/")
    if slash and not name.strip():
        msg = "device"
        raise UnknownNameError(msg, text, (str(d) for d in KNOWN))
    return Target(normalize_arch(arch), identify(arch, name) if slash else None)


def check_arch(target: Target, held: Iterable[str] = ()) -> Target:
    """`target`, if its arch looks like one, is known, or is among those `held` in databases.

    Else UnknownNameError, with the nearest archs or, where the text is like a device's name, those
    devices: a target that nothing runs on would be a miss for ever.
    """
    arch = target.arch
    archs = {*(device.arch for device in KNOWN), CPU.arch, *held}
    if not _USUAL.fullmatch(arch) and arch not in archs:
        raise _unknown_arch(str(target), held)
    return target


def _unknown_arch(text: str, held: Iterable[str] = ()) -> UnknownNameError:
    kind = "arch"
    word = text.strip().lower()
    like = [device for device in KNOWN if word in device.name.lower()]
    devices = [str(device) for device in like] if word and not word.isdigit() else []
    if devices:
        near = " or ".join(repr(device) for device in devices[:3])
        return UnknownNameError(kind, text, (), f"Did you mean {near}?")
    archs = {*(device.arch for device in KNOWN), *held}
    return UnknownNameError(kind, text, archs, "An arch is written like sm90 or gfx942.")


def _normal(text: str) -> str | None:
    arch = text.strip().partition(":")[0].lower()
    nvidia = _NVIDIA.fullmatch(arch)
    if nvidia:
        return f"sm{nvidia[1]}"
    if _NVIDIA_LIKE.fullmatch(arch):
        return None  # a slip of the pen: it would be an arch that nothing runs on
    return arch if _SAFE.fullmatch(arch) else None


def _clean(name: str) -> str:
    """`name` as it can stand in a key: one line, single blanks, no separators."""
    words = "".join(c if c.isprintable() else " " for c in name).split()
    return " ".join(words).replace("/", "-").replace("|", "-") or "unknown"
