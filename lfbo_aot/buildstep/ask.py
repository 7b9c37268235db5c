"""What the build asks of the tuning process, and what that answers: plain data, as JSON in files."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from dataclasses import field
from typing import TYPE_CHECKING
from typing import Any

if TYPE_CHECKING:
    from pathlib import Path

KEPT, TUNED, MISSING = "kept", "tuned", "missing"


@dataclass(frozen=True, slots=True)
class Row:
    """What became of one key: arch, kernel, bucket; `kept`, `tuned` or `missing`; and why."""

    arch: str
    kernel: str
    bucket: str
    status: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class Request:
    """What the tuning process is to do. Paths are absolute."""

    modules: tuple[str, ...]
    """The modules that declare kernels."""
    library: str
    """The folder that `lfbo_aot` must come from."""
    roots: tuple[str, ...]
    """The folders below which the kernels' modules must lie."""
    source: str
    """The checked-in database."""
    built: str
    """The database that keeps what builds of this project have tuned, for the next one."""
    state: str
    """Where journals and locks are."""
    archs: tuple[str, ...]
    """The archs to complete; empty: those of `source` and of the device here."""
    device: str
    budget_s: float
    trials: int | None
    tune: bool
    """Whether to tune what is missing; otherwise only what is known is collected."""


@dataclass(slots=True)
class Kernel:
    """One enumerated kernel: its declaration's file, its source digest and its settings."""

    declaration: str
    source: str
    settings: dict[str, Any]


@dataclass(slots=True)
class Answer:
    """What the tuning process found and did."""

    archs: tuple[str, ...] = ()
    device: str | None = None
    """What tuning ran on; None where nothing was tuned."""
    kernels: dict[str, Kernel] = field(default_factory=dict)
    failed_modules: dict[str, str] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    lines: list[tuple[str, str, str, str]] = field(default_factory=list)
    """Entries that aren't checked in: arch, kernel id, key, the shard's line."""

    def write(self, path: Path) -> None:
        """Write the answer to a file, whole or not at all."""
        temporary = path.with_suffix(".tmp")
        temporary.write_text(json.dumps(dataclasses.asdict(self)), encoding="utf-8")
        temporary.replace(path)

    @classmethod
    def read(cls, path: Path) -> Answer | None:
        """The answer in a file; None where there is none."""
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        return cls(
            archs=tuple(data["archs"]),
            device=data["device"],
            kernels={name: Kernel(**kernel) for name, kernel in data["kernels"].items()},
            failed_modules=data["failed_modules"],
            rows=[Row(**row) for row in data["rows"]],
            lines=[(arch, kernel, key, line) for arch, kernel, key, line in data["lines"]],
        )


def write_request(request: Request, path: Path) -> None:
    """Write a request to a file."""
    path.write_text(json.dumps(dataclasses.asdict(request)), encoding="utf-8")


def read_request(path: Path) -> Request:
    """The request in a file."""
    data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return Request(
        **dict[str, Any]((k, tuple(v) if isinstance(v, list) else v) for k, v in data.items())
    )
