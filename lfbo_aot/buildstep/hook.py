"""Entry points that setuptools calls in every build of an environment that holds lfbo-aot.

They run before pyproject.toml is applied, in projects that have nothing to do with lfbo-aot too:
without the table `[tool.lfbo_aot]` they do nothing, and load nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from setuptools import Distribution


def finalize(dist: Distribution) -> None:
    """Add `build_tuned` to the build of a project that has the table `[tool.lfbo_aot]`."""
    root = Path(dist.src_root or ".")
    try:
        if b"lfbo_aot" not in (root / "pyproject.toml").read_bytes():
            return
    except OSError:
        return
    from lfbo_aot.buildstep.settings import read_table

    if read_table(root) is None:
        return
    from lfbo_aot.buildstep.command import add_to

    add_to(dist)
