"""Where builds keep what must outlive them: what they tuned, for the next one, and the journals."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from lfbo_aot.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Mapping


def state_folder(environ: Mapping[str, str]) -> Path:
    """`LFBO_AOT_STATE`, else the user's cache folder; a temporary one where that can't be written.

    Raises SettingError where the folder named can't be made or written to. The cache folder is the one that `lfbo-aot tune` uses, whether or not platformdirs is installed in
    the environment of the build: building lfbo-aot itself needs nothing but setuptools.
    """
    named = environ.get("LFBO_AOT_STATE", "").strip()
    folder = Path(named).expanduser().absolute() if named else _user_cache(environ)
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    if folder.is_dir() and os.access(folder, os.W_OK):
        return folder
    if named:
        name = "LFBO_AOT_STATE"
        raise SettingError(name, named, hint="It is a folder that can be made and written to.")
    return Path(tempfile.gettempdir(), f"lfbo-aot-{os.getuid()}")


def _user_cache(environ: Mapping[str, str]) -> Path:
    try:
        import platformdirs
    except ImportError:
        cache = environ.get("XDG_CACHE_HOME", "").strip()
        return (Path(cache) if cache else Path("~/.cache").expanduser()) / "lfbo-aot"
    return Path(platformdirs.user_cache_path("lfbo-aot"))


def built_folder(state: Path, package: str) -> Path:
    """The database of what builds of `package` have tuned."""
    return state / "built" / package / "tuned"
