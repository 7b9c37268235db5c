from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys

import pytest

import lfbo_aot
from lfbo_aot.cli.main import main

KERNEL = "mykern.norm"

PARTS = """
FACTOR = 2.0

def doubled(x):
    return more(x * FACTOR)

def more(x):
    return x + 1
"""

OPS = """
import helion.language as hl
import torch
import lfbo_aot
from lfbo_aot import Exact, Range
from mykern.parts import doubled

@lfbo_aot.kernel(
    dims={
        "n": Range(1, 4096, factor=4),
        "causal": Exact(False, True),
        "dtype": Exact("float32", "float16"),
    },
    shape=lambda x, causal, flag: {"n": x.size(0), "causal": causal, "dtype": x.dtype},
    inputs=lambda shape, device: (torch.ones(shape["n"]), shape["causal"]),
)
def scale(x: torch.Tensor, causal: bool = False, flag: bool = False) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        if flag:
            out[tile] = doubled(x[tile]) + 1
        elif causal:
            out[tile] = doubled(x[tile]) - 1
        else:
            out[tile] = doubled(x[tile])
    return out
"""
BOX = "n=17..64|causal=false|dtype=float32"


def checks(found, layer):
    """Of the one entry of a layer that `explain` shows: (entry, here, verdict) by name."""
    (row,) = (row for row in found["considered"] if row["layer"] == str(layer))
    return row, {c["name"]: (c["entry"], c["here"], c["verdict"]) for c in row["checks"]}


def warps(count, **more):
    return {"block_sizes": [16], "num_warps": count, **more}


def set_warps(kernel, *args):
    return kernel.bind(args)._config["num_warps"]


def set_default(kernel, *args):
    bound = kernel.bind(args)
    return bound._config == bound.config_spec.default_config()


def said(caplog):
    return [r.getMessage() for r in caplog.records if r.name.startswith("lfbo_aot")]


@pytest.fixture
def serve(isolated, tmp_path, write_database):
    """Lay a new database of `mykern.norm` over the rest: `{bucket or (device, bucket): entry}`."""
    count = iter(range(100))

    def lay(held, **more):
        path = write_database(tmp_path / f"tuned{next(count)}", {KERNEL: held}, **more)
        lfbo_aot.use_database(path)
        return path

    return lay


@pytest.fixture
def command(isolated, capsys):
    """Run a command with --json; gives (exit status, the object that it printed)."""

    def run(*words):
        status = main([*map(str, words), "--json"])
        return status, json.loads(capsys.readouterr().out)

    return run


def start(words, folder, **environ):
    """A fresh process with nothing of ours in its environment but what is given."""
    ours = ("LFBO_AOT_", "HELION_", "TRITON_", "PYTHON")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    fixed = {"XDG_DATA_HOME": str(folder / "user-data"), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.Popen(
        [sys.executable, *map(str, words)],
        env={**kept, **fixed, **environ},
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process):
    """What a process printed, as JSON, and what it said on stderr."""
    try:
        out, err = process.communicate(timeout=500)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    assert process.returncode == 0, err[-3000:]
    return json.loads(out), err


def tree(*folders):
    """What lies below these folders: by path the bytes, the mode, and when it was changed."""
    found = {}
    for path in (p for folder in folders for p in [folder, *sorted(folder.rglob("*"))]):
        about = path.stat()
        content = path.read_bytes() if path.is_file() else None
        found[str(path)] = content, about.st_mode, about.st_mtime_ns, about.st_ino
    return found


@pytest.fixture
def fresh(tmp_path):
    """Run code in a fresh process; gives what it printed, as JSON, and its stderr."""

    def run(code, *words, **environ):
        return finish(start(["-c", code, *words], tmp_path, **environ))

    return run


@pytest.fixture
def project(isolated, tmp_path):
    """Write the package `mykern` in a folder, and import its kernel afresh."""
    isolated.setattr(sys, "path", [*sys.path])
    isolated.setattr(sys, "dont_write_bytecode", True)

    def write(folder="project", ops=OPS, parts=PARTS):
        from lfbo_aot.registry import catalog

        package = tmp_path / folder / "mykern"
        package.mkdir(parents=True)
        for name, text in (("__init__", ""), ("ops", ops), ("parts", parts)):
            (package / f"{name}.py").write_text(text)
        for name in [name for name in sys.modules if name.partition(".")[0] == "mykern"]:
            del sys.modules[name]
        isolated.setattr(catalog, "_specs", {})
        isolated.syspath_prepend(str(package.parent))
        return importlib.import_module("mykern.ops").scale

    yield write
    for name in [name for name in sys.modules if name.partition(".")[0] == "mykern"]:
        del sys.modules[name]


@pytest.fixture
def tuned(tmp_path, make_entry):
    """Lay a database over the rest that holds entries as `kernel` is now: `{box: fields}`."""
    from lfbo_aot.database.declaration import Declaration
    from lfbo_aot.database.merge import merge
    from lfbo_aot.registry.buckets import Bucket
    from lfbo_aot.registry.devices import CPU
    from lfbo_aot.runtime.versions import loaded_versions

    count = iter(range(100))

    def lay(kernel, held, *args):
        spec = kernel.lfbo_aot_spec
        as_tuned = {
            "source": spec.source,
            "settings": spec.settings,
            "layout": spec.layout_of(*args) if args else (),
            "versions": loaded_versions(),
        }
        path = tmp_path / f"tuned{next(count)}"
        entries = {
            (CPU, Bucket.parse(box)): make_entry(**{**as_tuned, **fields})
            for box, fields in held.items()
        }
        merge(path, {spec.kernel_id: entries}, [Declaration.of(spec)])
        lfbo_aot.use_database(path)
        return path

    return lay
