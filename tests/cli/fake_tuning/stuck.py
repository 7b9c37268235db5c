"""A worker that never comes up, and has started a process of its own."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

child = subprocess.Popen(["sleep", "600"])
folder = Path(os.environ["STUCK"])
(folder / f"{os.getpid()}.tmp").write_text(f"{os.getpid()} {child.pid}")
(folder / f"{os.getpid()}.tmp").rename(folder / f"{os.getpid()}.pids")
time.sleep(600)
