"""Packing: a database, or some archs of it, as a wheel that holds nothing but data."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

from lfbo_aot.database.contents import to_files
from lfbo_aot.database.installed import GROUP
from lfbo_aot.database.manifest import MANIFEST
from lfbo_aot.database.manifest import SCHEMA
from lfbo_aot.database.text import dump_page
from lfbo_aot.database.wheel import Project
from lfbo_aot.database.wheel import make_wheel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lfbo_aot.database.contents import Contents

_INIT = (
    b'"""A database of lfbo-aot: data, found by its folder. Nothing in it is imported or run."""\n'
)


def pick(contents: Contents, archs: Sequence[str], kernels: Sequence[str] = ()) -> Contents:
    """The entries for these archs (all, if none is named), and the declarations of their kernels."""
    kept = frozenset(
        place.kernel_id
        for place in contents.entries
        if (not archs or place.device.arch in archs) and (not kernels or place.kernel_id in kernels)
    )
    return contents.only(
        lambda p: p.kernel_id in kept and (not archs or p.device.arch in archs), kept
    )


def archs_of(contents: Contents) -> list[str]:
    """The archs that have an entry, sorted."""
    return sorted({place.device.arch for place in contents.entries})


def default_name(contents: Contents) -> str | None:
    """`mykern-tuned-sm90`; None where the kernels are of several packages."""
    packages = {place.kernel_id.partition(".")[0] for place in contents.entries}
    if len(packages) != 1:
        return None
    return "-".join([packages.pop().strip("_").replace("_", "-"), "tuned", *archs_of(contents)])


def default_version(contents: Contents) -> str:
    """The day of the newest entry: `2026.12.1`."""
    newest = max(entry.measured for entry in contents.entries.values())
    year, month, day = re.split(r"[-T]", newest)[:3]
    return f"{int(year)}.{int(month)}.{int(day)}"


def pack(contents: Contents, name: str, version: str, tool: str) -> tuple[str, bytes]:
    """The file name and the bytes of the wheel: the same for equal contents, name, version, tool.

    `tool` is the version of lfbo-aot. Raises ValueError on a name or version that can't be one, and
    on a name whose package would be installed over the one that the kernels are in.
    """
    devices = sorted({place.device for place in contents.entries})
    names = ", ".join(str(device) for device in devices)
    owners = sorted({kernel_id.partition(".")[0] for kernel_id in contents.declarations})
    summary = f"Tuned configs of {', '.join(owners)} for {names}: data for lfbo-aot"
    project = Project(name, version, summary, f"lfbo-aot ({tool})")
    if project.module in {owner.lower() for owner in owners}:
        msg = f"the name {name!r} is that of the kernels' own package, which it would be put over"
        raise ValueError(msg)
    files = to_files(contents)
    files[MANIFEST] = _manifest(contents, files, tool)
    files["__init__.py"] = _INIT
    inside = {f"{project.module}/{path}": content for path, content in files.items()}
    wheel = make_wheel(project, inside, {GROUP: {project.module: project.module}})
    return project.file_name, wheel


def _manifest(contents: Contents, files: dict[str, bytes], tool: str) -> bytes:
    data = {
        "schema": SCHEMA,
        "made": {"by": "lfbo-aot pack", "version": tool},
        "archs": archs_of(contents),
        "devices": sorted({str(place.device) for place in contents.entries}),
        "kernels": {k: found.source for k, found in sorted(contents.declarations.items())},
        "entries": len(contents.entries),
        "files": {
            path: "sha256:" + hashlib.sha256(content).hexdigest() for path, content in files.items()
        },
    }
    return dump_page(data).encode()
