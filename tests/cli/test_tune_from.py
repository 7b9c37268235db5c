"""`tune --from`: what is listed is tuned, and nothing else."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from lfbo_aot.database.database import Database
from lfbo_aot.registry import discovery
from lfbo_aot.registry.devices import INTERPRETER
from lfbo_aot.registry.devices import Target
from lfbo_aot.runtime.environment import Environment
from lfbo_aot.runtime.misses import record_miss
from lfbo_aot.runtime.request import Request
from lfbo_aot.tuning.devices import probe

DECLARED = str(Path(__file__).parent / "fake_tuning" / "declared.py")
FOUR, EIGHT = "m=4|dtype=float32", "m=8|dtype=float32"
HERE = str(INTERPRETER)


def record(m, arch=HERE, kernel="mine.norm", dtype="float32"):
    return json.dumps({"kernel": kernel, "shape": {"m": m, "dtype": dtype}, "arch": arch})


@pytest.fixture
def listed(tmp_path):
    """Writes the lines to a file; its path."""

    def write(*lines):
        path = tmp_path / "misses.jsonl"
        path.write_text("\n".join(lines) + "\n")
        return str(path)

    return write


def held(tmp_path):
    shard = Database(tmp_path / "db").shard("mine.norm", "cpu-interpreter")
    return () if shard is None else tuple(key.partition("|")[2] for key in shard.keys)


def test_only_what_is_listed_is_tuned(device, tune, listed, tmp_path):
    path = listed(record(8), record(8))
    status, out, err = tune("--from", path, "--trials", "5")
    assert (status, err) == (0, "")
    assert held(tmp_path) == (EIGHT,)
    assert out.splitlines()[-2] == (
        f"1 tuned, 0 held before, 0 missing; database {tmp_path / 'db'}"
    )
    status, out, _ = tune("--from", path)
    assert status == 0
    assert "nothing to do: all 1 buckets are held" in out


def test_what_a_serving_process_recorded(device, tune, tmp_path):
    """The writer and the reader of the file agree."""
    path = tmp_path / "recorded" / "misses.jsonl"
    target = Target(INTERPRETER.arch, INTERPRETER)
    shape = {"m": 4, "dtype": "float32"}
    record_miss(path, Request("mine.norm", shape, target, Environment()))
    assert tune("--from", str(path), "--trials", "5")[0] == 0
    assert held(tmp_path) == (FOUR,)


def test_plain_lines_with_comments(device, tune, listed, tmp_path):
    path = listed("# what we serve", "", "norm m=4 dtype=float32  # the usual one", "   ")
    assert tune("--from", path, "--trials", "5")[0] == 0
    assert held(tmp_path) == (FOUR,)


def test_standard_input(device, tune, tmp_path, monkeypatch):
    lines = io.TextIOWrapper(io.BytesIO(b"mine.norm m=8 dtype=float32\nnorm\n"))
    monkeypatch.setattr(sys, "stdin", lines)
    status, out, _ = tune("--from", "-", "--trials", "5")
    assert status == 1
    assert "<stdin>:2: damaged: the line is neither" in out
    assert held(tmp_path) == (EIGHT,)


def test_a_standard_input_that_is_closed(tune, monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    status, out, err = tune("--from", "-")
    assert (status, out) == (2, "")
    assert err == "lfbo-aot: error: --from -: standard input is closed\n"


@pytest.mark.parametrize("arch", ["sm90/NVIDIA H200", "sm90", "cpu-interpreter/another"])
def test_lines_of_other_devices_are_skipped(device, tune, listed, tmp_path, arch):
    path = listed(record(8, arch), record(4))
    status, out, _ = tune("--from", path, "--trials", "5")
    assert status == 0
    assert out.splitlines()[0] == (
        f"{path}:1: skipped: it is for {arch}; the device here is {HERE}"
    )
    assert held(tmp_path) == (FOUR,)


def test_a_line_for_any_device_of_the_arch_here(device, tune, listed, tmp_path):
    assert tune("--from", listed(record(4, "cpu-interpreter")), "--trials", "5")[0] == 0
    assert held(tmp_path) == (FOUR,)


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize(
    ("line", "what", "says"),
    [
        (record(5), "outside", "mine.norm m=5 dtype=float32 isn't among its small= shapes"),
        (record(4, dtype="float16"), "outside", "add it there ("),
        ("norm m=4", "outside", "dim 'dtype': declared, but not among the shape's dims: m"),
        ("norm m=4 dtype=float32 k=1", "outside", "dim 'k': not a declared dim"),
        (record(4, kernel="mine.nrm"), "unknown", "unknown kernel 'mine.nrm'. Did you mean"),
        ("nrm m=4 dtype=float32", "unknown", "Name its module with --module."),
        ('{"kernel": "mine.norm", "sha', "damaged", "the line is cut or malformed: "),
        ('{"kernel": "mine.norm"}', "damaged", "fields must be kernel, shape, arch"),
        ('{"kernel": 1, "shape": {}, "arch": "sm90"}', "damaged", "fields must be"),
        (record([4]), "damaged", "shape must be an object of numbers"),
        (record(4, "sm90a1"), "damaged", "unknown arch"),
        ("m=4 dtype=float32", "damaged", "kernel dim=value"),
        ("norm m", "damaged", "'m' isn't written dim=value"),
        ("norm m=1..4", "damaged", "is an interval"),
        ("norm 'm=4", "damaged", "No closing quotation"),
        ("[" * 5000, "damaged", "the line is neither"),
        ('{"kernel":' * 50000, "damaged", ""),
        ("norm m=4\udcff", "damaged", "can't decode byte"),
    ],
    ids=lambda value: value[:24] if isinstance(value, str) else "",
)
def test_lines_that_ask_for_nothing_are_named_and_the_rest_is_tuned(
    tune, tmp_path, line, what, says
):
    path = tmp_path / "list"
    path.write_bytes(f"{line}\n{record(8)}\n".encode(errors="surrogateescape"))
    status, out, _ = tune("--from", str(path), "--trials", "5")
    first = out.splitlines()[0]
    assert status == 1
    assert first.startswith(f"{path}:1: {what}: ")
    assert says in first
    assert held(tmp_path) == (EIGHT,)


def test_a_shape_outside_every_bucket_of_a_gpu(tune, listed, monkeypatch):
    """In a dry run without a GPU lines count for the device that they were recorded on."""
    monkeypatch.setattr(probe, "_DRIVERS", ("/dev/no-such-driver",))
    path = listed(record(40, "sm90/NVIDIA H200"), record(65, "gfx942/AMD Instinct MI300X"))
    status, out, _ = tune("--from", path, "--dry-run", device="gpu")
    assert status == 1
    first, _, row, count = out.splitlines()
    assert first.startswith(f"{path}:2: outside: no declared bucket of mine.norm holds m=65 ")
    assert "; widen its dims= or buckets= (" in first
    assert row.split() == ["missing", "mine.norm", "m=1..64", "dtype=float32"]
    assert count == "1 of 1 buckets to tune"


def test_json(device, tune, listed, tmp_path):
    path = listed(record(8), record(9), record(4, "sm90"))
    status, out, err = tune("--from", path, "--trials", "5", "--json")
    found = json.loads(out)
    assert status == 1
    assert [row["bucket"] for row in found["results"]] == [EIGHT]
    assert found["from"]["source"] == path
    assert [(r["place"], r["what"]) for r in found["from"]["remarks"]] == [
        (f"{path}:2", "outside"),
        (f"{path}:3", "skipped"),
    ]
    assert f"{path}:3: skipped: " in err
    status, out, _ = tune("--from", path, "--dry-run", "--json")
    assert [row["status"] for row in json.loads(out)["buckets"]] == ["held"]
    assert len(json.loads(out)["from"]["remarks"]) == 2


def test_kernels_and_dims_narrow_the_list(device, tune, listed, tmp_path):
    path = listed(record(4), record(8), "total m=4 causal=true")
    status, out, _ = tune("norm", "m=8", "--from", path, "--trials", "5")
    assert status == 0
    assert out.splitlines()[0] == f"{path}:3: skipped: total isn't among the kernels named"
    assert held(tmp_path) == (EIGHT,)


def test_a_list_that_asks_for_nothing(device, tune, listed, tmp_path):
    path = listed("# nothing yet")
    status, out, _ = tune("--from", path)
    assert status == 0
    assert f"nothing to do: {path} asks for no bucket that can be tuned here" in out
    assert device.started == []


def test_no_such_file(device, tune, tmp_path):
    status, out, err = tune("--from", str(tmp_path / "none"))
    assert (status, out) == (2, "")
    assert err == (
        f"lfbo-aot: error: --from {tmp_path / 'none'}: can't be read: No such file or directory\n"
    )
    assert tune("--from", str(tmp_path))[2].endswith("can't be read: Is a directory\n")


@pytest.fixture
def announce(alone, isolated, tmp_path):
    """A module of an installed package that declares a kernel of this id."""

    def write(kernel_id):
        text = Path(DECLARED).read_text()
        text = text.replace(
            'f"mine.{name}"', f'"{kernel_id}" if name == "norm" else f"theirs.{{name}}"'
        )
        (tmp_path / "theirs.py").write_text(text)
        isolated.setattr(discovery, "announced", lambda: ("theirs",))
        isolated.syspath_prepend(str(tmp_path))

    yield write
    sys.modules.pop("theirs", None)


def kernels_of(out):
    return [row["kernel"] for row in json.loads(out)["buckets"]]


def test_announced_kernels_count_beside_a_module(tune, listed, announce):
    """A serving process records what it misses of both in one file."""
    announce("theirs.scale")
    path = listed(record(4), record(8, kernel="theirs.scale"))
    status, out, _ = tune("--from", path, "--dry-run", "--json")
    assert (status, kernels_of(out)) == (0, ["mine.norm", "theirs.scale"])
    out = tune("--dry-run", "--json")[1]
    assert set(kernels_of(out)) == {"mine.norm"}


def test_a_bare_name_is_the_modules_own_first(tune, listed, announce):
    announce("theirs.norm")
    path = listed("norm m=4 dtype=float32", record(8, kernel="theirs.norm"))
    status, out, _ = tune("--from", path, "--dry-run", "--json")
    assert (status, kernels_of(out)) == (0, ["mine.norm", "theirs.norm"])
