"""Tune softmax and layer_norm into a folder, then serve them from there: `make demo`.

    python examples/demo.py FOLDER

On a machine with a GPU one bucket of each kernel is tuned on it; elsewhere the kernels' small
shapes are tuned in Triton's interpreter: real code and real results, at times that mean nothing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import lfbo_aot
from lfbo_aot.database.database import Database
from lfbo_aot.tuning.devices.choose import choose_device

if TYPE_CHECKING:
    from lfbo_aot.registry.devices import DeviceId

KERNELS = ("softmax", "layer_norm")
ON_GPU = ["m=4096", "n=4096", "dtype=bfloat16", "--per-bucket", "45"]
ON_CPU = ["--trials", "30"]


def main() -> int:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".demo").absolute()
    shutil.rmtree(folder, ignore_errors=True)
    database = folder / "tuned"
    device, why = choose_device("auto")
    on_gpu = device.arch != "cpu-interpreter"
    print(f"1. Tuning {' and '.join(KERNELS)} on {device} ({why}).\n")
    command = [sys.executable, "-m", "lfbo_aot.cli.main", "tune", *KERNELS]
    command += ["--into", str(database), "--seed", "1", *(ON_GPU if on_gpu else ON_CPU)]
    print("   $ lfbo-aot", *command[3:])
    done = subprocess.run(
        command, env={**os.environ, "LFBO_AOT_STATE": str(folder / "state")}, check=False
    )
    if done.returncode:
        return done.returncode
    print(f"\n2. What a serving process gets, from {database}:\n")
    serve(database, device)
    print(
        "\nThe database is text: a declaration for each kernel in kernels/, a shard for each kernel "
        f"and arch in {device.arch}/.\nTry: lfbo-aot list --database {database}"
    )
    return 0


def serve(database: Path, device: DeviceId) -> None:
    """Look every tuned bucket up by name, as a process without torch would."""
    found = Database(database)
    with lfbo_aot.use_database(database):
        for kernel_id in found.kernels():
            shard = found.shard(kernel_id, device.arch)
            for bucket, _ in shard.boxes(device.name) if shard is not None else ():
                answer = lfbo_aot.resolve(kernel_id, bucket.point, str(device))
                began = time.perf_counter()
                answer = lfbo_aot.resolve(kernel_id, bucket.point, str(device))
                took_us = 1e6 * (time.perf_counter() - began)
                if answer.entry is None:
                    raise SystemExit(f"{kernel_id} {bucket.key}: {'; '.join(answer.reasons)}")
                shape = " ".join(f"{name}={value}" for name, value in bucket.point.items())
                entry = answer.entry
                gain = f"{entry.gain:.2f}x the default's speed" if entry.gain else "no default"
                config = {k: v for k, v in answer.config.items() if v not in ([], None)}
                print(f"   get_config({kernel_id!r}, {shape})")
                print(f"     {answer.status}, {gain}; looked up in {took_us:.1f} us")
                print(f"     block_sizes {config.get('block_sizes')}, ", end="")
                print(f"num_warps {config.get('num_warps')}, num_stages {config.get('num_stages')}")


if __name__ == "__main__":
    sys.exit(main())
