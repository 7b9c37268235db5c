"""Every error that lfbo-aot raises on purpose, as one tree under `LfboAotError`."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_FEW = 12  # names that may be listed whole
_TUNE_LIBRARIES = ("helion", "torch", "triton", "packaging", "numpy", "sklearn", "filelock")


def nearest(word: str, known: Iterable[str], count: int = 3) -> list[str]:
    """The known words most like `word`, best first; empty where none is close."""
    candidates = list(known)
    found = difflib.get_close_matches(word, candidates, n=count, cutoff=0.5)
    found += [k for k in candidates if word and word in k and k not in found]
    return found[:count]


def suggestion(word: str, known: Iterable[str]) -> str:
    """A sentence that names the nearest known words, or lists all of a short list."""
    candidates = sorted(known)
    close = nearest(word, candidates)
    if close:
        return "Did you mean " + " or ".join(repr(c) for c in close) + "?"
    if candidates and len(candidates) <= _FEW:
        return "Known: " + ", ".join(candidates) + "."
    return ""


class LfboAotError(Exception):
    """The root of the tree; `except LfboAotError` catches all of them."""


class DeclarationError(LfboAotError):
    """A kernel was declared in a way that can't hold: names the kernel, the dim and the place."""

    def __init__(
        self, reason: str, *, kernel: str | None = None, dim: str | None = None, place: str = ""
    ) -> None:
        self.reason = reason
        self.kernel = kernel
        self.dim = dim
        self.place = place
        where = [f"kernel {kernel!r}"] if kernel else []
        where += [f"dim {dim!r}"] if dim else []
        where += [place] if place else []
        super().__init__(f"{', '.join(where)}: {reason}" if where else reason)


class DiscoveryError(LfboAotError):
    """A module that announces kernels couldn't be imported."""

    def __init__(self, module: str, cause: BaseException | str) -> None:
        self.module = module
        hint = ""
        if isinstance(cause, BaseException):
            if getattr(cause, "name", None) in _TUNE_LIBRARIES:
                hint = '. Kernels need more than the bare package: pip install "lfbo-aot[tune]"'
            cause = f"{type(cause).__name__}: {cause}"
        super().__init__(f"kernel module {module!r} can't be imported: {cause}{hint}")


class UnknownNameError(LfboAotError, LookupError):
    """A kernel, dim, device or setting of that name isn't known; says which ones are near."""

    def __init__(self, kind: str, name: str, known: Iterable[str] = (), hint: str = "") -> None:
        self.kind = kind
        self.name = name
        self.known = sorted(known)
        text = f"unknown {kind} {name!r}."
        near = suggestion(name, self.known)
        super().__init__(" ".join(part for part in (text, near, hint) if part))


class AmbiguousKernelError(LfboAotError, LookupError):
    """A bare kernel name that several packages use."""

    def __init__(self, name: str, ids: Iterable[str]) -> None:
        self.name = name
        self.ids = sorted(ids)
        super().__init__(f"kernel name {name!r} is ambiguous; use one of: {', '.join(self.ids)}")


class ShapeError(LfboAotError, ValueError):
    """The dims of a call don't fit the kernel's declaration."""

    def __init__(self, reason: str, *, kernel: str, dim: str | None = None) -> None:
        self.reason = reason
        self.kernel = kernel
        self.dim = dim
        super().__init__(f"kernel {kernel!r}: " + (f"dim {dim!r}: " if dim else "") + reason)


class DatabaseError(LfboAotError):
    """A database file doesn't hold what it must: names the file and, where known, the line."""

    def __init__(self, path: Path | str, reason: str, line: int | None = None) -> None:
        self.path = path
        self.line = line
        self.reason = reason
        place = f"{path}:{line}" if line is not None else str(path)
        super().__init__(f"{place}: {reason}")


class SettingError(LfboAotError, ValueError):
    """A setting holds a value that it can't."""

    def __init__(self, name: str, value: str, allowed: Iterable[str] = (), hint: str = "") -> None:
        self.name = name
        self.value = value
        self.allowed = list(allowed)
        parts = [f"{name}={value!r} is not valid."]
        if self.allowed:
            parts.append("Allowed: " + ", ".join(self.allowed) + ".")
            close = nearest(value, self.allowed, 1)
            if close:
                parts.append(f"Did you mean {close[0]!r}?")
        if hint:
            parts.append(hint)
        super().__init__(" ".join(parts))


class MissError(LfboAotError, LookupError):
    """A look-up found nothing that the policy serves, and `on_miss` is `error`."""


class DeviceUnavailableError(LfboAotError):
    """No device of the kind that was asked for; says what was looked for."""


class TuningError(LfboAotError):
    """A tuning run can't start or can't go on."""


class DeviceLostError(TuningError):
    """A GPU on which nothing can be tuned any more in this run."""


class JournalBusyError(TuningError):
    """Another run holds the journal of this kernel and device."""


class BuildError(LfboAotError):
    """A package can't be built as its settings ask."""
