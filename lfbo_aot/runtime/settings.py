"""Settings: what the environment variables `LFBO_AOT_*` say, read once for a process."""

from __future__ import annotations

import functools
import logging
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lfbo_aot.errors import SettingError
from lfbo_aot.errors import nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

logger = logging.getLogger(__name__)

PREFIX = "LFBO_AOT_"
POLICIES = ("exact", "compatible", "any")
ON_MISS = ("default", "error", "tune")
TUNE = ("auto", "require", "off")
DEVICES = ("gpu", "interpreter", "auto")
NAMES = (
    "PATH",
    "POLICY",
    "ON_MISS",
    "RECORD_MISSES",
    "TUNE",
    "ARCHS",
    "BUDGET",
    "PYTHON",
    "DEVICE",
    "STATE",
)


@dataclass(frozen=True, slots=True)
class Settings:
    """One value a variable; None and empty stand for a variable that isn't set."""

    path: tuple[Path, ...] = ()
    """Databases laid over the rest, the first one first."""
    policy: str = "compatible"
    on_miss: str = "default"
    record_misses: Path | None = None
    tune: str | None = None
    archs: tuple[str, ...] = ()
    budget: float | None = None
    """Seconds."""
    python: str | None = None
    device: str = "auto"
    state: Path | None = None

    @property
    def state_folder(self) -> Path:
        """Where journals and locks of tuning runs are kept."""
        if self.state is not None:
            return self.state
        import platformdirs

        return Path(platformdirs.user_cache_path("lfbo-aot"))


def from_environment(environ: Mapping[str, str]) -> Settings:
    """What `environ` says; SettingError, with the allowed values, where one isn't valid.

    An empty variable counts as not set. A variable that starts with `LFBO_AOT_` and means nothing is
    warned of, with the nearest that does.
    """
    _warn_of_unknown(environ)

    def text(name: str) -> str | None:
        return environ.get(PREFIX + name, "").strip() or None

    def choice(name: str, allowed: tuple[str, ...]) -> str | None:
        value = text(name)
        return None if value is None else one_of(PREFIX + name, value, allowed)

    def path(name: str) -> Path | None:
        value = text(name)
        return None if value is None else Path(value).expanduser().absolute()

    return Settings(
        path=_folders(environ.get(PREFIX + "PATH", "")),
        policy=choice("POLICY", POLICIES) or "compatible",
        on_miss=choice("ON_MISS", ON_MISS) or "default",
        record_misses=path("RECORD_MISSES"),
        tune=choice("TUNE", TUNE),
        archs=tuple((text("ARCHS") or "").replace(",", " ").split()),
        budget=_seconds(PREFIX + "BUDGET", text("BUDGET")),
        python=text("PYTHON"),
        device=choice("DEVICE", DEVICES) or "auto",
        state=path("STATE"),
    )


@functools.cache
def current() -> Settings:
    """The settings of this process: what the environment held when they were first asked for."""
    return from_environment(os.environ)


def one_of(name: str, value: object, allowed: tuple[str, ...]) -> str:
    """`value` if it is among `allowed`; else SettingError, naming the setting and the nearest."""
    if not isinstance(value, str) or value not in allowed:
        raise SettingError(name, str(value), allowed)
    return value


def _folders(text: str) -> tuple[Path, ...]:
    """The folders of a search path. An empty part is none: the working folder is never meant."""
    parts = (part.strip() for part in text.split(os.pathsep))
    return tuple(Path(part).expanduser().absolute() for part in parts if part)


def _seconds(name: str, text: str | None) -> float | None:
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds >= 0):
        raise SettingError(name, text, hint="It is a number of seconds, such as 300.")
    return seconds


def _warn_of_unknown(environ: Mapping[str, str]) -> None:
    known = [PREFIX + name for name in NAMES]
    for name in sorted(environ):
        if name.startswith(PREFIX) and name not in known:
            near = nearest(name, known, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            logger.warning("the environment variable %s means nothing%s", name, hint)
