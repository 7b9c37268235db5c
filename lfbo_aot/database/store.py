"""The store: databases in layers, the first one first."""

from __future__ import annotations

import logging
import stat
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from typing import Protocol
from typing import overload

from lfbo_aot.database.database import Database
from lfbo_aot.errors import AmbiguousKernelError
from lfbo_aot.errors import DatabaseError
from lfbo_aot.errors import UnknownNameError
from lfbo_aot.registry.locks import ForkLock

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
    """A database and what it is called: `user`, `built-in`, `package NAME`, or its folder."""

    name: str
    database: Database
    package: bool = False
    """Whether an installed data package brought it."""


class Layers(Sequence[Layer]):
    """Layers in order, some of which are only looked for when the ones before have been asked."""

    def __init__(self, parts: Sequence[Layer | Callable[[], Sequence[Layer]]]) -> None:
        self._parts = list(parts)
        self._lock = ForkLock()

    def __iter__(self) -> Iterator[Layer]:
        index = 0
        while index < len(self._parts):
            part = self._parts[index]
            if isinstance(part, Layer):
                yield part
                index += 1
            else:
                self._look_for(part)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    @overload
    def __getitem__(self, index: int) -> Layer: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Layer]: ...

    def __getitem__(self, index: int | slice) -> Layer | Sequence[Layer]:
        return tuple(self)[index]

    def under(self, layer: Layer) -> Layers:
        """The same layers below `layer`; none is looked for."""
        return Layers([layer, *self._parts])

    def _look_for(self, part: Callable[[], Sequence[Layer]]) -> None:
        with self._lock:
            if part in self._parts:  # else another thread came first
                index = self._parts.index(part)
                self._parts[index : index + 1] = part()


@dataclass(frozen=True, slots=True)
class Store:
    """Layers, of which the first that has an answer gives it. Reads only; never the working folder."""

    layers: Sequence[Layer]

    def over(self, path: Path) -> Store:
        """The same store with the database at `path` laid over it."""
        layers = self.layers if isinstance(self.layers, Layers) else Layers(self.layers)
        return Store(layers.under(Layer(str(path), Database(path))))

    def kernels(self) -> tuple[str, ...]:
        """The ids of the kernels that a layer knows, sorted."""
        return tuple(sorted({k for layer in self.layers for k in layer.database.kernels()}))

    def find(self, name: str, more: Iterable[str] = ()) -> str:
        """The id of the kernel called `name`, by full id or by a bare name that only one has.

        `more` holds ids that are known elsewhere. Raises AmbiguousKernelError where several kernels
        have the bare name, UnknownNameError, with the nearest, where none has.
        """
        elsewhere = set(more)
        # A full id needs no more layers than hold it.
        if name in elsewhere or any(layer.database.has(name) for layer in self.layers):
            return name
        ids = {*self.kernels(), *elsewhere}
        found = [kernel_id for kernel_id in ids if kernel_id.rpartition(".")[2] == name]
        if len(found) > 1:
            raise AmbiguousKernelError(name, found)
        if found:
            return found[0]
        kind = "kernel"
        known = ids if "." in name else {kernel_id.rpartition(".")[2] for kernel_id in ids}
        closed = [str(e) for layer in self.layers for e in layer.database.unreadable()]
        hint = "; ".join(closed) or ("" if ids else "The store holds no kernel.")
        raise UnknownNameError(kind, name, known, hint)

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
    """The store of a process: `LFBO_AOT_PATH`, the user's, installed data packages, the built-in one.

    A folder of `LFBO_AOT_PATH` that isn't there is warned of, and is an empty layer. Data packages
    are searched for when a look-up gets there.
    """
    layers: list[Layer | Callable[[], Sequence[Layer]]] = []
    for path in settings.path:
        if is_missing(path):
            logger.warning("LFBO_AOT_PATH names %s, which is no folder; it is passed over", path)
        layers.append(Layer(str(path), Database(path)))
    layers.append(Layer(USER, Database(user_database())))
    layers.append(package_layers)
    layers.append(Layer(BUILT_IN, Database(built_in_database())))
    return Store(Layers(layers))


def is_missing(path: Path) -> bool:
    """Whether there is no such folder; one that can't be looked at may be there, and isn't missing."""
    try:
        return not stat.S_ISDIR(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False


def package_layers() -> tuple[Layer, ...]:
    """The databases of installed data packages, by the distributions' names."""
    from lfbo_aot.database.installed import data_packages

    return tuple(
        Layer(f"package {package.name}", Database(package.path), package=True)
        for package in data_packages()
        if package.path is not None
    )


def user_database() -> Path:
    """Where `lfbo-aot tune` keeps what it isn't told to put elsewhere."""
    import platformdirs

    return Path(platformdirs.user_data_path("lfbo-aot")) / "tuned"


def built_in_database() -> Path:
    """The database that ships with lfbo-aot, wherever the installation put it."""
    import importlib.resources

    return Path(str(importlib.resources.files("lfbo_aot.tuned")))
