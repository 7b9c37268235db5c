"""A PEP 517 build backend: setuptools' own, with settings by `-C key=value`.

    [build-system]
    requires = ["setuptools>=77", "lfbo-aot"]
    build-backend = "lfbo_aot.build_meta"

The keys are those of `lfbo_aot.buildstep.settings.FROM_COMMAND`; what setuptools knows is passed on
to it. Projects that need no `-C` keep `setuptools.build_meta`: the build step runs there too.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from setuptools import build_meta as _setuptools

from lfbo_aot.buildstep.interpreter import find_interpreter
from lfbo_aot.buildstep.settings import from_command
from lfbo_aot.buildstep.settings import load
from lfbo_aot.buildstep.settings import read_table
from lfbo_aot.errors import LfboAotError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Mapping

    Config = Mapping[str, object]

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

TUNE = "lfbo-aot[tune]"
_SETUPTOOLS = ("--build-option", "--global-option", "editable_mode")


@contextlib.contextmanager
def _settings(config: Config | None) -> Iterator[Config]:
    """Our settings are in force in the context; what is setuptools' is the value.

    A wrong setting ends the backend with one line, where an exception would show as a traceback.
    """
    theirs = {key: value for key, value in (config or {}).items() if key in _SETUPTOOLS}
    ours = {key: value for key, value in (config or {}).items() if key not in _SETUPTOOLS}
    try:
        with from_command(ours):
            yield theirs
    except LfboAotError as error:
        msg = f"error: {error}"
        raise SystemExit(msg) from error


def get_requires_for_build_wheel(config_settings: Config | None = None) -> list[str]:
    """What setuptools asks for; and all that tuning needs, where only that can make it happen.

    That is where tuning is required, no interpreter is named, and the installing one can't tune:
    torch and Helion are gigabytes that nobody should download for a build that can do without.
    """
    with _settings(config_settings) as theirs:
        found = list(_setuptools.get_requires_for_build_wheel(theirs))
        settings = load(read_table(Path()) or {}, os.environ)
        if settings.tune == "require" and settings.python is None:
            search = find_interpreter(None, os.environ)
            found += [] if search.found is not None else [TUNE]
        return found


def get_requires_for_build_sdist(config_settings: Config | None = None) -> list[str]:
    """What setuptools asks for."""
    with _settings(config_settings) as theirs:
        return list(_setuptools.get_requires_for_build_sdist(theirs))


def get_requires_for_build_editable(config_settings: Config | None = None) -> list[str]:
    """What setuptools asks for."""
    with _settings(config_settings) as theirs:
        return list(_setuptools.get_requires_for_build_editable(theirs))


def prepare_metadata_for_build_wheel(
    metadata_directory: str, config_settings: Config | None = None
) -> str:
    """The name of the `.dist-info` folder made in `metadata_directory`."""
    with _settings(config_settings) as theirs:
        return str(_setuptools.prepare_metadata_for_build_wheel(metadata_directory, theirs))


def prepare_metadata_for_build_editable(
    metadata_directory: str, config_settings: Config | None = None
) -> str:
    """The name of the `.dist-info` folder made in `metadata_directory`."""
    with _settings(config_settings) as theirs:
        return str(_setuptools.prepare_metadata_for_build_editable(metadata_directory, theirs))


def build_wheel(
    wheel_directory: str,
    config_settings: Config | None = None,
    metadata_directory: str | None = None,
) -> str:
    """The name of the wheel made in `wheel_directory`."""
    with _settings(config_settings) as theirs:
        return str(_setuptools.build_wheel(wheel_directory, theirs, metadata_directory))


def build_editable(
    wheel_directory: str,
    config_settings: Config | None = None,
    metadata_directory: str | None = None,
) -> str:
    """The name of the editable wheel made in `wheel_directory`."""
    with _settings(config_settings) as theirs:
        return str(_setuptools.build_editable(wheel_directory, theirs, metadata_directory))


def build_sdist(sdist_directory: str, config_settings: Config | None = None) -> str:
    """The name of the sdist made in `sdist_directory`."""
    with _settings(config_settings) as theirs:
        return str(_setuptools.build_sdist(sdist_directory, theirs))
