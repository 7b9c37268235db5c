"""The GPU worker, with faults: some of the candidates that it is given do what no kernel should.

The environment variable FAULTS says which: `4=hang,8=address,12=damage,16=memory` by the number of the
candidate, counted over all workers in the file that FAULTS_COUNT names.
"""

from __future__ import annotations

import os
from pathlib import Path

import torch
import triton
import triton.language as tl

from lfbo_aot.tuning.workers import gpu

FAULTS = dict(item.split("=") for item in os.environ["FAULTS"].split(","))
COUNT = Path(os.environ["FAULTS_COUNT"])


@triton.jit
def _wait_for_ever(flag):
    value = tl.load(flag, volatile=True)
    while value == 0:
        value = tl.load(flag, volatile=True)


@triton.jit
def _write_far_away(place):
    tl.store(place + (1 << 45), 1)


def hang(_bucket):
    _wait_for_ever[(1,)](torch.zeros(1, dtype=torch.int32, device="cuda"))


def address(_bucket):
    _write_far_away[(1,)](torch.zeros(1, dtype=torch.int32, device="cuda"))


def damage(bucket):
    """As a kernel that writes past the end of its result, into what another tensor holds."""
    bucket.bench._want[0].add_(1.0)


def memory(_bucket):
    torch.empty(1 << 42, dtype=torch.int8, device="cuda")


class FaultyWorker(gpu.GpuWorker):
    def _function(self, bucket, code):
        right = super()._function(bucket, code)
        number = len(COUNT.read_bytes()) + 1
        COUNT.write_bytes(b"x" * number)
        fault = {"hang": hang, "address": address, "damage": damage, "memory": memory}.get(
            FAULTS.get(str(number), "")
        )
        if fault is None:
            return right

        def wrong(*args, **words):
            fault(bucket)
            return right(*args, **words)

        return wrong


gpu.GpuWorker = FaultyWorker
if __name__ == "__main__":
    gpu.main()
