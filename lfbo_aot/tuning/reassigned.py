"""An entry once its bucket is served by another config than its own best, or by that again."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import TYPE_CHECKING
from typing import Any

from lfbo_aot.database.frozen import thaw
from lfbo_aot.tuning.final import middle_us
from lfbo_aot.tuning.final import spread_of
from lfbo_aot.tuning.regret import paired

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lfbo_aot.database.entry import Entry
    from lfbo_aot.tuning.crossed import Crossed
    from lfbo_aot.tuning.devices.device import Config
    from lfbo_aot.tuning.regret import PointReadings

ALTERNATES = 3


def reassign(
    crossed: Crossed, config: Config | None, *, regret: float, configs: int, buckets: int
) -> Entry:
    """The bucket's entry with `config` (None: Helion's default), as it was measured in this race.

    `config` must have run at the tuning point. `regret` is the upper limit of what it costs over
    the bucket's own best, which leads the alternates and is named in `search.few`: one of `configs`
    configs for `buckets` buckets.
    """
    old, own, opened = crossed.part.entry, crossed.part.own, crossed.opened
    tuning = crossed.points[0]
    reading, default = tuning.of(config), tuning.of(None)
    if reading is None:
        msg = f"{crossed.part.bucket.key}: {config} didn't run"
        raise ValueError(msg)
    search = thaw(old.search)
    note = search.pop("few", {"note": old.note}).get("note")
    if config != own:
        search["few"] = {"configs": configs, "buckets": buckets, "own": own}
        if note:
            search["few"]["note"] = note
        note = "; ".join(filter(None, (_note(crossed, config, regret, configs, buckets), note)))
    served = opened.default if config is None else config
    return replace(
        old,
        config=served,
        default=config is None,
        alternates=_alternates(crossed, served),
        latency_us=middle_us(reading),
        default_us=None if default is None else middle_us(default),
        spread=round(spread_of(reading.samples_us), 5),
        near_tie=_near_tie(crossed.points, config),
        probes=_probes(crossed, config),
        resources=dict(reading.resources),
        space=opened.space.digest,
        layout=opened.layout,
        versions=opened.versions,
        policy=opened.policy,
        search=search,
        measured=dt.datetime.now(tz=dt.timezone.utc).date().isoformat(),
        note=note or None,
    )


def _note(
    crossed: Crossed, config: Config | None, regret: float, configs: int, buckets: int
) -> str:
    plural = "" if configs == 1 else "s"
    text = f"one of {configs} config{plural} for {buckets} buckets: "
    text += f"at most {percent(regret)} over its own best"
    slower = [r for p in crossed.points if (r := _over_default(p, config)) is not None]
    if slower:
        text += f", {percent(max(slower))} slower than Helion's default"
        text += "" if len(crossed.points) == 1 else " at worst"
    return text


def _over_default(point: PointReadings, config: Config | None) -> float | None:
    """By how much it is slower than the default there; None where it isn't, beyond the noise."""
    ours, default = point.of(config), point.of(None)
    if ours is None or default is None:
        return None
    ratio = paired(ours, default)
    return ratio.middle - 1.0 if ratio.slower else None


def percent(share: float) -> str:
    """`1.2 %`"""
    return f"{100 * share:.1f} %"


def _near_tie(points: Sequence[PointReadings], config: Config | None) -> bool:
    """Whether another of the race lies within the noise at all points."""
    served = [p.of(config) for p in points]
    others = [r.config for r in points[0].timed if r is not served[0]]
    return any(
        all(
            ours is not None and theirs is not None and paired(theirs, ours).even
            for ours, theirs in zip(served, [p.of(other) for p in points], strict=True)
        )
        for other in others
    )


def _alternates(crossed: Crossed, served: Config) -> tuple[Config, ...]:
    """The bucket's own best, then what was there.

    Where that is the default, and another config at each point, no config stands for it.
    """
    own, first = crossed.part.own, crossed.points[0].default
    if own is None and all(p.default == first for p in crossed.points):
        own = first
    found: list[Config] = []
    for config in ([] if own is None else [own]) + [thaw(c) for c in crossed.part.entry.alternates]:
        if config != served and config not in found:
            found.append(config)
    return tuple(found[:ALTERNATES])


def _probes(crossed: Crossed, config: Config | None) -> list[dict[str, Any]]:
    """The entry's rows, those of points that were measured again anew."""
    anew = [_row(point, config) for point in crossed.points[1:]]
    rows = [thaw(row) for row in crossed.part.entry.probes]
    return [next((new for new in anew if new["shape"] == old["shape"]), old) for old in rows]


def _row(point: PointReadings, config: Config | None) -> dict[str, Any]:
    reading, default = point.of(config), point.of(None)
    (over,) = point.over_best([reading])
    return {
        "shape": dict(point.shape),
        "latency_us": None if reading is None else middle_us(reading),
        "default_us": None if default is None else middle_us(default),
        "regret": None if reading is None else round(over - 1.0, 5),
    }
