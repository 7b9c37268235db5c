"""What is wrong with a database file, and where."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Problem:
    """A fault in a file; lines count from 1, and None stands for the file as a whole."""

    file: Path
    line: int | None
    reason: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line is not None else str(self.file)
        return f"{place}: {self.reason}"
