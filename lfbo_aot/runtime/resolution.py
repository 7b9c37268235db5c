"""The answer to a look-up: the config, how it was found, and all that was weighed on the way."""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import field
from typing import TYPE_CHECKING
from typing import Any
from typing import NamedTuple

from lfbo_aot.database.frozen import EMPTY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lfbo_aot.database.entry import Entry

EXACT = "exact"
SAME_ARCH = "same_arch"
IMPORTED = "imported"
TRANSFERRED = "transferred"
DEFAULT = "default"

SERVED_BY = {
    EXACT: ("exact", "compatible", "any"),
    SAME_ARCH: ("compatible", "any"),
    IMPORTED: ("compatible", "any"),
    TRANSFERRED: ("any",),
}
"""The policies that serve an answer of each status, best status first."""

HARD = "hard"
SOFT = "soft"
INFO = "info"

EQUAL = "equal"
DIFFERS = "differs"
UNCHECKED = "unchecked"

SERVED = "served"
REFUSED = "refused"
OUTRANKED = "outranked"
DAMAGED = "damaged"
NOTHING = "nothing held"


class Check(NamedTuple):
    """One thing that was compared between an entry and what was asked."""

    name: str
    """`source`, `settings.static_shapes`, `helion`, `layout`, `device`, `shared`, `policy` …"""
    entry: Any
    """What the entry says."""
    here: Any
    """What was asked, or holds for the device asked about; None where it isn't known."""
    verdict: str
    """`equal` (or within the limit), `differs`, or `unchecked`."""
    kind: str
    """What a difference does: `hard` forbids serving, `soft` makes it stale, `info` neither."""

    @property
    def forbids(self) -> bool:
        return self.verdict == DIFFERS and self.kind == HARD


@dataclass(frozen=True, slots=True)
class Considered:
    """A layer's part in an answer: an entry that was weighed, or why there was none."""

    layer: str
    path: str
    """The layer's folder."""
    outcome: str
    """`served`, `refused`, `outranked`, `damaged` or `nothing held`."""
    why: tuple[str, ...] = ()
    key: str = ""
    """The entry's; empty where the layer holds no box for the shape."""
    arch: str = ""
    entry: Entry | None = None
    status: str = ""
    fresh: bool | None = None
    pinned: bool = False
    checks: tuple[Check, ...] = ()


@dataclass(frozen=True, slots=True)
class Resolution:
    """A config and how it was found.

    `config` is read-only; it is empty (and false) where `status` is `default`: the caller then takes
    Helion's own default. An entry that says that the default is the winner is `exact`, and its
    config spells out the default at the shape that was tuned; a declared kernel's call takes the
    default at its own.
    """

    config: Mapping[str, Any] = EMPTY
    status: str = DEFAULT
    """`exact`, `same_arch`, `imported`, `transferred` or `default`."""
    fresh: bool | None = None
    """Whether versions agree; None where they weren't checked."""
    entry: Entry | None = None
    """What was served; None for `default`."""
    layer: str | None = None
    """The layer of the store that answered."""
    reasons: tuple[str, ...] = ()
    """What didn't fit, what wasn't checked, and why other entries weren't served."""
    key: str = ""
    """The key of the entry that was served, else the key that was looked up."""
    considered: tuple[Considered, ...] = field(default=(), repr=False, compare=False)
    """Every layer, and every entry whose box holds the shape, in the order looked at."""
