"""The environment of a look-up: what the caller knows of the kernel and the libraries it runs with.

A look-up checks an entry against what is given, and nothing else: none of it is read from the
process behind the caller's back.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from typing import Any
from typing import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lfbo_aot.database.entry import Entry

# Epoch and release of a PEP 440 version; what follows (pre, post, dev, local) isn't its base.
_BASE = re.compile(r"\s*v?(?:([0-9]+)!)?([0-9]+(?:\.[0-9]+)*)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Environment:
    """What entries are checked against; None stands for what isn't known, and isn't checked."""

    source: str | None = None
    """Digest of the kernel's source. Hard: an entry of another one isn't served."""
    settings: Mapping[str, Any] | None = None
    """Helion's settings that change code. Hard."""
    versions: Mapping[str, str] | None = None
    """Of helion, triton, torch, runtime, from the loaded libraries. Soft: others are stale."""


class Verdict(NamedTuple):
    """How an entry fits an environment; `fresh` is None where versions weren't checked."""

    fresh: bool | None
    hard: tuple[str, ...]
    """What differs and forbids serving it, with both values."""
    soft: tuple[str, ...]
    """What differs and makes it stale, with both values."""
    unchecked: tuple[str, ...]
    """At most one text, which names what wasn't checked."""


def check(entry: Entry, environment: Environment) -> Verdict:
    """How `entry` fits, field by field."""
    hard: list[str] = []
    soft: list[str] = []
    skipped: list[str] = []
    if environment.source is None:
        skipped.append("source")
    elif environment.source != entry.source:
        hard.append(f"source: entry={entry.source} here={environment.source}")
    if environment.settings is None:
        skipped.append("settings")
    else:
        differing = _differing(entry.settings, environment.settings)
        hard += [f"settings: {text}" for text in differing]
    if environment.versions is None:
        skipped.append("versions")
    else:
        for name, here in sorted(environment.versions.items()):
            stored = entry.versions.get(name)
            if stored is None or comparable_version(stored) != comparable_version(here):
                soft.append(f"{name}: entry={stored} here={here}")
    fresh = None if environment.versions is None else not soft
    unchecked = (f"not checked: {', '.join(skipped)}",) if skipped else ()
    return Verdict(fresh, tuple(hard), tuple(soft), unchecked)


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


def _differing(stored: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    names = [*stored, *(name for name in here if name not in stored)]
    return [
        f"{name}: entry={stored.get(name)!r} here={here.get(name)!r}"
        for name in names
        if stored.get(name) != here.get(name) or (name in stored) != (name in here)
    ]
