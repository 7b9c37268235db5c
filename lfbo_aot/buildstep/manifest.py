"""The manifest of a built package, and the words about a build: what was done, and why."""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import TYPE_CHECKING
from typing import Any

from lfbo_aot.buildstep.ask import KEPT
from lfbo_aot.buildstep.ask import MISSING
from lfbo_aot.buildstep.ask import TUNED
from lfbo_aot.database.text import dump_page

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Mapping

    from lfbo_aot.buildstep.outcome import Outcome

SCHEMA = 1
_SHOWN = 6


def manifest(out: Outcome) -> bytes:
    """The file `manifest.json`: equal bytes for equal outcomes, whatever the machine is called."""
    data = {
        "schema": SCHEMA,
        "package": out.package,
        "version": out.version,
        "tune": out.tune,
        "archs": list(out.archs),
        "enumerated": out.enumerated,
        "tuned_on": out.tuned_on,
        "notes": [*out.notes, *out.problems],
        "keys": _keys(out),
        "left_out": _by(out.left_out),
        "files": {
            name: "sha256:" + hashlib.sha256(out.files[name]).hexdigest()
            for name in sorted(out.files)
        },
    }
    return dump_page(data).encode()


def _keys(out: Outcome) -> dict[str, Any]:
    """For each arch and kernel: how many keys were kept, and which were tuned or are missing."""
    found: dict[str, Any] = {}
    for row in out.rows:
        kernel = found.setdefault(row.arch, {}).setdefault(
            row.kernel, {KEPT: 0, TUNED: {}, MISSING: {}}
        )
        if row.status == KEPT:
            kernel[KEPT] += 1
        else:
            kernel[row.status].setdefault(row.why, []).append(row.bucket)
    return found


def _by(rows: Iterable[tuple[str, str, str, str]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for arch, kernel_id, key, why in rows:
        found.setdefault(arch, {}).setdefault(kernel_id, {}).setdefault(why, []).append(key)
    return found


def summary(out: Outcome) -> str:
    """A few lines on a build, for its one warning."""
    archs = ", ".join(out.archs) or "no arch"
    counts = [f"{len(out.of(KEPT))} kept"]
    if out.of(TUNED):
        where = f" on {out.tuned_on}" if out.tuned_on else " by an earlier build"
        counts.append(f"{len(out.of(TUNED))} tuned{where}")
    if out.of(MISSING):
        counts.append(f"{len(out.of(MISSING))} missing")
    lines = [f"lfbo-aot: the tuned database of {out.package} ({archs}): {', '.join(counts)}"]
    if out.editable:
        lines.append(
            "an editable install serves the checkout's database as it is, and tunes nothing; "
            "`lfbo-aot tune --into` adds to it"
        )
    lines += _missing(out)
    if out.left_out:
        reasons = Counter((arch, kernel, why) for arch, kernel, _, why in out.left_out)
        lines += _few([f"left out: {n} of {k} on {a}: {w}" for (a, k, w), n in reasons.items()])
    lines += _few([f"damaged: {problem}" for problem in out.problems])
    lines += out.notes
    if not out.enumerated:
        lines += [f"tried {tried}" for tried in out.tried]
    return "\n  ".join(lines)


def _missing(out: Outcome) -> list[str]:
    reasons: dict[tuple[str, str, str], list[str]] = {}
    for row in out.of(MISSING):
        reasons.setdefault((row.arch, row.kernel, row.why), []).append(row.bucket)
    lines = []
    for (arch, kernel, why), buckets in reasons.items():
        which = buckets[0] if len(buckets) == 1 else f"{len(buckets)} buckets"
        lines.append(f"missing: {kernel} on {arch}, {which}: {why}")
    return _few(lines)


def _few(lines: list[str]) -> list[str]:
    more = len(lines) - _SHOWN
    return lines if more <= 0 else [*lines[:_SHOWN], f"and {more} more such lines"]


def refusal(out: Outcome) -> str:
    """Why a build that `require`s everything fails, and what to do."""
    lines = [summary(out)]
    if not out.enumerated and out.tried:
        lines.append(
            "tune=require needs an interpreter with torch and Helion: "
            "set LFBO_AOT_PYTHON to one that has them"
        )
    else:
        lines.append("tune=require ships nothing incomplete. What was tuned is kept: build again")
    return "\n  ".join(lines)


def told(manifest: Mapping[str, Any]) -> dict[str, Any] | None:
    """What the manifest of a built package says of its build, in short; None for any other one.

    `missing` and `left_out` count keys by reason.
    """
    if not isinstance(manifest.get("keys"), dict) or "tune" not in manifest:
        return None
    kernels = [kernel for arch in manifest["keys"].values() for kernel in arch.values()]
    missing: Counter[str] = Counter()
    for kernel in kernels:
        missing.update({why: len(buckets) for why, buckets in kernel[MISSING].items()})
    left_out: Counter[str] = Counter()
    for arch in manifest["left_out"].values():
        for kernel in arch.values():
            left_out.update({why: len(keys) for why, keys in kernel.items()})
    return {
        "package": manifest["package"],
        "tune": manifest["tune"],
        "archs": manifest["archs"],
        "enumerated": manifest["enumerated"],
        "tuned_on": manifest["tuned_on"],
        "kept": sum(kernel[KEPT] for kernel in kernels),
        "tuned": sum(len(buckets) for kernel in kernels for buckets in kernel[TUNED].values()),
        "missing": dict(missing),
        "left_out": dict(left_out),
        "notes": manifest["notes"],
    }


def told_lines(build: Mapping[str, Any]) -> list[str]:
    """`told` as lines of text."""
    archs = ", ".join(build["archs"]) or "no arch"
    on = f" on {build['tuned_on']}" if build["tuned_on"] else ""
    missing = sum(build["missing"].values())
    head = f"built for {archs} with tune={build['tune']}: {build['kept']} kept, "
    lines = [f"{head}{build['tuned']} tuned{on}, {missing} missing"]
    lines += [f"missing {n}: {why}" for why, n in build["missing"].items()]
    lines += [f"left out {n}: {why}" for why, n in build["left_out"].items()]
    return [*lines, *build["notes"]]
