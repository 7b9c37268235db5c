"""What a device's processes share: a folder for logs and compiled code, and their watchdog."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from lfbo_aot.tuning.process import WorkerProcess
from lfbo_aot.tuning.watchdog import Watchdog


class Workspace:
    """A temporary folder that goes away with the run, and the watchdog over its workers.

    Thousands of candidates are compiled and one is kept: none of them belongs into the user's own
    caches. The same two variables in every worker make them find each other's binaries.
    """

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="lfbo-aot-"))
        try:
            self._watchdog = Watchdog(self.folder)
        except BaseException:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise

    def start(self, module: str, **environment: str) -> WorkerProcess:
        shared = {
            "TRITON_CACHE_DIR": str(self.folder / "triton"),
            "TORCHINDUCTOR_CACHE_DIR": str(self.folder / "inductor"),
            # What a user set for Helion's own tuner must not reach the kernels under test.
            "HELION_FORCE_AUTOTUNE": "0",
            "HELION_AUTOTUNE_LOG_LEVEL": "0",
            "HELION_PRINT_OUTPUT_CODE": "0",
        }
        return WorkerProcess(
            module,
            environment={**shared, **environment},
            log_folder=self.folder,
            watchdog=self._watchdog,
        )

    def close(self) -> None:
        """End the workers that are left, and delete the folder."""
        self._watchdog.close()
        shutil.rmtree(self.folder, ignore_errors=True)
