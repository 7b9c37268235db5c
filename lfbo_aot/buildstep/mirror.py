"""From where the tuning process imports what is being built."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def import_root(build_lib: Path, sources: Mapping[str, str] | None, folder: Path) -> Path:
    """The folder that the packages being built can be imported from.

    That is `build_lib`, where the build copied them to: packages that are mapped to other folders
    have their real names there. An editable build copies nothing; then it is a folder below
    `folder` into which `sources`, by their paths in the package, are copied.
    """
    if sources is None:
        return build_lib
    mirror = folder / "mirror"
    for name, source in sources.items():
        copy = mirror / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        if Path(source).is_file():
            shutil.copyfile(source, copy)
    return mirror


def library_folder(root: Path, folder: Path) -> Path:
    """The folder that `lfbo_aot` is to be imported from: `root` if it is being built, else `folder`.

    There it gets a folder of its own: the packages beside it, of the build's environment, would hide
    those that the tuning interpreter has.
    """
    if (root / "lfbo_aot" / "__init__.py").is_file():
        return root
    import lfbo_aot

    here = folder / "library"
    here.mkdir()
    (here / "lfbo_aot").symlink_to(Path(str(lfbo_aot.__file__)).parent, target_is_directory=True)
    return here
