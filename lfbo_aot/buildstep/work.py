"""Tuning inside a build: within its budget, alone or beside other builds, each bucket kept at once."""

from __future__ import annotations

import contextlib
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from lfbo_aot.buildstep.checked import database_of
from lfbo_aot.buildstep.checked import read_checked_in
from lfbo_aot.buildstep.target import write_target
from lfbo_aot.database.database import Database
from lfbo_aot.database.declaration import Declaration
from lfbo_aot.database.merge import merge
from lfbo_aot.errors import JournalBusyError
from lfbo_aot.errors import LfboAotError
from lfbo_aot.registry.devices import INTERPRETER
from lfbo_aot.tuning.devices.choose import start_device
from lfbo_aot.tuning.plan import make_plan
from lfbo_aot.tuning.run import Options
from lfbo_aot.tuning.run import tune

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lfbo_aot.buildstep.ask import Request
    from lfbo_aot.registry.devices import DeviceId
    from lfbo_aot.tuning.devices.device import Device
    from lfbo_aot.tuning.plan import Item
    from lfbo_aot.tuning.run import Result
    from lfbo_aot.tuning.task import Step

    Key = tuple[str, str, str]

INTERPRETER_TRIALS = 40
_PAUSE_S = 0.5


def tune_here(request: Request, here: DeviceId, items: Mapping[Key, Item]) -> dict[Key, str]:
    """Tune these items on the device here; the reasons of those that are not tuned at the end.

    What is tuned is in the database `request.built`, which outlives the build. Where another build
    tunes the same kernels, this one waits for it, within the budget, and takes what that finishes.
    """
    if request.budget_s <= 0:
        return dict.fromkeys(items, "the budget is 0")
    ends = time.monotonic() + request.budget_s
    try:
        with contextlib.closing(start_device(here)) as device:
            while True:
                try:
                    return _run(request, device, items, max(0.0, ends - time.monotonic()))
                except JournalBusyError as error:
                    if time.monotonic() >= ends:
                        return dict.fromkeys(items, f"the budget went by waiting: {error}")
                time.sleep(_PAUSE_S)
    except LfboAotError as error:
        return dict.fromkeys(items, str(error))


def _run(
    request: Request, device: Device, items: Mapping[Key, Item], left_s: float
) -> dict[Key, str]:
    todo = {key: item for key, item in items.items() if not _is_built(request, device.id, item)}
    if not todo:
        return {}
    on_cpu = device.id == INTERPRETER
    options = Options(
        budget_s=left_s,
        trials=request.trials or (INTERPRETER_TRIALS if on_cpu else None),
        rounds=5 if on_cpu else 60,
    )
    # In a folder of its own, the run finds the checked-in winners of neighbouring buckets, too.
    with tempfile.TemporaryDirectory(prefix="lfbo-aot-") as folder:
        into = Path(folder, "tuned")
        write_target(into, database_of(read_checked_in(Path(request.source), "source")))
        summary = tune(
            list(todo.values()),
            device,
            into=into,
            state=Path(request.state),
            options=options,
            watcher=_Keeper(Path(request.built), device.id),
        )
    reasons = {
        (r.item.spec.kernel_id, r.item.bucket.key): f"{r.status}: {r.reason}"
        for r in summary.results
        if r.status != "tuned"
    }
    return {key: reasons[key[1:]] for key in todo if key[1:] in reasons}


def _is_built(request: Request, here: DeviceId, item: Item) -> bool:
    plan = make_plan([item.spec], here, Database(request.built))
    return any(i.bucket == item.bucket and not i.why for i in plan)


class _Keeper:
    """Keeps each entry for later builds as soon as there is one, and says so in a line."""

    def __init__(self, built: Path, device: DeviceId) -> None:
        self._built = built
        self._device = device

    def begins(self, item: Item, number: int, total: int) -> None:
        _say(f"[{number}/{total}] {item.spec.kernel_id} {item.bucket.key}: starting")

    def steps(self, step: Step) -> None:
        """`lfbo-aot status` shows them."""

    def ends(self, result: Result) -> None:
        spec, bucket, entry = result.item.spec, result.item.bucket, result.entry
        if entry is None:
            _say(f"{result.status} {spec.kernel_id} {bucket.key}: {result.reason}")
            return
        merge(
            self._built,
            {spec.kernel_id: {(self._device, bucket): entry}},
            [Declaration.of(spec)],
        )
        gain = f", {entry.gain:.2f}x the default's speed" if entry.gain else ""
        trials = f"{entry.search.get('trials', 0)} trials in {result.seconds:.0f} s"
        _say(
            f"{result.status} {spec.kernel_id} {bucket.key}: "
            f"{entry.latency_us:.1f} us{gain}, {trials}"
        )


def _say(text: str) -> None:
    """One line for the build's log."""
    sys.stdout.write(f"lfbo-aot: {text}\n")
    sys.stdout.flush()
