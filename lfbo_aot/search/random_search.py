"""Random search, the baseline that every other must beat."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lfbo_aot.search.ask_tell import Search

if TYPE_CHECKING:
    from lfbo_aot.search.space import Point
    from lfbo_aot.search.trial import Trial


class RandomSearch(Search):
    """The default, the seeds, then random points until the budget or the space is used up."""

    def _propose(self) -> tuple[Point, tuple[int, int]] | None:
        drawn = self._random()
        return None if drawn is None else (drawn, (-1, 0))

    def _told(self, trial: Trial, owner: tuple[int, int] | None) -> None:
        pass

    def _ended(self) -> bool:
        return self._drained
