"""The tuning process of a build: `python -m lfbo_aot.buildstep.child REQUEST ANSWER`.

It runs in the interpreter that has torch and Helion, imports the project's kernels, and, for each
arch, kernel and bucket that the checked-in database lacks, takes what an earlier build tuned or
tunes it now. It writes nothing below the project.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import lfbo_aot
from lfbo_aot.buildstep.ask import KEPT
from lfbo_aot.buildstep.ask import MISSING
from lfbo_aot.buildstep.ask import TUNED
from lfbo_aot.buildstep.ask import Answer
from lfbo_aot.buildstep.ask import Kernel
from lfbo_aot.buildstep.ask import Request
from lfbo_aot.buildstep.ask import Row
from lfbo_aot.buildstep.ask import read_request
from lfbo_aot.database.database import Database
from lfbo_aot.database.declaration import Declaration
from lfbo_aot.database.line import encode_line
from lfbo_aot.database.line import join_key
from lfbo_aot.errors import BuildError
from lfbo_aot.errors import LfboAotError
from lfbo_aot.registry.devices import INTERPRETER
from lfbo_aot.registry.devices import DeviceId
from lfbo_aot.registry.discovery import load_kernels
from lfbo_aot.tuning.plan import Item
from lfbo_aot.tuning.plan import make_plan

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

    from lfbo_aot.database.entry import Entry
    from lfbo_aot.registry.buckets import Bucket
    from lfbo_aot.registry.spec import KernelSpec

Key = tuple[str, str, str]
"""(arch, kernel id, bucket's key)"""


def main() -> int:
    """0 where the answer was written."""
    request, answer_file = read_request(Path(sys.argv[1])), Path(sys.argv[2])
    _end_with_parent()
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        answer = answer_to(request)
    except LfboAotError as error:
        sys.stdout.write(f"lfbo-aot: {error}\n")  # the last line is what the build tells
        return 1
    answer.write(answer_file)
    return 0


def answer_to(request: Request) -> Answer:
    """Do what is asked. Raises LfboAotError where nothing can be done at all."""
    answer = Answer()
    specs = _load(request, answer)
    here, why_none = _device(request.device)
    source = Database(request.source)
    answer.archs = _archs(request, source, here)
    for spec in specs:
        answer.kernels[spec.kernel_id] = Kernel(
            Declaration.of(spec).dumps(), spec.source, _json(spec.settings)
        )
    missing: dict[Key, Item] = {}
    for arch in answer.archs:
        for item in _lacking(specs, arch, here, source):
            key = (arch, item.spec.kernel_id, item.bucket.key)
            if item.why:
                missing[key] = item
            else:
                answer.rows.append(Row(*key, KEPT))
    _from_builds(request, answer, missing)
    # Transfer from another arch will stand here, after what can be measured.
    why = {key: _why_not(key[0], here, why_none) for key in missing}
    ours = {key: item for key, item in missing.items() if not why[key]}
    if request.tune and ours and here is not None:
        from lfbo_aot.buildstep.work import tune_here

        why.update(tune_here(request, here, ours))
        before = len(answer.lines)
        _from_builds(request, answer, missing)
        answer.device = str(here) if len(answer.lines) > before else None
    for key, item in missing.items():
        answer.rows.append(Row(*key, MISSING, why[key] or f"{item.why}; not tuned here"))
    answer.rows.sort(key=lambda row: (row.arch, row.kernel))
    return answer


def _load(request: Request, answer: Answer) -> list[KernelSpec]:
    """The kernels of the project's modules; those that can't be imported are told of."""
    _check_place("lfbo_aot", lfbo_aot.__file__, (request.library,))
    found: dict[str, KernelSpec] = {}
    for name in request.modules:
        try:
            specs = load_kernels([name])
        except LfboAotError as error:
            answer.failed_modules[name] = str(error)
            continue
        module = sys.modules[name]
        _check_place(name, module.__file__ or next(iter(module.__path__)), request.roots)
        found.update({spec.kernel_id: spec for spec in specs})
    return [found[key] for key in sorted(found)]


def _check_place(name: str, place: str | None, roots: Sequence[str]) -> None:
    """BuildError where a module isn't the one being built: a copy that was installed earlier."""
    files = {os.path.abspath(place or ""), os.path.realpath(place or "")}  # noqa: PTH100 - links
    tops = {top + os.sep for root in roots for top in (root, os.path.realpath(root))}
    if not any(file.startswith(top) for file in files for top in tops):
        msg = f"the module {name} was imported from {place}, not from {' or '.join(roots)}"
        raise BuildError(msg)


def _device(kind: str) -> tuple[DeviceId | None, str]:
    """The device that tunes here, or None and why. In a build, `auto` never means the interpreter."""
    if kind == "interpreter":
        return INTERPRETER, ""
    from lfbo_aot.tuning.devices.probe import survey

    found = survey()
    return (found.gpus[0].id, "") if found.gpus else (None, f"no GPU here: {found.looked_for}")


def _archs(request: Request, source: Database, here: DeviceId | None) -> tuple[str, ...]:
    if request.archs:
        return request.archs
    found = set(source.archs()) - {INTERPRETER.arch}
    return tuple(sorted(found | ({here.arch} if here is not None else set())))


def _lacking(
    specs: Sequence[KernelSpec], arch: str, here: DeviceId | None, source: Database
) -> list[Item]:
    """One item a bucket, held where any device of the arch holds it."""
    devices = {here} if here is not None and here.arch == arch else set()
    for spec in specs:
        shard = source.shard(spec.kernel_id, arch)
        devices |= {DeviceId(arch, name) for name in (shard.device_names if shard else ())}
    if arch == INTERPRETER.arch:
        devices = {INTERPRETER}
    plans = [make_plan(specs, d, source) for d in sorted(devices) or [DeviceId(arch, "none here")]]
    return [next((i for i in items if not i.why), items[-1]) for items in zip(*plans, strict=True)]


def _why_not(arch: str, here: DeviceId | None, why_none: str) -> str:
    """Why the device here can't tune for `arch`; empty where it can."""
    if here is not None and here.arch == arch:
        return ""
    if arch == INTERPRETER.arch:
        return "Triton's interpreter tunes in a build only if LFBO_AOT_DEVICE=interpreter"
    return why_none if here is None else f"no {arch} device here: this is {here}"


def _from_builds(request: Request, answer: Answer, missing: dict[Key, Item]) -> None:
    """Take what this build or an earlier one tuned; it is no longer missing then."""
    built = Database(request.built)
    for arch in {key[0] for key in missing}:
        wanted = {key: item for key, item in missing.items() if key[0] == arch}
        for kernel_id in sorted({key[1] for key in wanted}):
            shard = built.shard(kernel_id, arch)
            specs = [item.spec for key, item in wanted.items() if key[1] == kernel_id][:1]
            for name in shard.device_names if shard is not None else ():
                device = DeviceId(arch, name)
                for item in make_plan(specs, device, built):
                    key = (arch, kernel_id, item.bucket.key)
                    if item.held is not None and missing.pop(key, None) is not None:
                        _take(answer, key, device, item.bucket, item.held)


def _take(answer: Answer, key: Key, device: DeviceId, bucket: Bucket, entry: Entry) -> None:
    text = join_key(device.name, bucket)
    answer.lines.append((key[0], key[1], text, encode_line(text, entry)))
    answer.rows.append(Row(*key, TUNED, f"on {device.name}, {entry.measured}"))


def _json(settings: object) -> dict[str, object]:
    found: dict[str, object] = json.loads(json.dumps(dict(settings)))  # type: ignore[call-overload]
    return found


def _end_with_parent() -> None:
    """End this process when the build that started it is gone: its end closes our standard input."""

    def wait() -> None:
        # Not through sys.stdin: a thread that waits in it with its lock would abort the exit.
        while os.read(0, 1):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
