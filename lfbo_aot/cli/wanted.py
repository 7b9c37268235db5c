"""What `tune --from` asks for: shapes on record or listed, and the declared buckets that hold them."""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING
from typing import Any

from lfbo_aot.cli.arguments import UsageError
from lfbo_aot.cli.arguments import find_kernels
from lfbo_aot.cli.arguments import parse_dims
from lfbo_aot.errors import AmbiguousKernelError
from lfbo_aot.errors import LfboAotError
from lfbo_aot.errors import ShapeError
from lfbo_aot.errors import UnknownNameError
from lfbo_aot.registry.devices import INTERPRETER
from lfbo_aot.registry.devices import parse_target
from lfbo_aot.runtime.request import shape_text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Sequence

    from lfbo_aot.registry.buckets import Bucket
    from lfbo_aot.registry.devices import DeviceId
    from lfbo_aot.registry.devices import Target
    from lfbo_aot.registry.dims import Value
    from lfbo_aot.registry.spec import KernelSpec

STDIN = "-"
SKIPPED = "skipped"
"""For another device, or not of the kernels named: nothing is wrong with it."""
OUTSIDE = "outside"
"""Of a kernel that is known, in no bucket that could be tuned here."""
DAMAGED = "damaged"
UNKNOWN = "unknown"
"""Of a kernel that no module declares."""
_FIELDS = ("kernel", "shape", "arch")


@dataclass(frozen=True, slots=True)
class Wanted:
    """One line: a kernel, a shape and, where it was recorded, for which arch or device."""

    kernel: str
    shape: Mapping[str, object]
    target: Target | None
    place: str
    """`file:line`."""


@dataclass(frozen=True, slots=True)
class Remark:
    """A line that asks for nothing that is tuned here."""

    place: str
    what: str
    """`skipped`, `outside`, `damaged` or `unknown`."""
    reason: str

    def __str__(self) -> str:
        return f"{self.place}: {self.what}: {self.reason}"

    def as_json(self) -> dict[str, Any]:
        """The remark as JSON data."""
        return {"place": self.place, "what": self.what, "reason": self.reason}


@dataclass(frozen=True, slots=True)
class Selection:
    """The buckets that the lines ask for, and what is to be said of the other lines."""

    buckets: frozenset[tuple[str, Bucket]]
    """By kernel id."""
    remarks: tuple[Remark, ...]

    @property
    def complete(self) -> bool:
        """Whether every line that is for this device can be tuned."""
        return all(remark.what == SKIPPED for remark in self.remarks)


def read_wanted(source: str) -> tuple[list[Wanted], list[Remark]]:
    """The lines of the file `source`, or of standard input for `-`, and those that can't be read.

    A line is what LFBO_AOT_RECORD_MISSES writes, or `kernel dim=value dim=value`; blank lines and
    what follows a `#` at the start of a word don't count. UsageError where there is no such file.
    """
    name = "<stdin>" if source == STDIN else source
    if source == STDIN and sys.stdin is None:
        msg = f"--from {STDIN}: standard input is closed"
        raise UsageError(msg)
    try:
        if source == STDIN:
            content = sys.stdin.buffer.read()
        else:
            with open(source, "rb") as file:  # noqa: PTH123 - may be a pipe, such as <(command)
                content = file.read()
    except OSError as error:
        msg = f"--from {source}: can't be read: {error.strerror or error}"
        raise UsageError(msg) from None
    wanted: list[Wanted] = []
    damaged: list[Remark] = []
    for number, raw in enumerate(content.split(b"\n"), start=1):
        place = f"{name}:{number}"
        try:
            found = _parse(raw.decode().strip(), place)
        except (ValueError, LfboAotError) as error:
            damaged.append(Remark(place, DAMAGED, str(error)))
            continue
        if found is not None:
            wanted.append(found)
    return wanted, damaged


def _parse(line: str, place: str) -> Wanted | None:
    """What a line asks for; None where it is blank. ValueError or LfboAotError where it is damaged."""
    if line.startswith("{"):
        return _parse_record(line, place)
    words = shlex.split(line, comments=True)
    if not words:
        return None
    if "=" in words[0] or len(words) == 1:
        msg = 'the line is neither {"kernel", "shape", "arch"} nor kernel dim=value ...'
        raise ValueError(msg)
    return Wanted(words[0], parse_dims(words[1:]), None, place)


def _parse_record(line: str, place: str) -> Wanted:
    try:
        page = json.loads(line)
    except RecursionError:
        page = None
    except ValueError as error:
        msg = f"the line is cut or malformed: {error}"
        raise ValueError(msg) from None
    fits = isinstance(page, dict) and set(page) == set(_FIELDS)
    if not fits or not all(isinstance(page[name], str) for name in ("kernel", "arch")):
        msg = f"the record's fields must be {', '.join(_FIELDS)}"
        raise ValueError(msg)
    shape = page["shape"]
    if not isinstance(shape, dict) or not all(type(v) in (int, bool, str) for v in shape.values()):
        msg = "shape must be an object of numbers, texts and truth values"
        raise ValueError(msg)
    return Wanted(page["kernel"], shape, parse_target(page["arch"]), place)


def select(
    wanted: Sequence[Wanted],
    specs: Sequence[KernelSpec],
    device: DeviceId | None,
    *,
    own: Sequence[str] = (),
    named: bool,
    damaged: Sequence[Remark] = (),
) -> Selection:
    """The buckets of `specs` that hold the shapes wanted, as far as they are for `device`.

    Without a device, as in a dry run on a machine that has none, lines count for whatever device
    they were recorded on. `own` are the ids of the kernels that a bare name means first: those of
    the modules named, where announced ones count beside them. `named`: the specs were picked by
    name, so lines for others are skipped.
    `damaged` are the lines that couldn't be read.
    """
    buckets: set[tuple[str, Bucket]] = set()
    remarks = list(damaged)
    by_id = {spec.kernel_id: spec for spec in specs}
    for one in wanted:
        remark = _skip(one, device)
        if remark is None:
            found = _find(one, by_id, device, own=own, named=named)
            if isinstance(found, Remark):
                remark = found
            else:
                buckets.update(found)
        if remark is not None:
            remarks.append(remark)
    return Selection(frozenset(buckets), tuple(remarks))


def _skip(one: Wanted, device: DeviceId | None) -> Remark | None:
    if device is None or one.target is None:
        return None
    if one.target.arch == device.arch and one.target.device in (None, device):
        return None
    reason = f"it is for {one.target}; the device here is {device}"
    return Remark(one.place, SKIPPED, reason)


def _find(
    one: Wanted,
    by_id: Mapping[str, KernelSpec],
    device: DeviceId | None,
    *,
    own: Sequence[str],
    named: bool,
) -> list[tuple[str, Bucket]] | Remark:
    try:
        mine = [k for k in own if k.rpartition(".")[2] == one.kernel]
        (kernel_id,) = find_kernels([one.kernel], mine or tuple(by_id))
    except UnknownNameError as error:
        if named:
            return Remark(one.place, SKIPPED, f"{one.kernel} isn't among the kernels named")
        return Remark(one.place, UNKNOWN, f"{error} Name its module with --module.")
    except AmbiguousKernelError as error:
        return Remark(one.place, UNKNOWN, str(error))
    spec = by_id[kernel_id]
    try:
        shape = spec.normalize_shape(one.shape)
    except ShapeError as error:
        return Remark(one.place, OUTSIDE, str(error))
    on_interpreter = device == INTERPRETER
    held = spec.small_buckets if on_interpreter else spec.buckets
    found = [(kernel_id, bucket) for bucket in held if bucket.contains(shape)]
    return found or Remark(one.place, OUTSIDE, _outside(spec, shape, on_interpreter=on_interpreter))


def _outside(spec: KernelSpec, shape: Mapping[str, Value], *, on_interpreter: bool) -> str:
    dims = shape_text(shape)
    if on_interpreter:
        return (
            f"{spec.kernel_id} {dims} isn't among its small= shapes, which is what the interpreter "
            f"tunes at; add it there ({spec.place})"
        )
    return (
        f"no declared bucket of {spec.kernel_id} holds {dims}; "
        f"widen its dims= or buckets= ({spec.place}), then tune again"
    )
