"""`python -m lfbo_aot` is the command `lfbo-aot`."""

from __future__ import annotations

import sys

from lfbo_aot.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
