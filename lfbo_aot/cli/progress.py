"""What a person sees while tuning: one live line on a terminal, a line every ten seconds elsewhere."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType
    from typing import TextIO

    from typing_extensions import Self

    from lfbo_aot.tuning.plan import Item
    from lfbo_aot.tuning.run import Result
    from lfbo_aot.tuning.task import Step

EVERY_S = 10.0


class OutputClosed(KeyboardInterrupt):
    """Nobody reads the output any more, as after `| head -1`."""


def show(text: str, out: TextIO) -> None:
    """Print a line now. Raises OutputClosed where nobody reads it."""
    try:
        print(text, file=out, flush=True)
    except BrokenPipeError:
        drop_output(out)
        raise OutputClosed from None


def drop_output(out: TextIO) -> None:
    """Let nothing more go to an output that is closed, what waits to be written included."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())


def bucket_text(item: Item) -> str:
    """`m=1025..4096 n=5120 dtype=bfloat16`"""
    return item.bucket.key.replace("|", " ")


def gain_text(latency_us: float, default_us: float | None) -> str:
    """`25.70 us (default 34.00, 1.32x)`"""
    if default_us is None:
        return f"{_us(latency_us)} us"
    return f"{_us(latency_us)} us (default {_us(default_us)}, {default_us / latency_us:.2f}x)"


def _us(value: float) -> str:
    return f"{value:.2f}" if value < 1000 else f"{value:.0f}"  # noqa: PLR2004 - four digits


def result_text(result: Result) -> str:
    """One line on what became of a bucket."""
    head = f"{result.status:10} {result.item.spec.name} {bucket_text(result.item)}"
    if result.entry is None:
        return f"{head}: {result.reason}"
    entry = result.entry
    if entry.default:
        what = f"{gain_text(entry.latency_us, entry.default_us)}, the default is the best found"
    else:
        what = gain_text(entry.latency_us, entry.default_us)
    trials = f"{entry.search.get('trials', 0)} trials"
    if recalled := entry.search.get("recalled"):
        trials += f" and {recalled} of earlier runs"
    return f"{head}: {what}, {trials} in {result.seconds:.0f} s"


def step_text(step: Step) -> str:
    """One line on where a search stands."""
    parts = [f"{step.trials} trials"]
    if step.best_us is not None:
        parts.append("best " + gain_text(step.best_us, step.default_us))
    if step.failures:
        counts = ", ".join(f"{n} {status}" for status, n in sorted(step.failures.items()))
        parts.append(f"{sum(step.failures.values())} failed ({counts})")
    if step.stage == "final":
        parts.append("measuring the best again")
    return ", ".join(parts)


class LineWatcher:
    """Plain lines: for pipes, logs and CI."""

    def __init__(self, budget_s: float | None, *, quiet: bool = False) -> None:
        self.finished = 0
        self._out = sys.stderr if quiet else sys.stdout
        self._ends = None if budget_s is None else time.monotonic() + budget_s
        self._head = ""
        self._last = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

    def begins(self, item: Item, number: int, total: int) -> None:
        self._head = f"[{number}/{total}] {item.spec.name} {bucket_text(item)}"
        self._last = time.monotonic()
        self._show(f"{self._head}: starting")

    def steps(self, step: Step) -> None:
        now = time.monotonic()
        if now - self._last >= EVERY_S:
            self._last = now
            self._show(f"{self._head}: {step_text(step)}{self._left()}")

    def ends(self, result: Result) -> None:
        self.finished += result.status == "tuned"
        self._show(result_text(result))

    def _left(self) -> str:
        if self._ends is None:
            return ""
        return f", {max(0.0, self._ends - time.monotonic()):.0f} s of the budget left"

    def _show(self, text: str) -> None:
        show(text, self._out)


class LiveWatcher(LineWatcher):
    """A line that changes in place, with finished buckets above it: for a terminal."""

    def __init__(self, budget_s: float | None, *, quiet: bool = False) -> None:
        super().__init__(budget_s, quiet=quiet)
        from rich.console import Console

        self._console = Console(file=self._out, highlight=False)
        self._status = self._console.status("starting the workers")

    def __enter__(self) -> Self:
        self._status.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._status.stop()

    def begins(self, item: Item, number: int, total: int) -> None:
        self._head = f"[{number}/{total}] {item.spec.name} {bucket_text(item)}"
        self._update(f"{self._head}: starting")

    def steps(self, step: Step) -> None:
        self._update(f"{self._head}: {step_text(step)}{self._left()}")

    def _update(self, text: str) -> None:
        from rich.text import Text

        self._status.update(Text(text))

    def _show(self, text: str) -> None:
        from rich.text import Text

        self._console.print(Text(text))


def make_watcher(budget_s: float | None, *, quiet: bool) -> LineWatcher:
    """The watcher that fits where the output goes. `quiet` keeps standard output for results."""
    out = sys.stderr if quiet else sys.stdout
    kind = LiveWatcher if out.isatty() else LineWatcher
    return kind(budget_s, quiet=quiet)
