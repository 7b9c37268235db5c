"""How a run is asked for, what becomes of it, and who watches."""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import field
from typing import TYPE_CHECKING
from typing import Protocol

if TYPE_CHECKING:
    from lfbo_aot.database.entry import Entry
    from lfbo_aot.registry.devices import DeviceId
    from lfbo_aot.tuning.few import Reduced
    from lfbo_aot.tuning.parts import Wanted
    from lfbo_aot.tuning.plan import Item
    from lfbo_aot.tuning.task import Step


@dataclass(frozen=True, slots=True)
class Options:
    """How a run tunes. Times in seconds; None: no such limit."""

    budget_s: float | None = None
    per_bucket_s: float | None = None
    trials: int | None = None
    seed: int = 0
    algorithm: str = "lfbo"
    rounds: int = 60
    fresh: bool = False
    """Whether to ignore what journals hold."""
    spent_s: float = 0.0
    """What of the budget was spent before the run was called."""
    few: Wanted | None = None
    """By how few configs each kernel's buckets are to be served, after all are tuned."""


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one bucket: `tuned`, `held`, `failed` or `unfinished`."""

    item: Item
    status: str
    entry: Entry | None = None
    reason: str = ""
    seconds: float = 0.0
    """From when it was opened, which is while the one before is searched."""
    ended_s: float = 0.0
    """Seconds from the start of the run's budget until it was over."""


@dataclass(slots=True)
class Summary:
    """What became of a run."""

    device: DeviceId
    results: list[Result] = field(default_factory=list)
    seconds: float = 0.0
    profile: dict[str, float] = field(default_factory=dict)
    """How busy the device was (`Usage`), with `first_trial_s`, from the start of the run's budget to
    the first outcome; `thinking_s`, what the searches took to propose; `waited_s`, what they waited
    for outcomes."""

    few: list[Reduced] = field(default_factory=list)
    """What became of each kernel whose configs were to be few."""

    def of(self, status: str) -> list[Result]:
        """The results with this status."""
        return [r for r in self.results if r.status == status]

    @property
    def complete(self) -> bool:
        """Whether every bucket of the plan is held now."""
        return not self.of("failed") and not self.of("unfinished")


class Watcher(Protocol):
    """Whoever wants to see a run go on."""

    def begins(self, item: Item, number: int, total: int) -> None: ...

    def steps(self, step: Step) -> None: ...

    def ends(self, result: Result) -> None: ...


class Silence:
    """Nobody watches."""

    def begins(self, item: Item, number: int, total: int) -> None: ...

    def steps(self, step: Step) -> None: ...

    def ends(self, result: Result) -> None: ...
