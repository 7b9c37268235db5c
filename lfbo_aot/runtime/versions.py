"""Versions of what a timing depends on, from the loaded libraries."""

from __future__ import annotations

import re
import sys
from typing import Any

_BASE = re.compile(r"v?((?:[0-9]+!)?[0-9]+(?:\.[0-9]+)*)")


def base_version(text: str) -> str:
    """The PEP 440 base version: `2.11.0` of `2.11.0+cu130` and of `2.11.0a0+git12`."""
    found = _BASE.match(text.strip())
    return found[1] if found else text


def loaded_versions() -> dict[str, str]:
    """Base versions of helion, triton, torch and the CUDA or ROCm `runtime`; of those loaded."""
    found = {}
    for name in ("helion", "triton", "torch"):
        version = getattr(sys.modules.get(name), "__version__", None) or _installed(name)
        if version:
            found[name] = base_version(str(version))
    torch: Any = sys.modules.get("torch")
    version = getattr(torch, "version", None)
    runtime = version and (version.hip or version.cuda)
    if runtime:
        found["runtime"] = base_version(str(runtime))
    return found


def _installed(name: str) -> str | None:
    """The installed version of a loaded module that doesn't tell its own."""
    if name not in sys.modules:
        return None
    from importlib import metadata

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
