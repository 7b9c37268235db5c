"""`python -m lfbo_aot` with the fake device: what tests start in place of Python. Loads no torch."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from fake_tuning.device import FakeDevice

from lfbo_aot.cli.main import main
from lfbo_aot.tuning.devices import choose

folder = Path(os.environ["STARTED"])
(folder / f"{os.getpid()}").write_text("\n".join([str(Path.cwd()), *sys.argv[1:]]))
broken = tuple(int(m) for m in os.environ.get("BROKEN", "").split())
choose.start_device = lambda _identity, _workers=None: FakeDevice(broken=broken)  # type: ignore[assignment]
assert sys.argv[1:3] == ["-m", "lfbo_aot"]
sys.exit(main(sys.argv[3:]))
