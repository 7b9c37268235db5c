"""What the last build of a project was told, for one whose inputs are all the same.

To import torch and Helion takes seconds; a build that has nothing to tune, and can know that,
shouldn't. Only answers that leave nothing missing are kept, and only for archs that are named: else
what is complete depends on the GPU of the machine, and a home folder may be shared by several. And
only for plain modules (`registry.plain`): what others declare follows from more than can be compared.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

import lfbo_aot
from lfbo_aot.buildstep.ask import MISSING
from lfbo_aot.buildstep.ask import Answer
from lfbo_aot.buildstep.target import database_files
from lfbo_aot.buildstep.unchanged import declared_plainly
from lfbo_aot.registry.enumeration import told_otherwise

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lfbo_aot.buildstep.ask import Request
    from lfbo_aot.buildstep.interpreter import Interpreter


def fingerprint(request: Request, interpreter: Interpreter, root: Path, target: Path) -> str:
    """A digest of all that the answer to `request` follows from: text of files, never their paths.

    What lies in `target` doesn't count: a build writes its database there, and the next finds it.
    """
    tops = sorted({name.partition(".")[0] for name in request.modules})
    source = Path(request.source)
    digest = hashlib.sha256()
    asked = [request.modules, request.archs, request.device, request.trials, request.tune]
    environ = interpreter.environment
    told = {name: environ[name] for name in told_otherwise(environ)}
    digest.update(json.dumps([asked, interpreter.program, interpreter.helion, told]).encode())
    for top in tops:
        files = [*(root / top).rglob("*.py"), *root.glob(f"{top}.py")]
        _add(digest, root, [file for file in files if target not in file.parents])
    library = Path(str(lfbo_aot.__file__)).parent
    _add(digest, library, library.rglob("*.py"))
    _add(digest, source, [source / name for name in database_files(source)])
    return digest.hexdigest()


def _add(digest: hashlib._Hash, top: Path, files: Iterable[Path]) -> None:
    for file in sorted(files):
        content = file.read_bytes()
        digest.update(f"{file.relative_to(top).as_posix()} {len(content)}\n".encode() + content)


def recall(folder: Path, digest: str) -> Answer | None:
    """The answer kept in `folder` for the same inputs; None where there is none."""
    try:
        return Answer.read(_file(folder, digest))
    except (OSError, ValueError, KeyError, TypeError):
        return None  # what can't be read is asked again


def remember(folder: Path, digest: str, request: Request, answer: Answer, root: Path) -> None:
    """Keep a complete answer, in place of that of other inputs, if all that it says is sure to hold.

    `root` is the folder that the modules were imported from.
    """
    missing = any(row.status == MISSING for row in answer.rows)
    if missing or not answer.rows or answer.failed_modules or not request.archs:
        return
    if set(declared_plainly(request.modules, root)) != set(answer.kernels):
        return  # another file, variable or package may have them declare another thing
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.json"):
        old.unlink(missing_ok=True)
    answer.device = None  # the next build tunes nothing
    answer.write(_file(folder, digest))


def _file(folder: Path, digest: str) -> Path:
    return folder / f"{digest}.json"
