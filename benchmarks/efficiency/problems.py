"""The problems: what a point's latency is, whether it fails, and how long it takes to compile.

Three for each recorded (kernel, shape): `pool`, the recorded configs themselves; `boosting` and
`gaussian`, models fitted to them. A problem's truth has no noise; `simulate` adds it to readings.
"""

from __future__ import annotations

import dataclasses
import pickle
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from platformdirs import user_cache_path

from benchmarks.efficiency.features import features
from benchmarks.efficiency.models import Known
from benchmarks.efficiency.models import Model
from benchmarks.efficiency.models import known
from benchmarks.efficiency.models import threshold
from benchmarks.recorded import pair_name
from benchmarks.recorded import recordings
from lfbo_aot.search import Condition
from lfbo_aot.search import Space

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from lfbo_aot.search import Point

KINDS = ("pool", "boosting", "gaussian")
TIMEOUT_S = 8.0  # compiles were killed then
VERSION = 4  # of what is cached

# Places of tunables that Helion ignores while its grid isn't persistent: unrolling, stages, buffers
# and flattening of the outermost loop, programs per multiprocessor, registers.
_PERSISTENT_ONLY = {
    "layer_norm": (2, 3, 4, 5, 12, 14),
    "softmax": (2, 3, 4, 5, 12, 14),
    "matmul": (5, 7, 9, 11, 19, 21),
}
_PERSISTENT = ("persistent_blocked", "persistent_interleaved")


@dataclass(frozen=True, slots=True)
class Truth:
    """What a point comes to: `latency_us` is None for one that fails."""

    latency_us: float | None
    status: str
    compile_s: float


def conditional(kernel: str, space: Space) -> Space:
    """The recorded space with the conditions that the project's adapter finds by asking Helion."""
    at = next(
        t.name
        for t in space.tunables
        if "persistent_blocked" in (getattr(t, "choices", None) or ())
    )
    names = [space.tunables[place].name for place in _PERSISTENT_ONLY[kernel]]
    conditions = tuple(Condition(name, at, _PERSISTENT) for name in names)
    return Space(space.tunables, space.default, conditions)


class Problem:
    """One search problem. `name` is `kernel-shape/kind`."""

    def __init__(self, name: str, kind: str, kernel: str, space: Space, data: Known) -> None:
        self.name = name
        self.kind = kind
        self.kernel = kernel
        self.space = space
        self.data = data
        self._told: dict[Point, Truth] = {}
        self._model: Model | None = None
        self._threshold = np.inf
        scale = np.maximum(data.rows.std(axis=0), 1e-9)
        self._scaled = data.rows / scale
        self._scale = scale
        if kind == "pool":
            self.optimum_us = float(np.exp(np.nanmin(data.log_latency)))
        else:
            self._model = Model(kind, data, slice(None))
            self._threshold = threshold(kind, data)
            self.optimum_us = self._descend()

    @property
    def size(self) -> int | None:
        """How many points there are, if it is a pool."""
        return len(self.data.points) if self.kind == "pool" else None

    def nearest(self, point: Point, taken: set[Point]) -> Point | None:
        """The recorded point nearest to this one that isn't taken, by scaled features."""
        row = features(self.space, [point]) / self._scale
        for at in np.argsort(((self._scaled - row) ** 2).sum(axis=1), kind="stable"):
            if self.data.points[at] not in taken:
                return self.data.points[at]
        return None

    def truth(self, points: Sequence[Point]) -> list[Truth]:
        """What these come to; known from then on."""
        new = [point for point in dict.fromkeys(points) if point not in self._told]
        if new:
            self._told.update(zip(new, self._work_out(new), strict=True))
        return [self._told[point] for point in points]

    def _work_out(self, points: Sequence[Point]) -> list[Truth]:
        rows = features(self.space, points)
        distance = ((self._scaled[None] - (rows / self._scale)[:, None]) ** 2).sum(axis=2)
        near = distance.argmin(axis=1)
        if self._model is None:
            return [self._recorded(int(at)) for at in near]
        us = np.exp(self._model.log_latency(rows))
        failed = self._model.failure(rows) > self._threshold
        compile_s = self.data.compile_s.copy()
        found = []
        for at, latency, fails in zip(near, us, failed, strict=True):
            if fails:
                timeout = self.kernel != "matmul"
                status = "compile_timeout" if timeout else "compile_error"
                found.append(Truth(None, status, TIMEOUT_S if timeout else compile_s[at]))
            else:
                found.append(Truth(float(latency), "ok", min(float(compile_s[at]), TIMEOUT_S)))
        return found

    def _recorded(self, at: int) -> Truth:
        log_latency = self.data.log_latency[at]
        seconds = float(self.data.compile_s[at])
        if np.isnan(log_latency):
            return Truth(None, self.data.status[at], seconds)
        return Truth(float(np.exp(log_latency)), "ok", seconds)

    def _descend(self) -> float:
        """The least latency that steepest descents from the best recorded points come to."""
        rng = np.random.default_rng(0)
        order = np.argsort(self.data.log_latency)[:10]
        starts = [self.data.points[at] for at in order] + [self.space.sample(rng) for _ in range(4)]
        best = np.inf
        for start in starts:
            point, least = start, self.truth([start])[0].latency_us or np.inf
            for _ in range(60):
                around = list(self.space.neighbours(point, rng, 2, 200)) + self._one_step(point)
                reached = self.truth(around)
                at = int(np.argmin([t.latency_us or np.inf for t in reached]))
                latency = reached[at].latency_us or np.inf
                if latency >= least * 0.9999:
                    break
                point, least = around[at], latency
            best = min(best, least)
        return float(best)

    def _one_step(self, point: Point) -> list[Point]:
        """Every point that differs in one tunable by one step."""
        found = []
        for at, tunable in enumerate(self.space.tunables):
            found += [
                self.space.canonical((*point[:at], value, *point[at + 1 :]))
                for value in tunable.moves(point[at], 1)
            ]
        return list(dict.fromkeys(found))


def names() -> list[str]:
    """Every problem's name."""
    return [f"{pair_name(r.kernel, r.shape)}/{kind}" for r in recordings() for kind in KINDS]


def _cache(name: str) -> Path:
    folder = user_cache_path("lfbo-aot") / "search_efficiency"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{name.replace('/', '-')}.v{VERSION}.pickle"


def problem(name: str) -> Problem:
    """The problem of this name; fitted models are kept in the user's cache folder."""
    path = _cache(name)
    if path.exists():
        found: Problem = pickle.loads(path.read_bytes())
        return found
    pair, _, kind = name.partition("/")
    recording = next(r for r in recordings() if pair_name(r.kernel, r.shape) == pair)
    space = conditional(recording.kernel, recording.space)
    data = known(dataclasses.replace(recording, space=space))
    made = Problem(name, kind, recording.kernel, space, data)
    path.write_bytes(pickle.dumps(made))
    return made
