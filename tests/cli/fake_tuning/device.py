"""A device without processes that takes the place of the interpreter in tests of the command."""

from __future__ import annotations

import math
import time

from lfbo_aot.errors import TuningError
from lfbo_aot.registry.devices import INTERPRETER
from lfbo_aot.search import PowerOfTwo
from lfbo_aot.search import Space
from lfbo_aot.tuning.devices.device import Outcome
from lfbo_aot.tuning.devices.replay import Recording
from lfbo_aot.tuning.devices.replay import ReplayDevice

SPACE = Space((PowerOfTwo("block", 1, 256, 2), PowerOfTwo("warps", 1, 32, 4)), (2, 4))


def recording(best_block=32):
    outcomes = {}
    for block, warps in SPACE.points():
        us = 10.0 + abs(math.log2(block / best_block)) + abs(math.log2(warps) - 3)
        config = {"block": block, "warps": warps}
        failed = Outcome(0, "compile_error", config, error="no")
        outcomes[block, warps] = failed if block == 256 else Outcome(0, "ok", config, us)
    return Recording(SPACE, {"block": 2, "warps": 4}, outcomes)


class FakeDevice(ReplayDevice):
    """`pause_s` is waited for each trial; of the shapes of `broken` none can be opened.

    `best_block` names the best block size by `m`.
    """

    def __init__(self, *, pause_s=0.0, broken=(), best_block=None):
        blocks = best_block or {}
        found = lambda _spec, shape: recording(blocks.get(shape["m"], 32))
        super().__init__(found, device_id=INTERPRETER)
        self.closed = False
        self._pause_s = pause_s
        self._broken = broken

    def open(self, spec, shape):
        if shape["m"] in self._broken:
            msg = f"inputs= of kernel {spec.kernel_id!r} failed: RuntimeError: boom"
            raise TuningError(msg)
        return super().open(spec, shape)

    def wait(self, timeout_s):
        time.sleep(self._pause_s)
        return super().wait(timeout_s)

    def close(self):
        self.closed = True
