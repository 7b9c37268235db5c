"""`build_tuned`, the setuptools command: a thin layer over `buildstep.step`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING
from typing import Any
from typing import ClassVar

import setuptools
from setuptools.errors import SetupError

from lfbo_aot.buildstep import sdist
from lfbo_aot.buildstep.settings import load
from lfbo_aot.buildstep.settings import read_table
from lfbo_aot.buildstep.step import Place
from lfbo_aot.buildstep.step import run_step
from lfbo_aot.buildstep.target import files_on_disk
from lfbo_aot.errors import LfboAotError

if TYPE_CHECKING:
    from setuptools import Distribution

    from lfbo_aot.buildstep.settings import BuildSettings

NAME = "build_tuned"


class BuildTuned(setuptools.Command):  # type: ignore[misc]
    """Puts the tuned database into what is built, after tuning what it lacks."""

    description = "tune what the checked-in database lacks, and put it into the package"
    user_options: ClassVar[list[tuple[str, str | None, str | None]]] = []

    editable_mode: bool = False
    build_lib: str | None = None

    def initialize_options(self) -> None:
        self.build_lib = None
        self.editable_mode = False

    def finalize_options(self) -> None:
        self.set_undefined_options("build", ("build_lib", "build_lib"))
        self.root = _root(self.distribution)
        self.settings = _settings(self.distribution)

    def run(self) -> None:
        place = Place(
            root=self.root.absolute(),
            build_lib=Path(str(self.build_lib)).absolute(),
            version=self.distribution.get_version(),
            sources=self._sources() if self.editable_mode else None,
        )
        try:
            run_step(self.settings, place, os.environ)
        except LfboAotError as error:
            raise SetupError(str(error)) from error
        if self.editable_mode:
            self._map_package()

    def get_source_files(self) -> list[str]:
        """The checked-in database, for the sdist."""
        folder = self.root / self.settings.source
        return [str(Path(self.settings.source, name)) for name in files_on_disk(folder)]

    def get_outputs(self) -> list[str]:
        """What the build puts, or will put, below `build_lib`."""
        built = files_on_disk(self._target)
        names = built or [*files_on_disk(self.root / self.settings.source), "__init__.py"]
        return sorted({str(self._target / name) for name in names})

    def get_output_mapping(self) -> dict[str, str]:
        """Files of the package that are files of the checkout: in an editable install, all."""
        if not self.editable_mode:
            return {}
        return {
            str(self._target / Path(n).relative_to(self.settings.source)): n
            for n in self.get_source_files()
        }

    @property
    def _target(self) -> Path:
        return Path(str(self.build_lib), *self.settings.package.split("."), "tuned")

    def _map_package(self) -> None:
        """Make the checked-in folder the package that serving processes look for.

        The finder of a lenient editable install knows the packages of the distribution, and no
        others. `build_py` must not hear of this one: it would take it for a package of Python files.
        """
        dist = self.distribution
        name = f"{self.settings.package}.tuned"
        if name in (dist.packages or []):
            return
        dist.packages = [*(dist.packages or []), name]
        # In place: the command that makes the editable wheel holds on to this dictionary.
        if dist.package_dir is None:
            dist.package_dir = {}
        dist.package_dir[name] = self.settings.source

    def _sources(self) -> dict[str, str]:
        """Where each module that an editable build doesn't copy lies, by its path in the package."""
        found: dict[str, str] = {}
        for name in self.distribution.get_command_obj("build").get_sub_commands():
            command = self.get_finalized_command(name)
            if name != NAME and hasattr(command, "get_output_mapping"):
                for output, source in command.get_output_mapping().items():
                    found[os.path.relpath(output, self.build_lib)] = str(
                        self.root.absolute() / source
                    )
        return found


def add_to(dist: Distribution) -> None:
    """Make `build_tuned` a part of this project's `build`, and its source archives reproducible."""
    dist.cmdclass.setdefault(NAME, BuildTuned)
    dist.cmdclass["build"] = with_tuned(dist.get_command_class("build"))
    dist.cmdclass["sdist"] = with_equal_bytes(dist.get_command_class("sdist"))


def with_tuned(build: type[setuptools.Command]) -> type[setuptools.Command]:
    """A subclass of the command class `build` that runs `build_tuned` last; itself if it does."""
    if any(name == NAME for name, _ in build.sub_commands):
        return build

    class BuildWithTuned(build):  # type: ignore[misc]
        sub_commands: ClassVar = [*build.sub_commands, (NAME, None)]

    BuildWithTuned.__name__ = BuildWithTuned.__qualname__ = "build"
    return BuildWithTuned


def with_equal_bytes(command: type[setuptools.Command]) -> type[setuptools.Command]:
    """A subclass of the command class `sdist` that heeds SOURCE_DATE_EPOCH, as wheels do."""

    class SdistOfEqualBytes(command):  # type: ignore[misc]
        def make_archive(self, *args: Any, **kwargs: Any) -> str:
            made = str(super().make_archive(*args, **kwargs))
            epoch = os.environ.get(sdist.VARIABLE, "").strip()
            if epoch and made.endswith(sdist.SUFFIX):
                if not epoch.isdecimal():
                    msg = f"{sdist.VARIABLE}={epoch!r} is not a whole number of seconds"
                    raise SetupError(msg)
                sdist.normalize(Path(made), int(epoch))
            return made

    SdistOfEqualBytes.__name__ = SdistOfEqualBytes.__qualname__ = "sdist"
    return SdistOfEqualBytes


def _root(dist: Distribution) -> Path:
    return Path(dist.src_root or os.curdir)


def _settings(dist: Distribution) -> BuildSettings:
    try:
        return load(read_table(_root(dist)) or {}, os.environ)
    except LfboAotError as error:
        raise SetupError(str(error)) from error
