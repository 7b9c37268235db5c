"""The package mapping, and the build step that this project offers to others, used on itself.

`kernels/` and `tuned/` of the checkout are installed inside `lfbo_aot`: both names are other people's
on PyPI, so they are never installed at the top level. Metadata is in pyproject.toml.
"""

from __future__ import annotations

import sys
from pathlib import Path

from setuptools import find_packages
from setuptools import setup
from setuptools.command.build import build
from setuptools.command.sdist import sdist

# A project's own entry points aren't active while it builds itself, and its root isn't importable.
# It leaves sys.path again before setup() runs: a stale egg-info in it would be read as an
# installed distribution, entry points and all.
ROOT = str(Path(__file__).resolve().parent)
sys.path.insert(0, ROOT)
try:
    from lfbo_aot.buildstep.command import BuildTuned
    from lfbo_aot.buildstep.command import with_equal_bytes
    from lfbo_aot.buildstep.command import with_tuned
finally:
    sys.path.remove(ROOT)

setup(
    packages=[
        *find_packages(include=["lfbo_aot", "lfbo_aot.*"]),
        "lfbo_aot.kernels",
        "lfbo_aot.tuned",
    ],
    package_dir={"lfbo_aot.kernels": "kernels", "lfbo_aot.tuned": "tuned"},
    package_data={"lfbo_aot": ["py.typed"]},
    include_package_data=False,
    cmdclass={
        "build": with_tuned(build),
        "build_tuned": BuildTuned,
        "sdist": with_equal_bytes(sdist),
    },
)
