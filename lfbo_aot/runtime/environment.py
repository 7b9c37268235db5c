"""The environment of a look-up: what the caller knows of the kernel and the libraries it runs with.

A look-up checks an entry against what is given, and nothing else: none of it is read from the
process behind the caller's back.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from typing import Any

from lfbo_aot.runtime.resolution import DIFFERS
from lfbo_aot.runtime.resolution import EQUAL
from lfbo_aot.runtime.resolution import HARD
from lfbo_aot.runtime.resolution import SOFT
from lfbo_aot.runtime.resolution import UNCHECKED
from lfbo_aot.runtime.resolution import Check

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Mapping

    from lfbo_aot.database.entry import Entry
    from lfbo_aot.registry.limits import Limits

# Epoch and release of a PEP 440 version; what follows (pre, post, dev, local) isn't its base.
_BASE = re.compile(r"\s*v?(?:([0-9]+)!)?([0-9]+(?:\.[0-9]+)*)", re.IGNORECASE)
SETTINGS = "settings"
VERSIONS = "versions"


@dataclass(frozen=True, slots=True)
class Environment:
    """What entries are checked against; None stands for what isn't known, and isn't checked."""

    source: str | None = None
    """Digest of the kernel's source. Hard: an entry of another one isn't served."""
    settings: Mapping[str, Any] | None = None
    """Helion's settings that change code. Hard."""
    versions: Mapping[str, str] | None = None
    """Of helion, triton, torch, runtime, from the loaded libraries. Soft: others are stale."""
    limits: Limits | None = None
    """Of the device asked about, as its driver reports them: for one that isn't among the known."""


def check(entry: Entry, environment: Environment) -> Iterator[Check]:
    """What is compared between `entry` and `environment`, field by field.

    A part that isn't given is one `unchecked`, called `source`, `settings` or `versions`.
    """
    here = environment.source
    if here is None:
        yield Check("source", entry.source, None, UNCHECKED, HARD)
    else:
        yield Check("source", entry.source, here, _verdict(entry.source == here), HARD)
    if environment.settings is None:
        yield Check(SETTINGS, entry.settings, None, UNCHECKED, HARD)
    else:
        yield from _settings(entry.settings, environment.settings)
    if environment.versions is None:
        yield Check(VERSIONS, entry.versions, None, UNCHECKED, SOFT)
    else:
        for name, version in sorted(environment.versions.items()):
            stored = entry.versions.get(name)
            same = stored is not None and (
                stored == version or comparable_version(stored) == comparable_version(version)
            )
            yield Check(name, stored, version, _verdict(same), SOFT)


def comparable_version(text: str) -> tuple[int, tuple[int, ...]] | str:
    """What of a version counts: epoch and release, as PEP 440 compares them (1.5 is 1.5.0).

    A text that isn't a version counts as it is.
    """
    match = _BASE.match(text)
    if match is None:
        return text.strip()
    release = [int(part) for part in match[2].split(".")]
    while len(release) > 1 and release[-1] == 0:
        release.pop()
    return int(match[1] or 0), tuple(release)


def _settings(stored: Mapping[str, Any], here: Mapping[str, Any]) -> Iterator[Check]:
    names = [*stored, *(name for name in here if name not in stored)]
    for name in names:
        same = stored.get(name) == here.get(name) and (name in stored) == (name in here)
        value, own = stored.get(name), here.get(name)
        yield Check(f"{SETTINGS}.{name}", value, own, _verdict(same), HARD)


def _verdict(same: bool) -> str:
    return EQUAL if same else DIFFERS
