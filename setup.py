"""The package mapping: `kernels/` and `tuned/` of the checkout are installed inside `lfbo_aot`.

Metadata is in pyproject.toml. Both folders have names that are other people's on PyPI, so they are
never installed at the top level.
"""

from __future__ import annotations

from setuptools import find_packages
from setuptools import setup

setup(
    packages=[
        *find_packages(include=["lfbo_aot", "lfbo_aot.*"]),
        "lfbo_aot.kernels",
        "lfbo_aot.tuned",
    ],
    package_dir={"lfbo_aot.kernels": "kernels", "lfbo_aot.tuned": "tuned"},
    package_data={"lfbo_aot": ["py.typed"], "lfbo_aot.tuned": ["**/*.json", "**/*.jsonl"]},
)
