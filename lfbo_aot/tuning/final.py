"""The final choice among a bucket's best: by interleaved, paired measurement, never by search logs.

Readings taken during a search flatter by several per cent, and dozens of configs lie within that.
So the best few and the default are measured in turn, round by round; what drifts between rounds
drifts for all of them, and ratios within a round don't see it.

An entry answers for a whole box of shapes, so the choice looks at several of them: the tuning point
and the probe points, each with the default config that Helion has there.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING
from typing import Any

from lfbo_aot.registry.buckets import part_text
from lfbo_aot.tuning.regret import PointReadings
from lfbo_aot.tuning.regret import contestants
from lfbo_aot.tuning.regret import paired
from lfbo_aot.tuning.regret import together
from lfbo_aot.tuning.regret import usable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lfbo_aot.tuning.devices.device import Config
    from lfbo_aot.tuning.devices.device import FinalReading
    from lfbo_aot.tuning.regret import Contestant
    from lfbo_aot.tuning.regret import Ratio

PROBE_SLACK = 0.05
"""Being slower than the default by up to this share at a probe point is no reason against a config
whose worst regret is the least. On an H200 a slack of 1 % left buckets with a default that was 12 %
slower than the best at one probe point, as whatever was faster there lost 2 % at another."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The winner of a bucket; latencies, spread and resources are those at its tuning point."""

    config: Config
    """Where the default won: the tuning point's."""
    latency_us: float
    default_us: float | None
    """None where the default doesn't run."""
    is_default: bool
    """Whether Helion's default is to be served, at each shape its own."""
    spread: float
    near_tie: bool
    alternates: tuple[Config, ...]
    resources: dict[str, int]
    note: str = ""
    probes: tuple[dict[str, Any], ...] = ()
    """For each probe point `shape`, `latency_us` and `regret` of what won, and `default_us` of that
    point's own default; None for what doesn't run there."""


def choose(readings: Sequence[FinalReading], default: Config, alternates: int = 3) -> Choice | None:
    """The winner of interleaved readings at one point; None where none of them ran.

    The default wins unless another one is faster by more than the noise of their paired ratios.
    """
    return choose_for_bucket([PointReadings({}, default, readings)], alternates)


def choose_for_bucket(points: Sequence[PointReadings], alternates: int = 3) -> Choice | None:
    """The winner of a bucket that was measured at its tuning point, the first, and at probe points.

    It is what has the least worst-case regret (against the best reading at each point) among what
    runs at all points and is slower than Helion's default at none: at the tuning point beyond the
    noise, at a probe point beyond the noise and `PROBE_SLACK`. If its mean ratio to the default over
    the points isn't under 1 by more than the noise, the default wins. The default is a contestant
    with each point's own default config.

    Points where nothing ran tell nothing apart and are left out, with a note. Where the default
    fails at one of the others, it can't win while a finalist runs at all of them, even a finalist
    that is slower where the default runs. None where nothing ran at the tuning point, or where only
    finalists did that fail at a probe point: there they may give wrong results unnoticed.
    """
    live = [point for point in points if point.timed]
    if not live or live[0] is not points[0]:
        return None
    ranked = contestants(live)
    winner = _winner(ranked, live)
    reading = None if winner is None else winner.at[0]
    if winner is None or reading is None:
        return None
    others = [c for c in ranked if c is not winner and c.runs]
    tuning = live[0]
    default = tuning.of(None)
    config = tuning.default if winner.config is None else winner.config
    spare = [tuning.default if c.config is None else c.config for c in others if _is_one(c, live)]
    return Choice(
        config=config,
        latency_us=middle_us(reading),
        default_us=middle_us(default) if default is not None else None,
        is_default=winner.config is None,
        spread=round(spread_of(reading.samples_us), 5),
        near_tie=any(all(r.even for r in _ratios(c, winner)) for c in others),
        alternates=tuple(c for c in spare if c != config)[:alternates],
        resources=dict(reading.resources),
        note="; ".join(filter(None, map(_note, points))),
        probes=tuple(_probe(p, live, winner) for p in points[1:]),
    )


def _winner(ranked: Sequence[Contestant], points: Sequence[PointReadings]) -> Contestant | None:
    default = next((c for c in ranked if c.config is None), None)
    whole = [c for c in ranked if c.runs]
    safe = [c for c in whole if not _slower_somewhere(c, points)]
    best = next(iter(safe or whole), default)
    if default is None or best is None or not default.runs:
        return best
    ratio = together(_ratios(best, default))
    return best if 1.0 - ratio.middle > ratio.noise else default


def _slower_somewhere(contestant: Contestant, points: Sequence[PointReadings]) -> bool:
    """Whether it is slower than the default at a point where both run, by as much as counts there."""
    for at, (ours, point) in enumerate(zip(contestant.at, points, strict=True)):
        theirs = point.of(None)
        if ours is None or theirs is None:
            continue
        ratio = paired(ours, theirs)
        # `points` begins with the tuning point.
        if ratio.slower and (at == 0 or ratio.middle - 1.0 > PROBE_SLACK):
            return True
    return False


def _ratios(contestant: Contestant, base: Contestant) -> list[Ratio]:
    """At each point where both run."""
    pairs = zip(contestant.at, base.at, strict=True)
    return [paired(ours, theirs) for ours, theirs in pairs if ours and theirs]


def _is_one(contestant: Contestant, points: Sequence[PointReadings]) -> bool:
    """Whether one config makes it, so that it can be an alternate."""
    return contestant.config is not None or all(p.default == points[0].default for p in points)


def _probe(
    point: PointReadings, live: Sequence[PointReadings], winner: Contestant
) -> dict[str, Any]:
    """What an entry holds of a probe point."""
    at = next((i for i, p in enumerate(live) if p is point), None)
    reading = None if at is None else winner.at[at]
    default = point.of(None)
    return {
        "shape": dict(point.shape),
        "latency_us": middle_us(reading) if reading else None,
        "default_us": middle_us(default) if default else None,
        "regret": round(winner.regret[at], 5) if reading and at is not None else None,
    }


def _note(point: PointReadings) -> str:
    """What kept the default, or everything, from running at a point; empty where nothing did."""
    broken = next((r for r in point.readings if r.config == point.default and not usable(r)), None)
    where = " ".join(f"{name}={part_text(value)}" for name, value in point.shape.items())
    place = f" at {where}" if where else ""
    if point.timed:
        why = broken.error or "no reading" if broken else ""
        return f"the default config doesn't run{place}: {why}" if why else ""
    errors = [r.error for r in (broken, *point.readings) if r and r.error]
    return f"nothing runs{place}: {errors[0] if errors else 'no reading'}"


def middle_us(reading: FinalReading) -> float:
    """The latency that an entry holds, of samples of which there are some."""
    return round(statistics.median(reading.samples_us), 4)


def spread_of(samples: Sequence[float]) -> float:
    """The middle half's width over the median."""
    if len(samples) < 4:  # noqa: PLR2004 - quartiles need as many
        return (max(samples) - min(samples)) / statistics.median(samples)
    low, middle, high = statistics.quantiles(samples, n=4)
    return (high - low) / middle
