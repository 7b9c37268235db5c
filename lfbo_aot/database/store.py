"""The store: databases in layers, the first one first."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from typing import Protocol

from lfbo_aot.database.database import Database
from lfbo_aot.errors import AmbiguousKernelError
from lfbo_aot.errors import DatabaseError
from lfbo_aot.errors import UnknownNameError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lfbo_aot.database.declaration import Declaration

logger = logging.getLogger(__name__)

USER = "user"
BUILT_IN = "built-in"


class HasPath(Protocol):
    """Settings, as far as the store knows them."""

    @property
    def path(self) -> tuple[Path, ...]: ...


@dataclass(frozen=True, slots=True)
class Layer:
    """A database and what it is called: `user`, `built-in`, or its folder."""

    name: str
    database: Database


@dataclass(frozen=True, slots=True)
class Store:
    """Layers, of which the first that has an answer gives it. Reads only; never the working folder."""

    layers: tuple[Layer, ...]

    def over(self, path: Path) -> Store:
        """The same store with the database at `path` laid over it."""
        return Store((Layer(str(path), Database(path)), *self.layers))

    def kernels(self) -> tuple[str, ...]:
        """The ids of the kernels that a layer knows, sorted."""
        return tuple(sorted({k for layer in self.layers for k in layer.database.kernels()}))

    def find(self, name: str, more: Iterable[str] = ()) -> str:
        """The id of the kernel called `name`, by full id or by a bare name that only one has.

        `more` holds ids that are known elsewhere. Raises AmbiguousKernelError where several kernels
        have the bare name, UnknownNameError, with the nearest, where none has.
        """
        ids = {*self.kernels(), *more}
        if name in ids:
            return name
        found = [kernel_id for kernel_id in ids if kernel_id.rpartition(".")[2] == name]
        if len(found) > 1:
            raise AmbiguousKernelError(name, found)
        if found:
            return found[0]
        kind = "kernel"
        known = ids if "." in name else {kernel_id.rpartition(".")[2] for kernel_id in ids}
        raise UnknownNameError(kind, name, known, "" if ids else "The store holds no kernel.")

    def declaration(self, kernel_id: str) -> tuple[Declaration | None, tuple[DatabaseError, ...]]:
        """What the first layer that can says of a kernel, and the damage met on the way."""
        damage: list[DatabaseError] = []
        for layer in self.layers:
            try:
                found = layer.database.declaration(kernel_id)
            except DatabaseError as error:
                damage.append(error)
                continue
            if found is not None:
                return found, tuple(damage)
        return None, tuple(damage)


def default_store(settings: HasPath) -> Store:
    """The store of a process: the databases of `LFBO_AOT_PATH`, the user's, the built-in one.

    A folder of `LFBO_AOT_PATH` that isn't there is warned of, and is an empty layer.
    """
    layers: list[Layer] = []
    for path in settings.path:
        if not path.is_dir():
            logger.warning("LFBO_AOT_PATH names %s, which is no folder; it is passed over", path)
        layers.append(Layer(str(path), Database(path)))
    layers.append(Layer(USER, Database(user_database())))
    # Installed data packages (entry points `lfbo_aot.databases`) will stand here.
    layers.append(Layer(BUILT_IN, Database(built_in_database())))
    return Store(tuple(layers))


def user_database() -> Path:
    """Where `lfbo-aot tune` keeps what it isn't told to put elsewhere."""
    import platformdirs

    return Path(platformdirs.user_data_path("lfbo-aot")) / "tuned"


def built_in_database() -> Path:
    """The database that ships with lfbo-aot, wherever the installation put it."""
    import importlib.resources

    return Path(str(importlib.resources.files("lfbo_aot.tuned")))
