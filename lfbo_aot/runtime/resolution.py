"""The answer to a look-up: the config, and how it was found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from typing import Any

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


@dataclass(frozen=True, slots=True)
class Resolution:
    """A config and how it was found.

    `config` is read-only; it is empty (and false) where `status` is `default`: the caller then takes
    Helion's own default. An entry that says that the default is the winner is `exact`, and its
    config spells the default out.
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
