"""The stations of a device, handed out one by one; those of a GPU that is lost aren't any more."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Sequence

    from lfbo_aot.tuning.devices.device import Station


class Stations:
    """For any number of threads."""

    def __init__(self, stations: Sequence[Station]) -> None:
        self._free = deque(stations)
        self._left = len(stations)
        self._gone: set[int] = set()
        self._changed = threading.Condition()
        self.lost = ""
        """Why there is none left, or fewer than at first."""

    @contextlib.contextmanager
    def one(self) -> Iterator[Station | None]:
        """A station for the time inside; None where all are lost."""
        with self._changed:
            self._changed.wait_for(lambda: self._free or not self._left)
            station = self._free.popleft() if self._free else None
        try:
            yield station
        finally:
            with self._changed:
                if station is not None and id(station) not in self._gone:
                    self._free.append(station)
                self._changed.notify_all()

    def is_lost(self, station: Station) -> bool:
        """Whether this one is handed out no more."""
        with self._changed:
            return id(station) in self._gone

    def lose(self, station: Station, reason: str) -> None:
        """Hand this one out no more."""
        with self._changed:
            if id(station) not in self._gone:
                self._gone.add(id(station))
                self._left -= 1
            self.lost = self.lost or reason
            self._changed.notify_all()
