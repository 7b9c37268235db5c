"""Shipped kernels run by Triton's interpreter, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def interpreted(tmp_path_factory):
    """(configs, names) to the records of interpreted.py."""

    def run(configs, names):
        folder = tmp_path_factory.mktemp("interpreted")
        environ = {
            **os.environ,
            "TRITON_INTERPRET": "1",
            "LFBO_AOT_PATH": "",
            "XDG_DATA_HOME": str(folder),
            "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
            "OMP_NUM_THREADS": "1",
        }
        script = Path(__file__).with_name("interpreted.py")
        done = subprocess.run(
            [sys.executable, str(script), str(configs), "0", *names],
            env=environ,
            cwd=folder,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run
