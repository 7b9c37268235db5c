"""What every search offers, and the searches there are."""

from __future__ import annotations

from typing import TYPE_CHECKING
from typing import Protocol
from typing import runtime_checkable

from lfbo_aot.search.lfbo import LFBOPatternSearch
from lfbo_aot.search.options import LFBOOptions
from lfbo_aot.search.pattern_search import PatternSearch
from lfbo_aot.search.random_search import RandomSearch

if TYPE_CHECKING:
    from lfbo_aot.search.space import Point
    from lfbo_aot.search.trial import Trial

__all__ = ["LFBOOptions", "LFBOPatternSearch", "Optimizer", "PatternSearch", "RandomSearch"]


@runtime_checkable
class Optimizer(Protocol):
    """A search that proposes points and learns from trials; it doesn't know who runs them.

    It is deterministic in its space, seed, options, context and peers, and in the calls of `ask`
    and `tell`. Every point that `ask` gives must be told in the end, a lost one as a failure.
    """

    def ask(self, n: int = 1) -> list[Point]:
        """Up to `n` points never asked or told before; fewer, or none, if there is nothing to try."""

    def tell(self, trial: Trial) -> None:
        """Take in a result, in any order; of a point never asked, too. ValueError if it doesn't fit."""

    @property
    def done(self) -> bool:
        """Whether nothing is outstanding and `ask` won't give a point again."""

    @property
    def thinking_s(self) -> float:
        """Seconds spent in `ask` so far: in fitting and proposing. Nothing is decided by it."""

    @property
    def best(self) -> Trial | None:
        """The fastest trial that was timed in full."""

    @property
    def outstanding(self) -> tuple[Point, ...]:
        """The points asked and not told yet, in the order they were asked."""

    def top(self, k: int) -> list[Trial]:
        """The fastest `k` trials that were timed in full, fastest first; duplicates left out."""
