"""What is compared: five kernels at one shape each, fixed beforehand, and eight buckets of one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

PACKAGE = "compare"
MODULE = Path(__file__).with_name("compared.py")
"""Declares each case's kernel for its one shape, as `compare.<name>`."""
SWEPT = "lfbo_aot.rms_norm"
SWEPT_WORDS = ("n=4096", "dtype=bfloat16")
"""What picks eight of its declared buckets: one for each interval of m."""
ALONE = (64, 1024, 16384)
"""Values of m: the buckets that hold one are tuned alone, too."""


@dataclass(frozen=True, slots=True)
class Case:
    """A kernel at one shape."""

    name: str
    shape: Mapping[str, int | str]
    small: Mapping[str, int | str]
    """What stands in for `shape` where Triton's interpreter runs the comparison."""

    @property
    def kernel_id(self) -> str:
        """The id under which the case's kernel is declared for this benchmark."""
        return f"{PACKAGE}.{self.name}"

    def at(self, device: str) -> Mapping[str, int | str]:
        """The shape that is tuned on a device of this kind."""
        return self.small if device == "interpreter" else self.shape

    def words(self, device: str) -> list[str]:
        """The shape as the command line takes it."""
        return [f"{name}={value}" for name, value in self.at(device).items()]


def _rows(name: str, m: int, n: int) -> Case:
    return Case(
        name,
        {"m": m, "n": n, "dtype": "bfloat16"},
        {"m": 16, "n": 128, "dtype": "float32"},
    )


CASES = {
    case.name: case
    for case in (
        _rows("softmax", 4096, 2560),
        _rows("layer_norm", 4096, 5120),
        _rows("rms_norm", 2048, 8192),
        _rows("silu_and_mul", 4096, 14336),
        Case(
            "matmul",
            {"m": 512, "n": 8192, "k": 8192, "dtype": "bfloat16"},
            {"m": 32, "n": 32, "k": 32, "dtype": "float32"},
        ),
    )
}
PATTERN = ("layer_norm", "matmul")
"""Those that are also tuned by Helion's PatternSearch, unless others are named."""
