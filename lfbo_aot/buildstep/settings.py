"""Settings of a build: the environment over `-C key=value` over the table `[tool.lfbo_aot]`."""

from __future__ import annotations

import contextlib
import contextvars
import math
from dataclasses import dataclass
from dataclasses import fields
from pathlib import PurePosixPath
from typing import TYPE_CHECKING
from typing import Any

from lfbo_aot.errors import SettingError
from lfbo_aot.errors import UnknownNameError
from lfbo_aot.registry.devices import normalize_arch
from lfbo_aot.runtime.settings import DEVICES
from lfbo_aot.runtime.settings import NAMES
from lfbo_aot.runtime.settings import PREFIX
from lfbo_aot.runtime.settings import TUNE
from lfbo_aot.runtime.settings import from_environment
from lfbo_aot.runtime.settings import one_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Mapping
    from pathlib import Path

TABLE = "[tool.lfbo_aot]"
FROM_COMMAND = ("tune", "archs", "budget", "trials", "python", "device")
"""The keys that `-C` sets too; the others say what a project is, not how it is built today."""

_command: contextvars.ContextVar[Mapping[str, object] | None] = contextvars.ContextVar(
    "lfbo_aot_config_settings", default=None
)


@dataclass(frozen=True, slots=True)
class BuildSettings:
    """One value a key of the table, with its default."""

    package: str
    """The package that receives `tuned/`."""
    source: str = "tuned"
    """The checked-in database, below the project's root. A build never writes to it."""
    kernels: tuple[str, ...] = ()
    """The modules that declare kernels; the package itself, if none is named."""
    archs: tuple[str, ...] = ()
    """The archs that must be complete; those of `source` and of the GPU here, if none is named."""
    tune: str = "auto"
    """`auto`, `require` or `off`."""
    budget: float = 300.0
    """Seconds that a build may spend on tuning."""
    trials: int | None = None
    """At most so many trials a bucket; None: as many as the time allows."""
    python: str | None = None
    """The interpreter that has torch, Helion and a GPU; None: the installing one."""
    device: str = "auto"
    """`auto`, `gpu` or `interpreter`: what tunes. `auto` is a GPU here, never the interpreter."""
    unknown_variables: tuple[str, ...] = ()
    """Variables that start with `LFBO_AOT_` and mean nothing."""


KEYS = tuple(f.name for f in fields(BuildSettings) if f.name != "unknown_variables")


def load(
    table: Mapping[str, object],
    environ: Mapping[str, str],
    command: Mapping[str, object] | None = None,
) -> BuildSettings:
    """The settings of a project whose table is `table`.

    `command` holds the `-C` settings; None: those of the build under way. Raises UnknownNameError,
    with the nearest, for a key that isn't one, and SettingError for a value that can't be.
    """
    values = {key: _value(f"{TABLE} {key}", key, table[key]) for key in _known(table, KEYS, TABLE)}
    given = (_command.get() or {}) if command is None else command
    for key in _known(given, FROM_COMMAND, "-C"):
        values[key] = _value(f"-C {key}", key, given[key])
    values.update(_from_environment(environ))
    if "package" not in values:
        msg = f"{TABLE} package"
        raise SettingError(msg, "", hint="It names the package that receives the tuned database.")
    values.setdefault("kernels", (values["package"],))
    names = {PREFIX + name for name in NAMES}
    unknown = sorted(name for name in environ if name.startswith(PREFIX) and name not in names)
    return BuildSettings(**values, unknown_variables=tuple(unknown))


@contextlib.contextmanager
def from_command(given: Mapping[str, object]) -> Iterator[None]:
    """For the time of the context, `given` are the `-C` settings. Raises as `load` does."""
    for key in _known(given, FROM_COMMAND, "-C"):
        _value(f"-C {key}", key, given[key])
    token = _command.set(given)
    try:
        yield
    finally:
        _command.reset(token)


def _known(given: Mapping[str, object], keys: tuple[str, ...], where: str) -> list[str]:
    for key in given:
        if key not in keys:
            kind = f"key of {where}"
            raise UnknownNameError(kind, key, keys)
    return list(given)


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    known = {PREFIX + name for name in NAMES}
    settings = from_environment({k: v for k, v in environ.items() if k in known})
    found: dict[str, Any] = {}
    if settings.tune is not None:
        found["tune"] = settings.tune
    if settings.archs:
        found["archs"] = _archs(PREFIX + "ARCHS", list(settings.archs))
    if settings.budget is not None:
        found["budget"] = settings.budget
    if settings.python is not None:
        found["python"] = settings.python
    if environ.get(PREFIX + "DEVICE", "").strip():
        found["device"] = settings.device
    return found


def _value(name: str, key: str, value: object) -> Any:
    """`value` as the settings hold it; `name` is what an error calls it."""
    if key in ("archs", "kernels"):
        words = _words(name, value)
        return _archs(name, words) if key == "archs" else _modules(name, words)
    if key in ("budget", "trials"):
        return _number(name, value, whole=key == "trials")
    if not isinstance(value, str) or not value.strip():
        raise SettingError(name, str(value), hint="It is text.")
    if key in ("tune", "device"):
        return one_of(name, value, TUNE if key == "tune" else DEVICES)
    if key == "source":
        return _inside(name, value)
    if key == "package" and not _is_dotted(value):
        raise SettingError(name, value, hint="It is a package's dotted name.")
    return value


def _is_dotted(value: str) -> bool:
    return all(part.isidentifier() for part in value.split("."))


def _modules(name: str, words: list[str]) -> tuple[str, ...]:
    for word in words:
        if not _is_dotted(word):
            raise SettingError(name, word, hint="It is a module's dotted name, such as mykern.ops.")
    return tuple(words)


def _words(name: str, value: object) -> list[str]:
    if isinstance(value, str):
        return value.replace(",", " ").split()
    if isinstance(value, (list, tuple)) and all(isinstance(v, str) and v.strip() for v in value):
        return list(value)
    raise SettingError(name, str(value), hint='It is a list of names, such as ["sm90", "sm100"].')


def _archs(name: str, words: list[str]) -> tuple[str, ...]:
    try:
        return tuple(dict.fromkeys(normalize_arch(word) for word in words))
    except UnknownNameError as error:
        raise SettingError(name, " ".join(words), hint=str(error)) from None


def _number(name: str, value: object, *, whole: bool) -> float | int:
    try:
        number = math.nan if isinstance(value, bool) else float(str(value))
    except ValueError:
        number = math.nan
    if whole:
        if number >= 1 and number == int(number):
            return int(number)
        raise SettingError(name, str(value), hint="It is a whole number from 1 up.")
    if not (math.isfinite(number) and number >= 0):
        raise SettingError(name, str(value), hint="It is a number of seconds, such as 300.")
    return number


def _inside(name: str, value: str) -> str:
    path = PurePosixPath(value)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        hint = "It is a folder below the project's root, such as tuned."
        raise SettingError(name, value, hint=hint)
    return str(path)


def read_table(root: Path) -> Mapping[str, object] | None:
    """The table of the project at `root`; None where it has none, or pyproject.toml isn't TOML."""
    try:
        text = (root / "pyproject.toml").read_bytes().decode()
    except (OSError, ValueError):
        return None
    if "lfbo_aot" not in text:
        return None
    found = _parse(text).get("tool", {})
    table = found.get("lfbo_aot") if isinstance(found, dict) else None
    return table if isinstance(table, dict) else None


def _parse(text: str) -> dict[str, Any]:
    import sys

    if sys.version_info >= (3, 11):
        import tomllib
    else:
        # Every setuptools that this project supports brings a TOML reader along on Python 3.10.
        from setuptools.compat.py310 import tomllib
    try:
        found: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return {}  # setuptools reads the same file, and says where it is wrong
    return found
