"""What a block may use of a device: what all products of an arch have in common."""

from __future__ import annotations

from dataclasses import dataclass

INTERPRETER_ARCH = "cpu-interpreter"
_KIB = 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that one block of threads may use of a device."""

    shared_per_block: int
    """Bytes; with opt-in, where the vendor has one."""
    threads_per_block: int
    registers_per_block: int
    """32-bit registers."""


# NVIDIA: by compute capability, as the CUDA programming guide's table and libcu++'s architecture
# traits give it: of a multiprocessor's shared memory all but the 1 KiB that the driver keeps from
# each block. AMD: the local data share of a compute unit, as the CDNA guides give it.
_SHARED_KIB = {
    "sm70": 96,
    "sm75": 64,
    "sm80": 163,
    "sm86": 99,
    "sm87": 163,
    "sm88": 99,
    "sm89": 99,
    "sm90": 227,
    "sm100": 227,
    "sm103": 227,
    "sm110": 227,
    "sm120": 99,
    "sm121": 99,
    "gfx908": 64,
    "gfx90a": 64,
    "gfx942": 64,
    "gfx950": 160,
    # More than any config of the small shapes that the interpreter runs needs.
    INTERPRETER_ARCH: 1 << 20,
}
OF_ARCH = {arch: Limits(shared * _KIB, 1024, 65536) for arch, shared in _SHARED_KIB.items()}


def of_arch(arch: str) -> Limits | None:
    """The limits that every product of `arch` has; None where they aren't known to be the same."""
    return OF_ARCH.get(arch)
