"""Recorded trials, read into search spaces and trials: `recordings(path)`."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from typing import Any

from lfbo_aot.search import Choice
from lfbo_aot.search import Integer
from lfbo_aot.search import ListOf
from lfbo_aot.search import Permutation
from lfbo_aot.search import PowerOfTwo
from lfbo_aot.search import Space
from lfbo_aot.search import Trial

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lfbo_aot.search import Tunable

DATA = Path(__file__).parent / "data" / "h200_trials.jsonl.gz"
CUT_LAUNCHES = 3  # a config clearly slower than the best was launched no further

_ROLES = {"BlockSizeFragment": "block", "NumWarpsFragment": "warps", "PowerOfTwoFragment": ""}
_NAMES = {
    "BlockSizeFragment": "block",
    "NumWarpsFragment": "warps",
    "PowerOfTwoFragment": "power",
    "IntegerFragment": "integer",
    "EnumFragment": "choice",
    "BooleanFragment": "flag",
    "PermutationFragment": "order",
    "ListOf": "list",
}


@dataclass(frozen=True, slots=True)
class Recording:
    """The trials of one kernel at one shape, in the order they were made."""

    kernel: str
    shape: Mapping[str, object]
    space: Space
    trials: tuple[Trial, ...]


def tunable(fragment: Mapping[str, Any], name: str) -> Tunable:
    """The tunable that a recorded Helion fragment describes; ValueError for an unknown type."""
    kind = fragment["type"]
    if kind in _ROLES:
        low, high = fragment["low"], fragment["high"]
        default = min(max(fragment["default_val"], low), high)
        return PowerOfTwo(name, low, high, default, _ROLES[kind])
    if kind == "IntegerFragment":
        return Integer(name, fragment["low"], fragment["high"], fragment["default_val"])
    if kind == "BooleanFragment":
        return Choice(name, (False, True), default=False)
    if kind == "EnumFragment":
        choices = tuple(fragment["search_choices"] or fragment["choices"])
        return Choice(name, choices, choices[0])
    if kind == "PermutationFragment":
        return Permutation(name, fragment["length"])
    if kind == "ListOf":
        inner: Any = tunable(fragment["inner"], "")
        return ListOf(name, inner, fragment["length"])
    msg = f"fragment {name!r} is of an unknown type {kind!r}"
    raise ValueError(msg)


def space(record: Mapping[str, Any]) -> Space:
    """The space of a `space` record; tunables are named by kind and place, as `3_integer`."""
    tunables = tuple(
        tunable(fragment, f"{at}_{_NAMES.get(fragment['type'], 'unknown')}")
        for at, fragment in enumerate(record["fragments"])
    )
    return Space(tunables, tuple(record["default"]))


def trial(record: Mapping[str, Any], in_space: Space) -> Trial:
    """The trial of a `trial` record, its point in canonical form."""
    ok = record["status"] == "ok"
    return Trial(
        point=in_space.canonical(record["flat"]),
        status=record["status"],
        latency_us=record["latency_ms"] * 1000.0 if ok else None,
        cut=ok and record["launches"] <= CUT_LAUNCHES,
        compile_s=record.get("compile_s"),
    )


def recordings(path: Path = DATA) -> tuple[Recording, ...]:
    """Every (kernel, shape) of the file, in the order of first mention."""
    spaces: dict[str, tuple[str, Mapping[str, object], Space]] = {}
    trials: dict[str, list[Trial]] = {}
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            record = json.loads(line)
            key = json.dumps([record["kernel"], record["shape"]])
            if record["record"] == "space":
                spaces.setdefault(key, (record["kernel"], record["shape"], space(record)))
            else:
                trials.setdefault(key, []).append(trial(record, spaces[key][2]))
    return tuple(
        Recording(kernel, shape, found, tuple(trials.get(key, ())))
        for key, (kernel, shape, found) in spaces.items()
    )


def space_records(path: Path = DATA) -> dict[str, Mapping[str, Any]]:
    """The `space` records by `kernel-AxBxC`, the sizes those of the shape."""
    found: dict[str, Mapping[str, Any]] = {}
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            record = json.loads(line)
            if record["record"] == "space":
                found.setdefault(pair_name(record["kernel"], record["shape"]), record)
    return found


def pair_name(kernel: str, shape: Mapping[str, object]) -> str:
    """`softmax-4096x2560` for a softmax of that size."""
    return f"{kernel}-" + "x".join(str(v) for v in shape.values() if isinstance(v, int))
