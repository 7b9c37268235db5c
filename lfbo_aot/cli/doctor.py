"""`lfbo-aot doctor`: the device, the libraries and the databases as this process sees them."""

from __future__ import annotations

import importlib.util
import json
import platform
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING
from typing import Any

from lfbo_aot.buildstep.manifest import told
from lfbo_aot.buildstep.manifest import told_lines
from lfbo_aot.cli.arguments import add_database
from lfbo_aot.cli.arguments import pick_store
from lfbo_aot.database.installed import data_packages
from lfbo_aot.database.manifest import read_manifest
from lfbo_aot.database.verify import verify
from lfbo_aot.errors import DatabaseError
from lfbo_aot.registry.devices import limits_of
from lfbo_aot.runtime import settings as runtime_settings

if TYPE_CHECKING:
    import argparse

    from lfbo_aot.database.database import Database
    from lfbo_aot.database.store import Layer
    from lfbo_aot.registry.devices import DeviceId

# What tuning imports; of these, serving a kernel needs torch, helion and packaging.
_LIBRARIES = ("torch", "helion", "triton", "packaging", "numpy", "sklearn", "joblib", "filelock")
_DISTRIBUTIONS = {"sklearn": "scikit-learn"}
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class LayerReport:
    """One database: where it is, what it holds, and what is wrong with it."""

    name: str
    path: str
    exists: bool
    entries: dict[str, int]
    """How many, by device."""
    problems: tuple[str, ...]
    build: dict[str, Any] | None = None
    """What the package's manifest says of its build."""


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser(
        "doctor",
        help="show the device and the databases as seen here",
        description="Show the device, the libraries and the databases as seen here, and the first "
        "thing that keeps entries from being served. Exit status: 0 entries for the device here "
        "can be served; 1 they can't, and why; 2 wrong use.",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_database(parser)


def run(args: argparse.Namespace) -> int:
    """0 where something can be served on the device here, 1 where not."""
    from lfbo_aot.registry.discovery import announced
    from lfbo_aot.tuning.devices.probe import survey

    libraries = {name: _version(name) for name in _LIBRARIES}
    layers = [_report(layer) for layer in pick_store(args.database).layers]
    found = survey()
    devices = [gpu.id for gpu in found.gpus]
    advice = _advice(devices, layers, libraries)
    current = runtime_settings.current()
    data = {
        "python": f"{platform.python_version()} at {sys.executable}",
        "libraries": libraries,
        "devices": [str(device) for device in devices],
        "looked_for": found.looked_for,
        "kernel_modules": list(announced()),
        "state": str(current.state_folder),
        "policy": current.policy,
        "layers": [_layer_json(layer) for layer in layers],
        "passed_over": [
            {"package": found.name, "reason": found.reason}
            for found in data_packages()
            if found.path is None
        ],
        "advice": advice,
    }
    print(json.dumps(data, indent=2) if args.json else "\n".join(_text(data, devices)))
    return int(bool(advice))


def _version(name: str) -> str | None:
    """The installed version of a library, without importing it; None where it is not there."""
    from importlib import metadata

    if importlib.util.find_spec(name) is None:
        return None
    try:
        return metadata.version(_DISTRIBUTIONS.get(name, name))
    except metadata.PackageNotFoundError:
        return "?"


def _report(layer: Layer) -> LayerReport:
    database = layer.database
    counts: dict[str, int] = {}
    problems = [str(problem) for problem in verify(database.path)] if database.path.is_dir() else []
    for arch in database.archs():
        shards = [database.shard(kernel_id, arch) for kernel_id in database.kernels()]
        for shard in filter(None, shards):
            try:
                names = shard.device_names
            except DatabaseError as error:
                if not any(problem.startswith(f"{shard.path}: ") for problem in problems):
                    problems.append(str(error))
                continue
            for name in names:
                device = f"{arch}/{name}"
                counts[device] = counts.get(device, 0) + len(shard.boxes(name))
    path = database.path
    return LayerReport(
        layer.name, str(path), path.is_dir(), counts, tuple(problems), _build(database)
    )


def _build(database: Database) -> dict[str, Any] | None:
    """What a build wrote into the database; None where it wasn't built, or that can't be read."""
    try:
        found = read_manifest(database.path)
    except DatabaseError:
        return None  # the store has said so
    return None if found is None else told(found)


def _advice(
    devices: list[DeviceId], layers: list[LayerReport], libraries: dict[str, str | None]
) -> list[str]:
    """What keeps entries from being served here, the first reason first; empty where nothing does."""
    advice = []
    for layer in layers:
        if layer.problems:
            count = len(layer.problems)
            advice.append(f"{layer.path} is damaged ({count}): run lfbo-aot verify {layer.path}")
    held = {device for layer in layers for device in layer.entries}
    if not held:
        advice.append("no database holds an entry: run lfbo-aot tune")
    if not devices:
        holds = ", ".join(sorted(held)) or "nothing"
        advice.append(f"no GPU here; the databases hold entries for: {holds}")
    for device in devices:
        if held and str(device) not in held:
            of_arch = any(other.partition("/")[0] == device.arch for other in held)
            meanwhile = "; until then those of its arch answer, as same_arch" if of_arch else ""
            advice.append(
                f"no entry for {device}; the databases hold: {', '.join(sorted(held))}. "
                f"Run lfbo-aot tune here{meanwhile}"
            )
        if limits_of(device) is None:
            advice.append(
                f"{device} is not a known device, nor is its arch: its limits can't be checked"
            )
    missing = [name for name in ("torch", "helion", "packaging") if libraries[name] is None]
    if missing:
        advice.append(f"kernels can't run here: {', '.join(missing)} not installed")
    return advice


def _layer_json(layer: LayerReport) -> dict[str, Any]:
    return {
        "layer": layer.name,
        "path": layer.path,
        "exists": layer.exists,
        "entries": layer.entries,
        "problems": list(layer.problems),
        "build": layer.build,
    }


def _text(data: dict[str, Any], devices: list[DeviceId]) -> list[str]:
    shown = [f"{n} {v or 'not installed'}" for n, v in data["libraries"].items()]
    lines = [
        f"python     {data['python']}",
        f"libraries  {', '.join(shown)}",
        f"device     {', '.join(map(str, devices)) or 'none'} ({data['looked_for']})",
        f"kernels    announced by {', '.join(data['kernel_modules']) or 'no package'}",
        f"state      {data['state']}",
        f"policy     {data['policy']}",
    ]
    for number, layer in enumerate(data["layers"], 1):
        lines.append(f"layer {number}    {layer['layer']}: {layer['path']}")
        if not layer["exists"]:
            lines.append("           (no such folder)")
        for device, count in sorted(layer["entries"].items()):
            lines.append(f"           {count} entries for {device}")
        lines += [f"           damaged: {problem}" for problem in layer["problems"][:_SHOWN]]
        if layer["build"]:
            lines += [f"           {line}" for line in told_lines(layer["build"])]
    for found in data["passed_over"]:
        lines.append(f"passed over: package {found['package']}: {found['reason']}")
    advice = data["advice"] or ["entries for the device here can be served"]
    return [*lines, *(f"=> {line}" for line in advice)]
