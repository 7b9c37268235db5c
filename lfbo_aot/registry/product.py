"""A product as a vendor's lists describe it: what the tables of known devices hold."""

from __future__ import annotations

from typing import NamedTuple


class Product(NamedTuple):
    """One product. None: no public source that this project could find says it."""

    arch: str
    name: str
    """Word for word what the driver reports, which torch.cuda.get_device_name shows."""
    sms: int | None = None
    """Multiprocessors or compute units of what the driver shows as one device."""
    memory_gib: int | None = None
    """As it is sold. Drivers report less: what ECC and firmware keep is left out."""
    l2_mib: int | None = None
    """As the driver reports it."""
    aliases: tuple[str, ...] = ()
    """Other names that drivers report for it. Two products may share one; then the
    multiprocessors and the memory tell which of them is meant."""
