"""`lfbo-aot doctor`: one screen that says what is served here and what keeps it from being."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from lfbo_aot.cli.main import main
from lfbo_aot.database.store import built_in_database
from lfbo_aot.registry.devices import INTERPRETER
from lfbo_aot.registry.devices import DeviceId
from lfbo_aot.tuning.devices import probe

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

H200 = DeviceId("sm90", "NVIDIA H200")
H100 = DeviceId("sm90", "NVIDIA H100 PCIe")


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Callable[[DeviceId], None]:
    """Let the machine have a GPU: asking for one takes a process and a driver."""

    def have(device: DeviceId) -> None:
        found = probe.Survey((probe.Gpu(0, device),), f"torch sees {device}")
        monkeypatch.setattr(probe, "survey", lambda: found)

    return have


def report(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, object]]:
    status = main(["doctor", "--json", *words])
    return status, json.loads(capsys.readouterr().out)


def test_without_a_gpu_it_says_so_and_what_the_databases_hold(
    capsys: pytest.CaptureFixture[str],
) -> None:
    status, found = report(capsys)
    assert status == 1
    assert found["devices"] == []
    assert any("no GPU here" in line and "sm90/NVIDIA H200" in line for line in found["advice"])


def test_entries_for_the_device_here_are_well(
    capsys: pytest.CaptureFixture[str], gpu: Callable[[DeviceId], None]
) -> None:
    gpu(H200)
    status, found = report(capsys)
    assert (status, found["advice"]) == (0, [])
    built_in = found["layers"][-1]
    assert built_in["layer"] == "built-in"
    lines = sum(p.read_text().count("\n") for p in built_in_database().glob("sm90/*.jsonl"))
    assert built_in["entries"] == {"sm90/NVIDIA H200": lines}


def test_a_device_without_entries_is_named_beside_those_that_have_some(
    capsys: pytest.CaptureFixture[str], gpu: Callable[[DeviceId], None]
) -> None:
    gpu(H100)
    status, found = report(capsys)
    assert status == 1
    assert found["advice"] == [
        "no entry for sm90/NVIDIA H100 PCIe; the databases hold: sm90/NVIDIA H200. "
        "Run lfbo-aot tune here; until then those of its arch answer, as same_arch"
    ]
    gpu(DeviceId("sm100", "NVIDIA B200"))
    assert report(capsys)[1]["advice"][0].endswith(". Run lfbo-aot tune here")


def test_a_device_of_no_known_limits_is_named(
    capsys: pytest.CaptureFixture[str], gpu: Callable[[DeviceId], None]
) -> None:
    """Of an unknown product those of its arch are known."""
    gpu(DeviceId("sm199", "NVIDIA X"))
    assert any("not a known device" in line for line in report(capsys)[1]["advice"])
    gpu(DeviceId("sm90", "NVIDIA X"))
    assert not any("not a known device" in line for line in report(capsys)[1]["advice"])


def test_a_damaged_layer_comes_first(
    capsys: pytest.CaptureFixture[str], gpu: Callable[[DeviceId], None], tmp_path: Path
) -> None:
    gpu(H200)
    shard = tmp_path / INTERPRETER.arch / "lfbo_aot.softmax.jsonl"
    shard.parent.mkdir()
    shard.write_text("no line\n")
    status, found = report(capsys, "--database", str(tmp_path))
    assert status == 1
    assert found["advice"][0].startswith(f"{tmp_path} is damaged")
    assert f"{shard}:1" in found["layers"][0]["problems"][0]


def test_the_screen_names_every_layer_and_ends_with_the_advice(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["doctor"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("layer ") for line in lines) == 2
    assert lines[-1].startswith("=> no GPU here")


@pytest.fixture
def three(
    tmp_path: Path, write_database: Callable[..., Path], make_entry: Callable[..., object]
) -> Path:
    """A database of three kernels with an entry each."""
    held = {"m=1..16|n=2048|dtype=bfloat16": make_entry()}
    return write_database(tmp_path / "db", {"k.a": held, "k.b": held, "k.c": held})


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_a_shard_that_cannot_be_read_is_told_and_the_rest_too(
    capsys: pytest.CaptureFixture[str],
    gpu: Callable[[DeviceId], None],
    three: Path,
    kind: str,
) -> None:
    gpu(H200)
    shard = three / "sm90" / "k.b.jsonl"
    shard.unlink()
    if kind == "link":
        shard.symlink_to("moved.jsonl")
    else:
        os.mkfifo(shard)
    status, found = report(capsys, "--database", str(three))
    layer = found["layers"][0]
    assert status == 1
    assert layer["entries"] == {str(H200): 2}
    assert [problem.partition(": ")[0] for problem in layer["problems"]] == [str(shard)]
    assert found["advice"][0].startswith(f"{three} is damaged (1)")
