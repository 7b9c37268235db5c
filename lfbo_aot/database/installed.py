"""Installed data packages: databases that distributions announce as `lfbo_aot.databases`.

An entry point's value is the dotted name of a package that holds a database, such as
`mykern.tuned`. It is found without importing that package or the one above it, so nothing of a data
package is ever executed. The distributions are searched once in a process, when first asked for.
"""

from __future__ import annotations

import logging
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lfbo_aot.database.manifest import read_manifest
from lfbo_aot.errors import DatabaseError
from lfbo_aot.registry.locks import ForkLock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.machinery import ModuleSpec
    from importlib.metadata import Distribution
    from importlib.metadata import EntryPoint

GROUP = "lfbo_aot.databases"
_OWN = "lfbo-aot"  # its database is the built-in layer
_DOTTED = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DataPackage:
    """An announced database: where it is, or why it is passed over."""

    name: str
    """Of the distribution, and of the entry point where it has several."""
    package: str
    """What the entry point names."""
    path: Path | None
    reason: str = ""


_lock = ForkLock()
_found: tuple[DataPackage, ...] | None = None


def data_packages() -> tuple[DataPackage, ...]:
    """All announced databases, by the distributions' names; those passed over too.

    The first call searches, and warns of each that can't be used.
    """
    global _found  # noqa: PLW0603 - the one place that holds it
    found = _found
    if found is None:
        with _lock:
            if _found is None:
                _found = tuple(_search())
                for package in _found:
                    if package.path is None:
                        logger.warning(
                            "data package %s is passed over: %s", package.name, package.reason
                        )
            found = _found
    return found


def forget() -> None:
    """Search again when next asked: for tests, and after something was installed."""
    global _found  # noqa: PLW0603
    with _lock:
        _found = None


def _search() -> list[DataPackage]:
    found: dict[str, list[DataPackage]] = {}
    for distribution in _distributions():
        try:
            # Most have no such group; reading the text is a tenth of parsing it.
            if GROUP not in (distribution.read_text("entry_points.txt") or ""):
                continue
            points = sorted(distribution.entry_points.select(group=GROUP))
            name = re.sub(r"[-_.]+", "-", str(distribution.metadata["Name"])).lower()
        except Exception as error:  # noqa: BLE001 - one broken distribution must not hide the others
            logger.warning("a distribution's metadata can't be read: %s", error)
            continue
        if name == _OWN or name in found:
            continue  # of two distributions of one name the first on the path is the installed one
        several = len(points) > 1
        found[name] = [
            _locate(f"{name}:{p.name}" if several else name, p, distribution) for p in points
        ]
    return [package for name in sorted(found) for package in found[name]]


def _distributions() -> list[Distribution]:
    """What is installed. `""` on the path is the working folder, which is never a layer."""
    from importlib import metadata

    try:
        return list(metadata.distributions(path=[entry for entry in sys.path if entry]))
    except Exception as error:  # noqa: BLE001 - finders are others' code; a look-up goes on without
        logger.warning("installed data packages can't be searched: %s", error)
        return []


def _locate(name: str, point: EntryPoint, distribution: Distribution) -> DataPackage:
    """Where the package that `point` names is, without importing it."""
    package = point.value.strip()
    path: Path | None = None
    try:
        if _DOTTED.fullmatch(package) is None:
            reason = f"{package!r} isn't the dotted name of a package"
        else:
            path = next((p for p in _folders(package, distribution) if p.is_dir()), None)
            reason = "" if path is not None else f"there is no folder of the package {package!r}"
        if path is not None:
            read_manifest(path)
    except DatabaseError as error:
        path, reason = None, str(error)
    except Exception as error:  # noqa: BLE001 - import hooks are others' code and may raise anything
        path, reason = None, f"{package!r} can't be found: {type(error).__name__}: {error}"
    return DataPackage(name, package, path, reason)


def _folders(package: str, distribution: Distribution) -> Iterator[Path]:
    """Where the package may be, the likeliest first.

    Beside the metadata, as wheels are installed. Else, as in editable installs, where the import
    system would look: the folder of the package above is searched first, then import hooks are
    asked, which know of packages that are mapped to another place.
    """
    parts = package.split(".")
    yield Path(str(distribution.locate_file("/".join(parts))))
    above: list[Path] | None = None  # None: the import path
    for depth in range(1, len(parts) + 1):
        name = ".".join(parts[:depth])
        inside = [folder / parts[depth - 1] for folder in above or () if folder.is_dir()]
        above = [p for p in inside if p.is_dir()] or _spec_folders(name, above)
    yield from above or ()


def _spec_folders(name: str, above: list[Path] | None) -> list[Path]:
    """The folders of package `name`, of which the one above is in the folders `above`."""
    search = None if above is None else [str(folder) for folder in above]
    for finder in sys.meta_path:
        find_spec = getattr(finder, "find_spec", None)
        spec: ModuleSpec | None = None if find_spec is None else find_spec(name, search, None)
        if spec is not None:
            return _spec_locations(spec)
    return []


def _spec_locations(spec: ModuleSpec) -> list[Path]:
    locations = spec.submodule_search_locations
    if locations is None:
        return []  # a module, not a package
    # The path of a namespace below another package can't be walked until that one is imported; what
    # it was made from can.
    found = getattr(locations, "_path", locations)
    return [Path(str(location)) for location in found]
