"""What ships, and why: from the checked-in lines and the tuning process's answer."""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import field
from typing import TYPE_CHECKING

from lfbo_aot.buildstep.ask import KEPT
from lfbo_aot.buildstep.ask import MISSING
from lfbo_aot.buildstep.ask import Row
from lfbo_aot.buildstep.checked import disagreement
from lfbo_aot.buildstep.checked import every_line
from lfbo_aot.buildstep.static import static_digests
from lfbo_aot.database.database import KERNELS
from lfbo_aot.database.shard import join_lines
from lfbo_aot.database.text import dump_page
from lfbo_aot.database.text import load
from lfbo_aot.registry.devices import INTERPRETER

if TYPE_CHECKING:
    from pathlib import Path

    from lfbo_aot.buildstep.ask import Answer
    from lfbo_aot.buildstep.checked import Checked
    from lfbo_aot.buildstep.interpreter import Search
    from lfbo_aot.buildstep.settings import BuildSettings
    from lfbo_aot.database.entry import Entry

NO_INTERPRETER = (
    "not enumerated: no interpreter with torch, Helion and the rest of lfbo-aot[tune] was found"
)


@dataclass(slots=True)
class Outcome:
    """What a build ships and what it did."""

    package: str
    version: str
    tune: str
    editable: bool = False
    archs: tuple[str, ...] = ()
    enumerated: bool = False
    """Whether all that is declared is known: every module of kernels was imported, or needn't be."""
    tuned_on: str | None = None
    rows: list[Row] = field(default_factory=list)
    left_out: list[tuple[str, str, str, str]] = field(default_factory=list)
    """Checked-in lines that don't ship: arch, kernel id, key, why."""
    notes: list[str] = field(default_factory=list)
    """What else is to be known, equal on every machine."""
    problems: list[str] = field(default_factory=list)
    """What is damaged in the checked-in database."""
    tried: tuple[str, ...] = ()
    """The interpreters asked: only ever told, as they hold paths."""
    files: dict[str, bytes] = field(default_factory=dict)
    """The database, by relative path."""

    def of(self, status: str) -> list[Row]:
        """The rows with this status."""
        return [row for row in self.rows if row.status == status]

    @property
    def unmet(self) -> bool:
        """Whether `require` fails."""
        return not (self.enumerated and self.archs) or bool(self.of(MISSING) or self.problems)


@dataclass(frozen=True, slots=True)
class Asked:
    """Whom a build asked about kernels, if anyone, and what came of it."""

    search: Search | None = None
    answer: Answer | None = None
    failure: str = ""
    """How the tuning process ended, where it failed."""


def compose(
    settings: BuildSettings, version: str, checked: Checked, asked: Asked, root: Path
) -> Outcome:
    """The outcome of a build.

    Of a kernel that was enumerated, the lines ship that were made for its source and settings. Of
    others, those whose source digest the files below `root` agree with, unless `tune` is `off`:
    that ships what is checked in.
    """
    out = Outcome(settings.package, version, settings.tune)
    out.problems = list(checked.problems)
    out.archs = settings.archs or tuple(a for a in checked.archs() if a != INTERPRETER.arch)
    answer = asked.answer
    if answer is not None:
        out.archs = answer.archs
        out.tuned_on = answer.device
        out.enumerated = not answer.failed_modules
        out.rows = list(answer.rows)
        out.notes += list(answer.failed_modules.values())
    _note(out, settings, asked)
    _Shipping(out, settings, checked, answer, root).all()
    out.rows.sort(key=lambda row: (row.arch, row.kernel))
    return out


def _note(out: Outcome, settings: BuildSettings, asked: Asked) -> None:
    if asked.failure:
        out.notes.append(asked.failure)
    if asked.search is not None:
        out.tried = asked.search.tried
        if asked.search.found is None:
            out.notes.append(NO_INTERPRETER)
    elif settings.tune == "off":
        out.notes.append("not enumerated: tune is off")
    if not out.archs:
        out.notes.append("no arch to build for: none is named or checked in, and no GPU is here")
    out.notes += [f"{name} means nothing to lfbo-aot" for name in settings.unknown_variables]


class _Shipping:
    """Which lines ship."""

    def __init__(
        self,
        out: Outcome,
        settings: BuildSettings,
        checked: Checked,
        answer: Answer | None,
        root: Path,
    ) -> None:
        self._out = out
        self._settings = settings
        self._checked = checked
        self._answer = answer
        unknown = [k for k in checked.kernels() if answer is None or k not in answer.kernels]
        self._unknown = unknown if answer is None or answer.failed_modules else []
        names = {kernel_id.rpartition(".")[2] for kernel_id in self._unknown}
        self._digests = static_digests(names, settings.kernels, root) if names else {}

    def all(self) -> None:
        """Fill the outcome's files, rows and what is left out."""
        lines: dict[tuple[str, str], dict[str, bytes]] = {}
        buckets: dict[tuple[str, str], set[str]] = {}
        for arch, kernel_id, key, held in every_line(self._checked):
            if arch == INTERPRETER.arch and arch not in self._out.archs:
                continue
            why = self._why_not(kernel_id, held.entry)
            if why:
                self._out.left_out.append((arch, kernel_id, key, why))
            else:
                lines.setdefault((arch, kernel_id), {})[key] = held.raw
                buckets.setdefault((arch, kernel_id), set()).add(held.bucket)
        declarations = {}
        for kernel_id in self._unknown:
            declarations[kernel_id] = self._checked.declarations[kernel_id].dumps()
            self._rows(kernel_id, buckets)
        if self._answer is not None:
            for arch, kernel_id, key, line in self._answer.lines:
                lines.setdefault((arch, kernel_id), {})[key] = line.encode()
            for kernel_id, kernel in self._answer.kernels.items():
                declarations[kernel_id] = self._as_checked_in(kernel_id, kernel.declaration)
        for kernel_id, text in declarations.items():
            self._out.files[f"{KERNELS}/{kernel_id}.json"] = text.encode()
        for (arch, kernel_id), held_lines in lines.items():
            self._out.files[f"{arch}/{kernel_id}.jsonl"] = join_lines(held_lines)
        self._note_unfound()

    def _as_checked_in(self, kernel_id: str, enumerated: str) -> str:
        """The text of an enumerated declaration; the checked-in one where that declares the same.

        How a declaration is known to hold depends on who enumerated it. What ships doesn't.
        """
        checked_in = self._checked.declarations.get(kernel_id)
        if checked_in is None:
            return enumerated
        now = {name: value for name, value in load(enumerated).items() if name != "enumeration"}
        return checked_in.dumps() if checked_in.bare().dumps() == dump_page(now) else enumerated

    def _why_not(self, kernel_id: str, entry: Entry) -> str:
        """Why a checked-in entry doesn't ship; empty where it does."""
        if self._answer is not None and kernel_id in self._answer.kernels:
            kernel = self._answer.kernels[kernel_id]
            return disagreement(entry, kernel.source, kernel.settings)
        if kernel_id not in self._unknown:
            return "no kernel of this id is declared"
        found = self._digests[kernel_id.rpartition(".")[2]]
        if self._settings.tune == "off" or not found or entry.source in found:
            return ""
        return "the kernel's source has changed since"

    def _rows(self, kernel_id: str, buckets: dict[tuple[str, str], set[str]]) -> None:
        """What is known of a kernel that wasn't enumerated: what its declaration says."""
        declared = self._checked.declarations[kernel_id].buckets
        for arch in self._out.archs:
            here = buckets.get((arch, kernel_id), set())
            wanted = [] if arch == INTERPRETER.arch else list(declared)
            for bucket in dict.fromkeys([*wanted, *sorted(here)]):
                status, why = (KEPT, "") if bucket in here else (MISSING, "not enumerated")
                self._out.rows.append(Row(arch, kernel_id, bucket, status, why))

    def _note_unfound(self) -> None:
        for kernel_id in self._unknown:
            found = self._digests[kernel_id.rpartition(".")[2]]
            if not found:
                where = ", ".join(self._settings.kernels)
                note = (
                    f"{kernel_id}: no function of this name in {where}: its source isn't compared"
                )
                self._out.notes.append(note)
            elif self._settings.tune == "off":
                sources = {
                    held.entry.source
                    for _, kernel, _, held in every_line(self._checked)
                    if kernel == kernel_id
                }
                if sources - found:
                    note = f"{kernel_id}: the source has changed since some entries were measured"
                    self._out.notes.append(note)
