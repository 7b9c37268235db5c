"""Archives: a database, and what of it is to be tuned elsewhere, as one zip file.

```
manifest.json                  what `lfbo_aot.database.job` describes
tuned/kernels/<id>.json        declarations
tuned/<arch>/<id>.jsonl        shards
modules/<name>.py              kernels as text, only where the one who exported named them
```
An archive is data from somewhere else. It is read in memory, by names that must be exactly of this
form and sizes that are counted while reading, and never unpacked; nothing in it is imported or run.
"""

from __future__ import annotations

import hashlib
import re
import zipfile
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lfbo_aot.database.contents import Contents
from lfbo_aot.database.contents import read_files
from lfbo_aot.database.contents import to_files
from lfbo_aot.database.job import Job
from lfbo_aot.database.text import dump_page
from lfbo_aot.database.text import load
from lfbo_aot.database.wheel import make_zip
from lfbo_aot.errors import DatabaseError
from lfbo_aot.errors import UnknownNameError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

MANIFEST = "manifest.json"
MOST_FILES = 10_000
LARGEST_FILE = 32 << 20
LARGEST = 256 << 20
MODULE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\.py")
_ID = r"[A-Za-z0-9_][A-Za-z0-9_.+-]*"
_DATABASE = re.compile(rf"tuned/(kernels/{_ID}\.json|(?!kernels/)[a-z0-9][a-z0-9_-]*/{_ID}\.jsonl)")
_MODULES = "modules/"
_SCHEMES = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ENCRYPTED = 0x1


@dataclass(frozen=True, slots=True)
class Archive:
    """What an archive holds."""

    job: Job
    contents: Contents
    modules: Mapping[str, bytes]
    digest: str
    """Of the file, `sha256:...`."""


def make_archive(job: Job, contents: Contents, modules: Mapping[str, bytes]) -> bytes:
    """The archive's bytes: the same for equal arguments."""
    files = [(MANIFEST, dump_page(job.to_json()).encode())]
    files += [(f"tuned/{path}", content) for path, content in to_files(contents).items()]
    files += [(f"{_MODULES}{name}", modules[name]) for name in sorted(modules)]
    return make_zip(files)


def read_archive(path: Path) -> Archive:
    """What the archive at `path` holds, checked throughout.

    Raises DatabaseError where it is no archive of this kind, is damaged, is of a newer format, or
    holds anything that an archive doesn't.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            files = _read(path, archive)
        digest = "sha256:" + hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise DatabaseError(path, f"can't be read: {error.strerror or error}") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        msg = f"not an archive, or a damaged one: {error}"
        raise DatabaseError(path, msg) from error
    if MANIFEST not in files:
        msg = f"not an archive of lfbo-aot export: it holds no {MANIFEST}"
        raise DatabaseError(path, msg)
    try:
        job = Job.from_json(load(files.pop(MANIFEST).decode()))
    except (ValueError, UnknownNameError) as error:
        raise DatabaseError(path / MANIFEST, str(error)) from error
    held = {n: content for n, content in files.items() if n.startswith("tuned/")}
    modules = {n.removeprefix(_MODULES): text for n, text in files.items() if n not in held}
    for name, content in modules.items():
        _check_text(path, name, content)
    tuned = {n.removeprefix("tuned/"): content for n, content in held.items()}
    return Archive(job, read_files(str(path), tuned), modules, digest)


def _read(path: Path, archive: zipfile.ZipFile) -> dict[str, bytes]:
    """The files by name, each name checked and each size counted, whatever the headers say."""
    members = archive.infolist()
    if len(members) > MOST_FILES:
        msg = f"it holds {len(members)} files; an archive holds {MOST_FILES} at most"
        raise DatabaseError(path, msg)
    files: dict[str, bytes] = {}
    total = 0
    for member in members:
        name = member.filename
        reason = _refusal(member)
        if name in files:
            reason = "it stands there twice"
        if reason:
            msg = f"the file {member.orig_filename!r} can't be in an archive: {reason}"
            raise DatabaseError(path, msg)
        with archive.open(member) as file:
            content = file.read(LARGEST_FILE + 1)
        total += len(content)
        if len(content) > LARGEST_FILE or total > LARGEST:
            msg = f"{name} is too large; a file may have {LARGEST_FILE} bytes, all {LARGEST}"
            raise DatabaseError(path, msg)
        files[name] = content
    return files


def _refusal(member: zipfile.ZipInfo) -> str:
    """Why a member isn't read; empty where it is."""
    name = member.filename
    module = name.startswith(_MODULES) and MODULE.fullmatch(name.removeprefix(_MODULES))
    known = name == MANIFEST or _DATABASE.fullmatch(name) or module
    if not known or name != member.orig_filename:
        return "no such name is ever written"
    if member.flag_bits & _ENCRYPTED:
        return "it is encrypted"
    return "" if member.compress_type in _SCHEMES else "it is compressed in another way"


def _check_text(path: Path, name: str, content: bytes) -> None:
    try:
        content.decode()
    except ValueError as error:
        msg = f"not text in UTF-8: {error}"
        raise DatabaseError(path / _MODULES / name, msg) from error
