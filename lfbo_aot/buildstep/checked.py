"""What is checked in: every line of the project's database that holds, and why others don't."""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import field
from typing import TYPE_CHECKING

from lfbo_aot.database.database import KERNELS
from lfbo_aot.database.database import children
from lfbo_aot.database.database import is_arch_folder
from lfbo_aot.database.declaration import Declaration
from lfbo_aot.database.frozen import thaw
from lfbo_aot.database.line import parse_line
from lfbo_aot.database.line import split_key
from lfbo_aot.database.shard import join_lines
from lfbo_aot.database.shard import split_lines
from lfbo_aot.errors import DatabaseError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Mapping
    from pathlib import Path
    from typing import Any

    from lfbo_aot.database.entry import Entry


@dataclass(frozen=True, slots=True)
class Held:
    """One line that holds: its bytes, its bucket's key and its entry."""

    raw: bytes
    bucket: str
    entry: Entry


@dataclass(slots=True)
class Checked:
    """A database as read: lines by (arch, kernel id) and key."""

    lines: dict[tuple[str, str], dict[str, Held]] = field(default_factory=dict)
    declarations: dict[str, Declaration] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    """What is damaged, as `file:line: reason`, the file relative to the project."""

    def archs(self) -> tuple[str, ...]:
        """The archs that have a line, sorted."""
        return tuple(sorted({arch for (arch, _), lines in self.lines.items() if lines}))

    def kernels(self) -> tuple[str, ...]:
        """The kernels that have a declaration, sorted."""
        return tuple(sorted(self.declarations))


def read_checked_in(folder: Path, called: str) -> Checked:
    """The database at `folder`, called `called` in what is said of it. A missing folder is empty."""
    found = Checked()
    for path in children(folder / KERNELS):
        if path.suffix == ".json" and path.is_file():
            try:
                declaration = Declaration.read(path)
                if declaration.kernel_id != path.stem:
                    reason = f"the file declares {declaration.kernel_id!r}"
                    raise DatabaseError(path, reason)  # noqa: TRY301 - told like the others
            except DatabaseError as error:
                found.problems.append(
                    _told(called, f"{KERNELS}/{path.name}", error.line, error.reason)
                )
            else:
                found.declarations[path.stem] = declaration
    for arch in filter(is_arch_folder, children(folder)):
        for path in children(arch):
            if path.suffix == ".jsonl" and path.is_file():
                _read_shard(found, path, f"{called}/{arch.name}/{path.name}")
    return found


def _read_shard(found: Checked, path: Path, called: str) -> None:
    arch, kernel_id = path.parent.name, path.stem
    declaration = found.declarations.get(kernel_id)
    if declaration is None:
        found.problems.append(f"{called}: a shard without a declaration that can be read")
        return
    lines: dict[str, Held] = {}
    twice: set[str] = set()
    try:
        content = path.read_bytes()
    except OSError as error:
        found.problems.append(f"{called}: can't be read: {error.strerror}")
        return
    for number, raw in enumerate(split_lines(content), start=1):
        try:
            key, held = _read_line(raw, number, declaration)
            if key in lines:
                twice.add(key)
                msg = f"duplicate key {key!r}: neither line is taken"
                raise ValueError(msg)  # noqa: TRY301 - told like the others
        except ValueError as error:
            found.problems.append(f"{called}:{number}: {error}")
        else:
            lines[key] = held
    found.lines[arch, kernel_id] = {key: lines[key] for key in sorted(lines) if key not in twice}


def _read_line(raw: bytes, number: int, declaration: Declaration) -> tuple[str, Held]:
    line = parse_line(raw, number)
    _, bucket = split_key(line.key)
    if bucket.names != tuple(declaration.dims):
        msg = f"the dims are {', '.join(bucket.names)}; declared: {', '.join(declaration.dims)}"
        raise ValueError(msg)
    return line.key, Held(raw, bucket.key, line.entry())


def _told(called: str, name: str, line: int | None, reason: str) -> str:
    return f"{called}/{name}{'' if line is None else f':{line}'}: {reason}"


def disagreement(entry: Entry, source: str, settings: Mapping[str, Any] | None) -> str:
    """Why an entry doesn't hold for a kernel of this source and these settings; empty if it does.

    `settings` is None where they aren't known.
    """
    if entry.source != source:
        return "the kernel's source has changed since"
    if settings is not None and thaw(entry.settings) != dict(settings):
        return "the kernel's settings have changed since"
    return ""


def every_line(checked: Checked) -> Iterator[tuple[str, str, str, Held]]:
    """(arch, kernel id, key, line) of all that holds, sorted."""
    for arch, kernel_id in sorted(checked.lines):
        for key, held in checked.lines[arch, kernel_id].items():
            yield arch, kernel_id, key, held


def database_of(checked: Checked) -> dict[str, bytes]:
    """The files of a database that holds just what holds, by relative path."""
    files = {
        f"{KERNELS}/{name}.json": declaration.dumps().encode()
        for name, declaration in checked.declarations.items()
    }
    for (arch, kernel_id), lines in checked.lines.items():
        if lines:
            files[f"{arch}/{kernel_id}.jsonl"] = join_lines({k: h.raw for k, h in lines.items()})
    return files
