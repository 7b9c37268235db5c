"""How much slower or faster a device has become since a bucket's search began."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from dataclasses import field

_SAMPLES = 3  # readings that a state of the device is told from
_NOISE = 0.02  # the share by which such readings differ without any drift


@dataclass(slots=True)
class Drift:
    """Told readings of one and the same config, says what other readings are to be divided by.

    Clocks follow temperature and power, so a config that is measured a minute later may look a few
    per cent slower than it is. The median of the last three readings is held against that of the
    first three; what is within the noise of such medians counts as none.
    """

    _first: list[float] = field(default_factory=list)
    _last: list[float] = field(default_factory=list)

    def tell(self, reading_us: float) -> None:
        if len(self._first) < _SAMPLES:
            self._first.append(reading_us)
        self._last = [*self._last, reading_us][-_SAMPLES:]

    @property
    def factor(self) -> float:
        if len(self._first) < _SAMPLES:
            return 1.0
        ratio = statistics.median(self._last) / statistics.median(self._first)
        return ratio if abs(ratio - 1.0) > _NOISE else 1.0
