"""The tuning process's answer without that process, where the checked-in database proves it.

To enumerate kernels, torch and Helion must be imported, which takes seconds. Declarations say how
to know that enumerating again would give the same ones (`registry.enumeration`). Where that holds
for every kernel of the modules, and every key of every arch has an entry, there is nothing to ask.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from typing import Any

from lfbo_aot.buildstep.ask import KEPT
from lfbo_aot.buildstep.ask import Answer
from lfbo_aot.buildstep.ask import Kernel
from lfbo_aot.buildstep.ask import Row
from lfbo_aot.buildstep.checked import disagreement
from lfbo_aot.database.frozen import thaw
from lfbo_aot.database.line import split_key
from lfbo_aot.registry.devices import INTERPRETER
from lfbo_aot.registry.enumeration import digest_of
from lfbo_aot.registry.enumeration import told_otherwise
from lfbo_aot.registry.plain import NotPlainError
from lfbo_aot.registry.plain import plain_kernels
from lfbo_aot.registry.reach import reach
from lfbo_aot.registry.scope import SourceError
from lfbo_aot.registry.source import source_digest

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Iterator
    from collections.abc import Sequence
    from pathlib import Path

    from lfbo_aot.buildstep.checked import Checked
    from lfbo_aot.buildstep.checked import Held
    from lfbo_aot.buildstep.interpreter import Interpreter
    from lfbo_aot.database.declaration import Declaration
    from lfbo_aot.registry.plain import Declared


def unchanged(
    modules: Sequence[str],
    archs: Sequence[str],
    checked: Checked,
    interpreter: Interpreter,
    root: Path,
) -> Answer | None:
    """What the tuning process would answer for these modules and archs; None where it must be asked.

    `root` is the folder that the modules would be imported from. Archs must be named: which others
    are to be complete depends on the GPU of the machine.
    """
    if not archs or checked.problems or told_otherwise(interpreter.environment):
        return None
    declared = declared_plainly(modules, root)
    if not declared:
        return None
    answer = Answer(archs=tuple(archs))
    for kernel_id, place in sorted(declared.items()):
        declaration = checked.declarations.get(kernel_id)
        if declaration is None or not _still_declares(declaration, place, root):
            return None
        valid = list(_valid(checked, declaration))
        if interpreter.helion not in {held.entry.versions.get("helion") for _, held in valid}:
            return None  # the settings are known under the Helion that its entries were made with
        kept = {(arch, held.bucket) for arch, held in valid}
        for arch in archs:
            for bucket in _wanted(declaration, arch):
                if (arch, bucket) not in kept:
                    return None
                answer.rows.append(Row(arch, kernel_id, bucket, KEPT))
        settings: dict[str, Any] = thaw(declaration.settings)
        answer.kernels[kernel_id] = Kernel(declaration.dumps(), declaration.source, settings)
    answer.rows.sort(key=lambda row: (row.arch, row.kernel))
    return answer


def declared_plainly(modules: Iterable[str], root: Path) -> dict[str, Declared]:
    """The kernels that importing these modules declares in them or below; none if that isn't known.

    It is known of plain modules (`registry.plain`) only.
    """
    found: dict[str, Declared] = {}
    try:
        for name in modules:
            kernels = plain_kernels(reach(_file(root, name), name), name)
            for kernel_id, place in kernels.items():
                if not f"{place.module}.".startswith(f"{name}."):
                    return {}  # whether it counts depends on what names the module holds
                if found.setdefault(kernel_id, place) != place:
                    return {}
    except (SourceError, RecursionError):
        return {}
    return found


def _still_declares(declaration: Declaration, place: Declared, root: Path) -> bool:
    """Whether enumerating the kernel again would give this declaration, and entries could serve it."""
    known = declaration.enumeration
    if known is None:
        return False
    file = _file(root, place.module)
    digest = digest_of(reach(file, place.module), declaration.follows_from(known.small))
    if digest != known.digest:
        return False
    return source_digest(file, place.name, module=place.module) == declaration.source


def _file(root: Path, module: str) -> Path:
    base = root.joinpath(*module.split("."))
    file = base / "__init__.py" if base.is_dir() else base.with_name(f"{base.name}.py")
    if not file.is_file():
        msg = f"{module} is no file below {root}"
        raise NotPlainError(msg)
    return file


def _valid(checked: Checked, declaration: Declaration) -> Iterator[tuple[str, Held]]:
    """The lines, with their arch, that hold for the kernel as it is declared."""
    settings: dict[str, Any] = thaw(declaration.settings)
    for (arch, kernel_id), lines in checked.lines.items():
        for key, held in lines.items() if kernel_id == declaration.kernel_id else ():
            other = arch == INTERPRETER.arch and split_key(key)[0] != INTERPRETER.name
            measured = held.entry.status == "measured" and not other
            if measured and not disagreement(held.entry, declaration.source, settings):
                yield arch, held


def _wanted(declaration: Declaration, arch: str) -> tuple[str, ...]:
    known = declaration.enumeration
    small = known.small if known is not None else ()
    return tuple(dict.fromkeys(small if arch == INTERPRETER.arch else declaration.buckets))
