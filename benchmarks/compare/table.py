"""The figures as Markdown, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING
from typing import Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_HEAD = (
    "| kernel | shape | {theirs} | ours | times less | default us | {theirs} us | ours us "
    "| ours / {theirs} (95 %) | within 1 % after |"
)
_LINE = "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
_TITLES = {"helion": "LFBOTreeSearch", "pattern": "PatternSearch"}


def markdown(found: Mapping[str, Any]) -> str:
    """Tables of both comparisons, and what holds for all kernels below them."""
    when, where = ", ".join(found["dates"]), ", ".join(found["devices"])
    parts = [f"{when}; {where}; {_versions(found)}"]
    for theirs, title in _TITLES.items():
        lines = _table(found, theirs, title)
        if lines:
            parts.append("\n".join(lines))
    parts.append("\n".join(_whole(found)))
    if found["missing"]:
        parts.append("Not measured yet: " + ", ".join(found["missing"]) + ".")
    return "\n\n".join(parts)


def _versions(found: Mapping[str, Any]) -> str:
    return "; ".join(", ".join(f"{k} {v}" for k, v in one.items()) for one in found["versions"])


def _table(found: Mapping[str, Any], theirs: str, title: str) -> list[str]:
    rows = [row for row in found["kernels"] if row[f"{theirs}_s"] is not None]
    if not rows:
        return []
    key = f"ours_over_{theirs}"
    lines = [_HEAD.format(theirs=title), _LINE]
    for row in rows:
        size = " x ".join(str(v) for v in row["shape"].values() if isinstance(v, int))
        cells = [
            row["kernel"],
            size,
            _seconds(row[f"{theirs}_s"]) + ("" if row[f"{theirs}_ended"] == "finished" else "+"),
            _seconds(row["ours_s"]),
            _text(row[f"{key}_time_ratio"], "{:.1f}x"),
            *(_text(row[f"{name}_us"], "{:.1f}") for name in ("default", theirs, "ours")),
            _interval(row[f"{key}_latency"]),
            _seconds(row[f"{key}_within_1pct_s"]),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    figures = found if theirs == "helion" else found["pattern"]
    limits = [figures[f"latency_ratio_{name}"] for name in ("geomean", "lower95", "upper95")]
    limits_text = _interval(None if limits[0] is None else limits)
    mean = _text(figures["time_ratio_geomean"], "{:.1f}x")
    lines.append(f"| geometric mean | | | | {mean} | | | | {limits_text} | |")
    return lines


def _whole(found: Mapping[str, Any]) -> list[str]:
    rows = {
        "busy from the first binary to the end": _text(found["busy"], "{:.1%}"),
        "a ready binary waited while the GPU was idle": _seconds(found["gpu_waited_s"]),
        "thinking, of the wall-clock": _text(found["thinking"], "{:.1%}"),
        "eight buckets: a later one over the first": _text(found["sweep_ratio"], "{:.2f}"),
        "worst regret against tuning alone": _text(found["sweep_regret"], "{:.2%}"),
        "answers that differ between two tunes": _text(found["flip_rate"], "{:.1%}"),
        "a tuner that stops at once, over LFBOTreeSearch": _text(
            found["control"]["latency_ratio_geomean"], "{:.3f} in latency"
        ),
    }
    return ["| | |", "| --- | ---: |", *(f"| {what} | {value} |" for what, value in rows.items())]


def _text(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def _seconds(value: float | None) -> str:
    return _text(value, "{:.1f} s")


def _interval(values: list[float] | None) -> str:
    if values is None:
        return "-"
    return f"{values[0]:.3f} ({values[1]:.3f} to {values[2]:.3f})"
