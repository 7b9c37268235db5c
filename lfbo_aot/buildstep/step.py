"""The build step itself, which knows nothing of setuptools: from what is checked in to what ships."""

from __future__ import annotations

import dataclasses
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lfbo_aot.buildstep.ask import KEPT
from lfbo_aot.buildstep.ask import Request
from lfbo_aot.buildstep.checked import read_checked_in
from lfbo_aot.buildstep.interpreter import find_interpreter
from lfbo_aot.buildstep.manifest import manifest
from lfbo_aot.buildstep.manifest import refusal
from lfbo_aot.buildstep.manifest import summary
from lfbo_aot.buildstep.mirror import import_root
from lfbo_aot.buildstep.outcome import Asked
from lfbo_aot.buildstep.outcome import compose
from lfbo_aot.buildstep.recall import fingerprint
from lfbo_aot.buildstep.recall import recall
from lfbo_aot.buildstep.recall import remember
from lfbo_aot.buildstep.start import ask_child
from lfbo_aot.buildstep.state import built_folder
from lfbo_aot.buildstep.state import state_folder
from lfbo_aot.buildstep.target import INIT
from lfbo_aot.buildstep.target import INIT_TEXT
from lfbo_aot.buildstep.target import MANIFEST
from lfbo_aot.buildstep.target import write_target
from lfbo_aot.buildstep.turns import wait_for_turn
from lfbo_aot.buildstep.unchanged import unchanged
from lfbo_aot.errors import BuildError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lfbo_aot.buildstep.ask import Answer
    from lfbo_aot.buildstep.checked import Checked
    from lfbo_aot.buildstep.interpreter import Interpreter
    from lfbo_aot.buildstep.outcome import Outcome
    from lfbo_aot.buildstep.settings import BuildSettings


class BuildSummary(UserWarning):
    """What a build did about tuning: a warning, as front ends hide all else that a build says."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a build takes place; the paths are absolute."""

    root: Path
    """The project."""
    build_lib: Path
    """What is packed: the packages have been copied there, in an editable build they haven't."""
    version: str
    """The project's."""
    sources: Mapping[str, str] | None = None
    """In an editable build: where the file of each path in a package lies."""

    @property
    def editable(self) -> bool:
        """Whether the checkout itself is installed."""
        return self.sources is not None


@dataclass(frozen=True, slots=True)
class Folders:
    """What a build uses besides the project."""

    root: Path
    """What is being built can be imported from here."""
    temporary: Path


def run_step(settings: BuildSettings, place: Place, environ: Mapping[str, str]) -> Outcome:
    """Write the database that ships below `place.build_lib`, and warn once of what was done.

    An editable build writes no database: it serves the checkout's, and tunes nothing. Raises
    BuildError, after all that could be kept was kept, where `require` isn't met; SettingError where
    the interpreter named isn't one.
    """
    if not place.editable:
        wait_for_turn(place.build_lib.parent)
    source = place.root / settings.source
    checked = read_checked_in(source, settings.source)
    with tempfile.TemporaryDirectory(prefix="lfbo-aot-build-") as temporary:
        root = import_root(place.build_lib, place.sources, Path(temporary))
        folders = Folders(root, Path(temporary))
        asked = Asked()
        if settings.tune == "require" or (settings.tune == "auto" and not place.editable):
            search = find_interpreter(settings.python, environ)
            asked = Asked(search)
            if search.found is not None:
                known = _known(settings, checked, search.found, root)
                asked = (
                    Asked(search, *_ask(settings, place, search.found, folders, environ))
                    if known is None
                    else Asked(search, known)
                )
        outcome = compose(settings, place.version, checked, asked, root)
        outcome.editable = place.editable
    target = place.build_lib.joinpath(*settings.package.split("."), "tuned")
    own_init = source / INIT
    if not place.editable:
        init = own_init.read_bytes() if own_init.is_file() else INIT_TEXT
        write_target(target, {**outcome.files, INIT: init, MANIFEST: manifest(outcome)})
    elif not own_init.is_file():
        # Import hooks of editable installs find no folder in a package that isn't one itself.
        _make_package(source, own_init, outcome)
    if settings.tune == "require" and outcome.unmet:
        raise BuildError(refusal(outcome))
    if _worth_telling(outcome):
        warnings.warn(summary(outcome), BuildSummary, stacklevel=2)
    return outcome


def _make_package(source: Path, init: Path, outcome: Outcome) -> None:
    """Make the checkout's database a package that is found; the database itself isn't touched."""
    try:
        source.mkdir(parents=True, exist_ok=True)
        init.write_bytes(INIT_TEXT)
    except OSError as error:
        note = f"{init.name} can't be written to {source.name}, so it isn't found: {error.strerror}"
        outcome.notes.append(note)


def _known(
    settings: BuildSettings, checked: Checked, found: Interpreter, root: Path
) -> Answer | None:
    """What the tuning process would answer, where that needs no asking.

    `require` always asks: it is what a release is checked by, and a kernel's module that can't be
    imported any more, because of another package, is only found out by importing it.
    """
    if settings.tune == "require":
        return None
    return unchanged(settings.kernels, settings.archs, checked, found, root)


def _ask(
    settings: BuildSettings,
    place: Place,
    found: Interpreter,
    folders: Folders,
    environ: Mapping[str, str],
) -> tuple[Answer | None, str]:
    """What the tuning process answers, or None; and how it ended, where it failed."""
    state = state_folder(environ)
    request = Request(
        modules=settings.kernels,
        library="",
        roots=(str(folders.root),),
        source=str(place.root / settings.source),
        built=str(built_folder(state, settings.package)),
        state=str(state),
        archs=settings.archs,
        device=settings.device,
        budget_s=settings.budget,
        trials=settings.trials,
        tune=not place.editable,
    )
    answers = Path(request.built).parent / "answers"
    target = folders.root.joinpath(*settings.package.split("."), "tuned")
    digest = fingerprint(request, found, folders.root, target)
    known = recall(answers, digest)
    if known is not None:
        return known, ""
    answer, failure = ask_child(request, found, folders.root, folders.temporary)
    if answer is not None and not failure and found.helion is not None:
        remember(answers, digest, request, dataclasses.replace(answer), folders.root)
    return answer, failure


def _worth_telling(out: Outcome) -> bool:
    """Whether anything but keeping what is checked in happened."""
    dull = all(row.status == KEPT for row in out.rows)
    return not (dull and out.rows and not out.left_out and not out.notes and not out.problems)
