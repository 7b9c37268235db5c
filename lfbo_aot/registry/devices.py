"""Devices: what a timing holds for. Names are matched exactly, never in part."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from typing import NamedTuple

from lfbo_aot.errors import UnknownNameError
from lfbo_aot.registry import amd
from lfbo_aot.registry import nvidia
from lfbo_aot.registry.limits import INTERPRETER_ARCH
from lfbo_aot.registry.limits import OF_ARCH
from lfbo_aot.registry.limits import Limits
from lfbo_aot.registry.limits import of_arch
from lfbo_aot.registry.product import Product

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Iterator

# Compute capabilities have a major version of one digit from 5 on, or of two up to 12.
_NVIDIA = re.compile(r"sm_?([5-9][0-9]|1[0-2][0-9])[af]?")
_NVIDIA_LIKE = re.compile(r"sm_?[0-9].*|[0-9]+")
_SAFE = re.compile(r"[a-z0-9][a-z0-9_-]*")
_WITH_PROPERTIES = re.compile(r".+ \(([1-9][0-9]* (SMs|CUs)(, [1-9][0-9]* GiB)?|[1-9][0-9]* GiB)\)")
_USUAL = re.compile(r"sm[0-9]{2,3}|gfx([6-9]|1[0-3])[0-9][0-9a-f]")


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
    """A product, the exact names that drivers report for it, and what it has (sizes in bytes)."""

    id: DeviceId
    aliases: tuple[str, ...]
    limits: Limits
    sms: int | None
    """Multiprocessors or compute units. None, here and below: not publicly known."""
    l2_bytes: int | None
    memory_bytes: int | None
    """As it is sold: drivers report somewhat less."""

    @property
    def shared_per_block(self) -> int:
        return self.limits.shared_per_block

    @property
    def threads_per_block(self) -> int:
        return self.limits.threads_per_block

    @property
    def registers_per_block(self) -> int:
        return self.limits.registers_per_block


class Target(NamedTuple):
    """What someone asks an answer for: an arch, and perhaps one device of it."""

    arch: str
    device: DeviceId | None

    def __str__(self) -> str:
        return str(self.device or self.arch)


CPU = DeviceId("cpu", "CPU")
INTERPRETER = DeviceId(INTERPRETER_ARCH, "Triton interpreter")


def _known() -> Iterator[KnownDevice]:
    for product in (
        *nvidia.PRODUCTS,
        *amd.PRODUCTS,
        Product(INTERPRETER.arch, INTERPRETER.name, 1),
    ):
        yield KnownDevice(
            id=DeviceId(product.arch, product.name),
            aliases=tuple(dict.fromkeys(map(_clean, product.aliases))),
            limits=OF_ARCH[product.arch],
            sms=product.sms,
            l2_bytes=None if product.l2_mib is None else product.l2_mib << 20,
            memory_bytes=None if product.memory_gib is None else product.memory_gib << 30,
        )


def normalize_arch(text: str) -> str:
    """An arch in Helion's spelling: `sm_90a` gives `sm90`, `gfx942:sramecc+` gives `gfx942`.

    Raises UnknownNameError where it can't be the name of an arch (nor of a folder).
    """
    arch = _normal(text)
    if arch is None:
        raise _unknown_arch(text)
    return arch


def identify(
    arch: str, reported_name: str, *, sms: int | None = None, memory_bytes: int | None = None
) -> DeviceId:
    """The one device that a driver means by `reported_name` on `arch`.

    `sms` and `memory_bytes` are what the driver reports beside the name. A part of a product, such
    as a partition that keeps the whole one's name, isn't that product: a name that isn't known,
    word for word, or that doesn't go with what is known of its product, stays a device of its own,
    named with these properties where they are given. `/` and `|` are replaced.
    """
    found = DeviceId(normalize_arch(arch), _clean(reported_name))
    products = _BY_NAME.get(found, ())
    fitting = [known for known in products if _fits(known, sms, memory_bytes)]
    if len(fitting) == 1:
        return fitting[0].id
    properties = _properties(found.arch, sms, memory_bytes)
    return DeviceId(found.arch, f"{found.name} ({properties})") if properties else found


def known(device: DeviceId) -> KnownDevice | None:
    """What is known of `device`; None where it isn't in the table."""
    return KNOWN.get(device)


def can_be(device: DeviceId) -> bool:
    """Whether `identify` gives this identity to a device: a known product's, or one by properties."""
    return device in KNOWN or _WITH_PROPERTIES.fullmatch(device.name) is not None


def limits_of(device: DeviceId) -> Limits | None:
    """What a block may use on `device`; of an unknown product, what its whole arch allows.

    None where that isn't known either.
    """
    found = known(device)
    return of_arch(device.arch) if found is None else found.limits


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
    if _USUAL.fullmatch(arch) or arch in {*(device.arch for device in KNOWN), CPU.arch, *held}:
        return target
    raise _unknown_arch(str(target), held)


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


def _fits(known: KnownDevice, sms: int | None, memory_bytes: int | None) -> bool:
    """Whether a device with these properties can be the whole of the product."""
    if None not in (sms, known.sms) and sms != known.sms:
        return False
    if memory_bytes is None or known.memory_bytes is None:
        return True
    # Drivers report up to a tenth less than what is sold; the next size is a seventh away.
    return abs(memory_bytes - known.memory_bytes) * 8 <= known.memory_bytes


def _properties(arch: str, sms: int | None, memory_bytes: int | None) -> str:
    units = "CUs" if arch.startswith("gfx") else "SMs"
    parts = [] if sms is None else [f"{sms} {units}"]
    parts += [] if memory_bytes is None else [f"{_size_gib(memory_bytes)} GiB"]
    return ", ".join(parts)


def _size_gib(memory_bytes: int) -> int:
    """The size that memory is sold in: what a driver reports differs with its release and ECC.

    Sizes are 4, 5, 6 or 7 times a power of two.
    """
    gib = max(1, -(-memory_bytes // (1 << 30)))
    step = 1 << max(0, (gib - 1).bit_length() - 3)
    return -(-gib // step) * step


# After what they are made with.
KNOWN: dict[DeviceId, KnownDevice] = {device.id: device for device in _known()}
_BY_NAME: dict[DeviceId, list[KnownDevice]] = {}
for _device in KNOWN.values():
    for _name in (_device.id.name, *_device.aliases):
        _BY_NAME.setdefault(DeviceId(_device.id.arch, _name), []).append(_device)
