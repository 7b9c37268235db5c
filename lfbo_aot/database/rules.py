"""Rules: which of several entries for one key, or declarations of one kernel, is kept.

All of them look at the whole set, so the order of the databases doesn't matter.

A pinned entry is kept before others under both: it is someone's choice.

`newest`  by status (measured, then imported, then transferred: what was timed here is never given
          up for what wasn't), then by the day measured, then by latency. A total order, so that
          merging in steps gives what merging at once does.
`best`    by status; then those that fit the declaration that is kept, as the kernel would refuse
          the others; then the fastest of those that can be compared with the newest one. Latencies
          are compared only where policy, source, settings and layout are equal. In steps it gives
          the same where all can be compared.
`error`   none: what differs is a conflict.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from typing import Any

from lfbo_aot.database.entry import STATUSES
from lfbo_aot.database.frozen import thaw

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lfbo_aot.database.declaration import Declaration
    from lfbo_aot.database.entry import Entry

BEST = "best"
NEWEST = "newest"
ERROR = "error"
RULES = (BEST, NEWEST, ERROR)


def choose(rule: str, entries: Sequence[Entry], declaration: Declaration) -> Entry:
    """The one of `entries` that the rule keeps; equal entries count as one."""
    if rule == NEWEST:
        return max(entries, key=_age)
    rank = max(_standing(entry, declaration) for entry in entries)
    candidates = [entry for entry in entries if _standing(entry, declaration) == rank]
    newest = max(candidates, key=_age)
    comparable = [entry for entry in candidates if comparison(entry) == comparison(newest)]
    return max(comparable, key=lambda entry: (-entry.latency_us, *_age(entry)))


def why(rule: str, kept: Entry, other: Entry, declaration: Declaration) -> str:
    """Why the rule keeps the one and not the other, with both values."""
    if kept.pinned != other.pinned:
        return "pinned, the other isn't"
    if kept.status != other.status:
        return f"{kept.status}, not {other.status}"
    if rule == BEST:
        if fits(kept, declaration) != fits(other, declaration):
            return "of the declared source and settings, the other isn't"
        if comparison(kept) == comparison(other) and kept.latency_us != other.latency_us:
            return f"{kept.latency_us:.2f} us, not {other.latency_us:.2f} us"
    if kept.measured != other.measured:
        day = f"of {kept.measured}, not {other.measured}"
        return day if rule == NEWEST else f"{day}; {_differing(kept, other)}"
    if kept.latency_us != other.latency_us and comparison(kept) == comparison(other):
        return f"of one day; {kept.latency_us:.2f} us, not {other.latency_us:.2f} us"
    return "of one day; nothing else tells which is better"


def choose_declaration(claims: Sequence[tuple[Declaration, str]]) -> Declaration:
    """The declaration under which the newest entry was measured; each comes with that day."""
    return max(claims, key=lambda claim: (claim[1], claim[0].dumps()))[0]


def fits(entry: Entry, declaration: Declaration) -> bool:
    """Whether the entry is of the source and the settings that are declared."""
    return entry.source == declaration.source and thaw(entry.settings) == thaw(declaration.settings)


def comparison(entry: Entry) -> str:
    """What two entries must share for their latencies to be compared."""
    parts = [entry.source, entry.settings, entry.policy, entry.layout]
    return _text(parts)


def _standing(entry: Entry, declaration: Declaration) -> tuple[bool, int, bool]:
    return entry.pinned, -STATUSES.index(entry.status), fits(entry, declaration)


def _age(entry: Entry) -> tuple[Any, ...]:
    """Newest last; of one day, what can't be compared is in a fixed order."""
    text = _text(entry.to_json())
    status = -STATUSES.index(entry.status)
    return entry.pinned, status, entry.measured, comparison(entry), -entry.latency_us, text


def _differing(one: Entry, other: Entry) -> str:
    names = ("source", "settings", "policy", "layout")
    differing = [name for name in names if thaw(getattr(one, name)) != thaw(getattr(other, name))]
    return f"latencies of another {', '.join(differing)} aren't compared" if differing else "newer"


def _text(data: Any) -> str:
    return json.dumps(thaw(data), sort_keys=True)
