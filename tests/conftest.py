from __future__ import annotations

import errno
import io
import os
from pathlib import Path

import pytest

from lfbo_aot.database.declaration import Declaration
from lfbo_aot.database.entry import Entry
from lfbo_aot.database.merge import merge
from lfbo_aot.registry.buckets import Bucket
from lfbo_aot.registry.buckets import enumerate_buckets
from lfbo_aot.registry.devices import DeviceId
from lfbo_aot.registry.dims import Exact
from lfbo_aot.registry.dims import Range

H200 = DeviceId("sm90", "NVIDIA H200")
DIMS = {
    "m": Range(1, 4096, edges=[16, 256]),
    "n": Exact(2048, 5120),
    "dtype": Exact("bfloat16", "float16"),
}


def _entry(warps=4, **fields):
    """An entry as a tuning run makes it; `warps` tells entries apart."""
    made = {
        "config": {"block_sizes": [warps, 1], "num_warps": warps, "pid_type": "flat"},
        "alternates": [{"block_sizes": [1, 1], "num_warps": 1}],
        "latency_us": 25.6,
        "default_us": 34.0,
        "spread": 0.011,
        "resources": {"shared": 32768, "regs": 64, "spills": 0, "threads": 32 * warps},
        "source": "sha256:50ce",
        "space": "sha256:5bace",
        "settings": {"static_shapes": True, "fast_math": False},
        "layout": [{"order": [0, 1], "contiguous": True}],
        "versions": {"helion": "1.5.0", "triton": "3.6.0", "torch": "2.11.0", "runtime": "13.0"},
        "policy": {"l2": "cold", "clock": "events", "inputs": "normal"},
        "search": {"algorithm": "lfbo", "trials": 412, "seconds": 31.2, "seed": 0},
        "measured": "2026-12-01",
    }
    return Entry(**{**made, **fields})


def _declaration(kernel_id, dims=None):
    dims = DIMS if dims is None else dims
    return Declaration(
        kernel_id=kernel_id,
        dims=dims,
        buckets=tuple(bucket.key for bucket in enumerate_buckets(dims)),
        settings={"static_shapes": True, "fast_math": False},
        source="sha256:50ce",
    )


def _write(path, kernels, *, dims=None):
    """A database at `path` of `{kernel id: {(device, bucket key): entry}}`, devices H200 if left out."""
    entries = {}
    for kernel_id, held in kernels.items():
        entries[kernel_id] = {}
        for key, entry in held.items():
            device, bucket = (H200, key) if isinstance(key, str) else key
            entries[kernel_id][device, Bucket.parse(bucket)] = entry
    merge(path, entries, [_declaration(kernel_id, dims) for kernel_id in kernels])
    return Path(path)


@pytest.fixture(scope="session")
def make_entry():
    return _entry


@pytest.fixture(scope="session")
def make_declaration():
    return _declaration


@pytest.fixture(scope="session")
def write_database():
    return _write


@pytest.fixture
def isolated(monkeypatch, tmp_path):
    """No settings, no user's database, nothing said or remembered: what a test sees is its own."""
    from lfbo_aot.database import installed
    from lfbo_aot.registry import catalog
    from lfbo_aot.runtime import misses
    from lfbo_aot.runtime import notices
    from lfbo_aot.runtime import settings
    from lfbo_aot.runtime import state

    for name in list(os.environ):
        if name.startswith("LFBO_AOT_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "user-data"))
    monkeypatch.setattr(catalog, "_specs", {})
    monkeypatch.setattr(installed, "_found", ())
    monkeypatch.setattr(state, "_base", state._Chosen())
    monkeypatch.setattr(state, "_changes", [])
    settings.current.cache_clear()
    state.refresh()
    notices.forget()
    misses.forget()
    yield monkeypatch
    monkeypatch.undo()  # first, as what is in force is made of what it patched
    settings.current.cache_clear()
    state.refresh()
    notices.forget()
    misses.forget()


@pytest.fixture
def closed(monkeypatch):
    """A function that closes a folder to this process, as its mode can't to one that is root's."""
    folders: list[Path] = []

    def refuse(path):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    def guarded(real, *, itself):
        def call(path, *args, **kwargs):
            inside = isinstance(path, (str, Path)) and Path(path).parents
            if inside and any(f in inside or (itself and f == Path(path)) for f in folders):
                refuse(path)
            return real(path, *args, **kwargs)

        return call

    for name, itself in (("stat", False), ("lstat", False), ("listdir", True), ("scandir", True)):
        monkeypatch.setattr(os, name, guarded(getattr(os, name), itself=itself))
    monkeypatch.setattr(io, "open", guarded(io.open, itself=False))
    return folders.append
