"""The heartbeat of a run: a small file that tells `lfbo-aot status` what the run is about.

What was tried is in the journals. This says what they can't: which process runs, what its plan is,
and when its budget ends. It is written whenever a bucket begins or ends, and deleted with the run's
end; one that was killed leaves it behind, and the next run on the machine clears it away.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import logging
import os
import platform
import re
import time
from typing import TYPE_CHECKING
from typing import Any

from lfbo_aot.tuning.folders import runs_folder

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from types import TracebackType

    from typing_extensions import Self

    from lfbo_aot.registry.devices import DeviceId
    from lfbo_aot.tuning.plan import Item
    from lfbo_aot.tuning.run import Options
    from lfbo_aot.tuning.run import Result
    from lfbo_aot.tuning.run import Watcher
    from lfbo_aot.tuning.task import Step

SCHEMA = 1
WAITING = "waiting"
RUNNING = "running"
HELD = "held"

logger = logging.getLogger(__name__)


class Heartbeat:
    """A watcher that keeps the file of a run, and passes everything on to another watcher.

    As a context manager it makes the file and deletes it. A file that can't be written is logged
    and is no reason to stop tuning.
    """

    def __init__(
        self,
        watcher: Watcher,
        plan: Sequence[Item],
        device: DeviceId,
        *,
        into: Path,
        state: Path,
        options: Options,
    ) -> None:
        self._watcher = watcher
        self._folder = runs_folder(state)
        self._path = self._folder / f"{this_host()}-{os.getpid()}.json"
        self._options = options
        now = time.time()
        self._ends = None if options.budget_s is None else now + options.budget_s
        self._buckets: dict[tuple[str, str], dict[str, Any]] = {
            _key(item): {
                "kernel": item.spec.kernel_id,
                "bucket": item.bucket.key,
                "status": WAITING if item.why else HELD,
            }
            for item in plan
        }
        self._head = {
            "schema": SCHEMA,
            "pid": os.getpid(),
            "host": this_host(),
            "started": dt.datetime.fromtimestamp(now, tz=dt.timezone.utc).isoformat("T", "seconds"),
            "device": str(device),
            "into": str(into),
            "budget_s": options.budget_s,
            "budget_ends": self._ends,
        }

    def __enter__(self) -> Self:
        _clear(self._folder)
        self._write()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with contextlib.suppress(OSError):
            self._path.unlink()

    def begins(self, item: Item, number: int, total: int) -> None:
        """A bucket's search begins."""
        row = self._buckets[_key(item)]
        now = time.time()
        left = None if self._ends is None else (self._ends - now) / (total - number + 1)
        shares = [s for s in (left, self._options.per_bucket_s) if s is not None]
        row |= {"status": RUNNING, "began": now, "ends": now + min(shares) if shares else None}
        self._write()
        self._watcher.begins(item, number, total)

    def steps(self, step: Step) -> None:
        """A trial was made; the journal has it."""
        self._watcher.steps(step)

    def ends(self, result: Result) -> None:
        """A bucket came to an end."""
        row = self._buckets[_key(result.item)]
        row |= {"status": result.status, "ends": None}
        if result.reason:
            row["reason"] = result.reason[:300]
        self._write()
        self._watcher.ends(result)

    def _write(self) -> None:
        text = json.dumps({**self._head, "buckets": list(self._buckets.values())})
        temporary = self._path.with_suffix(".tmp")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            temporary.write_text(text, encoding="utf-8")
            temporary.replace(self._path)
        except OSError as error:
            logger.info("the run's file for `lfbo-aot status` can't be written: %s", error)


def is_alive(pid: int) -> bool:
    """Whether a process of this machine has this number."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def _clear(folder: Path) -> None:
    """Delete the files of this machine's runs that are no more."""
    for path in folder.glob(f"{this_host()}-*.*"):
        pid = path.stem.rpartition("-")[2]
        if pid.isdecimal() and not is_alive(int(pid)):
            with contextlib.suppress(OSError):
                path.unlink()


def this_host() -> str:
    return re.sub(r"[^A-Za-z0-9.-]+", "_", platform.node()) or "unknown"


def _key(item: Item) -> tuple[str, str]:
    return item.spec.kernel_id, item.bucket.key
