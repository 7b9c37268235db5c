from __future__ import annotations

import json
import os
import zlib
from pathlib import Path

import pytest

import lfbo_aot
from lfbo_aot import Environment
from lfbo_aot import Exact
from lfbo_aot import Range
from lfbo_aot.database.merge import merge
from lfbo_aot.registry.buckets import Bucket
from lfbo_aot.registry.devices import DeviceId
from lfbo_aot.runtime import settings
from lfbo_aot.runtime import state
from lfbo_aot.runtime.resolve import get_config
from lfbo_aot.runtime.resolve import resolve

pytestmark = pytest.mark.usefixtures("isolated")

KERNEL = "mykern.norm"
ARCH = "sm90/NVIDIA H200"
H200 = "NVIDIA H200"
ONE, TWO = "m=17..256|n=2048|dtype=bfloat16", "m=257..4096|n=2048|dtype=bfloat16"


def shape(m):
    return {"m": m, "n": 2048, "dtype": "bfloat16"}


@pytest.fixture
def layers(tmp_path, write_database, make_entry):
    """Two layers, the upper with 1 and 2 warps, the lower with 4 and 8."""
    low = write_database(tmp_path / "low", {KERNEL: {ONE: make_entry(4), TWO: make_entry(8)}})
    high = write_database(tmp_path / "high", {KERNEL: {ONE: make_entry(1), TWO: make_entry(2)}})
    lfbo_aot.use_database(low)
    lfbo_aot.use_database(high)
    return high, low


def shard(path):
    return path / "sm90" / f"{KERNEL}.jsonl"


def texts(caplog):
    return [record.getMessage() for record in caplog.records]


def test_a_damaged_line_is_warned_of_once_and_the_next_layer_answers(layers, caplog):
    high, low = layers
    content = shard(high).read_bytes()
    shard(high).write_bytes(content.replace(b'"num_warps": 1,', b'"num_warps": 9,', 1))
    for m in (100, 101, 100):
        found = resolve(KERNEL, shape(m), ARCH)
        assert (found.config["num_warps"], found.layer) == (4, str(low))
        assert any(r.startswith(f"damaged: {shard(high)}:1: checksum") for r in found.reasons)
    assert get_config(KERNEL, shape(300), ARCH)["num_warps"] == 2
    (text,) = texts(caplog)
    assert text.startswith(f"{KERNEL}: damaged: {shard(high)}:1: checksum")


def test_damage_in_every_layer_gives_the_default(layers, caplog):
    for path in layers:
        shard(path).write_bytes(shard(path).read_bytes()[:100])
    found = resolve(KERNEL, shape(100), ARCH)
    assert (found.status, found.config) == ("default", {})
    assert sum(r.startswith("damaged: ") for r in found.reasons) == 2
    assert sum("damaged: " in text for text in texts(caplog)) == 2


def test_a_newer_schema_says_so_and_the_next_layer_answers(layers, caplog):
    high, low = layers
    lines = shard(high).read_text().splitlines(keepends=True)
    key, _, entry = json.loads(lines[0])
    text = json.dumps({"schema": 2, "key": key, "config": entry["config"], "era": "next"})
    lines[0] = f'["{key}", "{zlib.crc32(text.encode()):08x}", {text}]\n'
    shard(high).write_text("".join(lines))
    found = resolve(KERNEL, shape(100), ARCH)
    assert (found.config["num_warps"], found.layer) == (4, str(low))
    (said,) = texts(caplog)
    assert f"{shard(high)}:1: schema 2 is newer than 1" in said
    assert get_config(KERNEL, shape(300), ARCH)["num_warps"] == 2


def test_a_shard_that_cannot_be_read(layers, caplog):
    high, low = layers
    shard(high).write_bytes(b"\x80\xff\x00nothing\n" * 3)
    assert resolve(KERNEL, shape(100), ARCH).layer == str(low)
    (text,) = texts(caplog)  # all of it may have been about this key
    assert text.startswith(f"{KERNEL}: damaged: {shard(high)}:1: the line is cut or malformed")
    assert resolve(KERNEL, shape(100), "sm90").layer == str(low)


def test_a_damaged_declaration(layers, caplog):
    high, _ = layers
    declared = high / "kernels" / f"{KERNEL}.json"
    declared.write_text(declared.read_text()[:40])
    assert get_config(KERNEL, (100, 2048, "bfloat16"), ARCH)["num_warps"] == 1
    (text,) = texts(caplog)
    assert text.startswith(f"{KERNEL}: damaged: {declared}:")


def test_no_declaration_at_all_leaves_the_keys(layers):
    for path in layers:
        (path / "kernels" / f"{KERNEL}.json").unlink()
    assert get_config("norm", (100, 2048, "bfloat16"), ARCH)["num_warps"] == 1
    assert get_config("norm", shape(300), ARCH)["num_warps"] == 2
    with pytest.raises(lfbo_aot.errors.UnknownNameError, match=r"Did you mean 'dtype'"):
        get_config("norm", {**shape(300), "dtyp": 1}, ARCH)
    assert resolve("norm", shape(9999), ARCH).status == "default"


def test_neither_declaration_nor_keys(layers):
    for path in layers:
        (path / "kernels" / f"{KERNEL}.json").write_text("{")
        shard(path).write_text("gone\n")
    for asked in (shape(100), (100, 2048, "bfloat16")):
        found = resolve(KERNEL, asked, ARCH)
        assert (found.status, found.config) == ("default", {})


def test_damage_does_not_raise_with_binary_noise_anywhere(layers):
    high, _ = layers
    content = shard(high).read_bytes()
    allowed = {1, 4}
    for place in range(0, len(content), 97):
        noisy = content[:place] + b"\xff\x00\n" + content[place + 3 :]
        shard(high).write_bytes(noisy)
        lfbo_aot.use_database(high)
        assert get_config(KERNEL, shape(100), ARCH)["num_warps"] in allowed


WIDE, NARROW, ELSE = "m=1..1024|n=5120", "m=1..16|n=5120", "m=2000..2001|n=5120"


@pytest.fixture
def nested(tmp_path, write_database, make_entry):
    """Two layers: above a box of 1 warp in one of 8 warps, below another one of 2 warps."""
    dims = {"m": Range(1, 4096), "n": Exact(5120)}
    low = write_database(tmp_path / "low", {KERNEL: {WIDE: make_entry(2)}}, dims=dims)
    held = {NARROW: make_entry(1), WIDE: make_entry(8), ELSE: make_entry(4)}
    high = write_database(tmp_path / "high", {KERNEL: held}, dims=dims)
    lfbo_aot.use_database(low)
    lfbo_aot.use_database(high)
    return high, low


@pytest.mark.parametrize(
    "cut", ["[", '["', '["NVID', f'["{H200}|', f'["{H200}|m=1..1', f'["{H200}|m=1..16|n=51']
)
def test_a_line_cut_in_its_key_never_makes_a_larger_box_answer(nested, caplog, cut):
    high, low = nested
    lines = shard(high).read_text().splitlines(keepends=True)
    mine = next(line for line in lines if f"{H200}|{NARROW}" in line[:40])
    lines.remove(mine)
    shard(high).write_text("".join([*lines, cut]))
    lfbo_aot.use_database(high)
    found = resolve(KERNEL, (8, 5120), ARCH)
    assert (found.config["num_warps"], found.layer) == (2, str(low))
    (text,) = texts(caplog)
    assert text.startswith(f"{KERNEL}: damaged: {shard(high)}:3: the line is cut or malformed")


def test_an_exact_box_is_served_whatever_else_is_damaged(tmp_path, write_database, make_entry):
    held = {"m=8": make_entry(1), "m=1..16": make_entry(2)}
    path = write_database(tmp_path / "one", {KERNEL: held}, dims={"m": Range(1, 64)})
    with shard(path).open("a") as file:
        file.write(f'["{H200}|m=1')
    lfbo_aot.use_database(path)
    assert get_config(KERNEL, (8,), ARCH)["num_warps"] == 1
    assert resolve(KERNEL, (9,), ARCH).status == "default"


def test_an_outdated_smaller_box_does_not_hide_a_valid_larger_one(nested, make_entry):
    high, _ = nested
    old = make_entry(1, source="sha256:01d")
    bucket, wide = Bucket.parse(NARROW), Bucket.parse(WIDE)
    new = make_entry(8, source="sha256:4e3")
    device = DeviceId.parse(ARCH)
    merge(high, {KERNEL: {(device, bucket): old, (device, wide): new}}, [])
    lfbo_aot.use_database(high)
    found = resolve(KERNEL, (8, 5120), ARCH, environment=Environment(source="sha256:4e3"))
    assert (found.config["num_warps"], found.layer, found.status) == (8, str(high), "exact")
    passed = f"source: entry=sha256:01d here=sha256:4e3 ({high}: {H200}|{NARROW})"
    assert passed in found.reasons
    # Damage isn't an outdated entry: what it says can't be known.
    content = shard(high).read_bytes()
    shard(high).write_bytes(content.replace(b'"num_warps": 1,', b'"num_warps": 9,', 1))
    lfbo_aot.use_database(high)
    found = resolve(KERNEL, (8, 5120), ARCH, environment=Environment(source="sha256:50ce"))
    assert found.config["num_warps"] == 2


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        (
            {"versions": {"torch": "2.10.0"}},
            "freshness: stale comes after fresh; torch: entry=2.10.0 here=2.11.0",
        ),
        ({"status": "imported"}, "status: imported comes after exact"),
    ],
)
def test_an_entry_passed_over_for_a_lower_layer_is_named(nested, make_entry, fields, says):
    high, low = nested
    device = DeviceId.parse(ARCH)
    worse = {(device, Bucket.parse(NARROW)): make_entry(1, **fields)}
    merge(high, {KERNEL: worse}, [])
    lfbo_aot.use_database(high)
    here = Environment(versions={"torch": "2.11.0"})
    found = resolve(KERNEL, (8, 5120), ARCH, environment=here)
    assert (found.config["num_warps"], found.layer) == (8, str(high))
    assert f"{says} ({high}: {H200}|{NARROW})" in found.reasons
    merge(high, {KERNEL: {(device, Bucket.parse(WIDE)): make_entry(8, **fields)}}, [])
    lfbo_aot.use_database(high)
    found = resolve(KERNEL, (8, 5120), ARCH, environment=here)
    assert (found.config["num_warps"], found.layer) == (2, str(low))
    assert f"{says} ({high}: {H200}|{NARROW})" in found.reasons


@pytest.mark.parametrize("what", ["", "sm90"])
def test_a_closed_folder_is_warned_of_once(layers, caplog, closed, what):
    high, low = layers
    closed(high / what if what else high)
    for m in (100, 101):
        assert resolve(KERNEL, shape(m), ARCH).layer == str(low)
    (text,) = texts(caplog)
    assert text == f"{KERNEL}: damaged: {high / what}: can't be read: Permission denied"


def test_a_kernel_that_may_be_in_a_closed_folder(layers, closed):
    high, low = layers
    closed(high.parent)
    with pytest.raises(lfbo_aot.errors.UnknownNameError) as caught:
        resolve(KERNEL, shape(100), ARCH)
    for path in (high, low):
        assert f"{path}: can't be read: Permission denied" in str(caught.value)


def test_a_path_that_cannot_be_looked_at_is_a_layer_that_says_so(
    layers, caplog, closed, isolated, tmp_path
):
    hidden = tmp_path / "shut" / "tuned"
    hidden.mkdir(parents=True)
    closed(hidden.parent)
    isolated.setenv("LFBO_AOT_PATH", str(hidden))
    settings.current.cache_clear()
    state.refresh()
    assert resolve(KERNEL, shape(100), ARCH).config["num_warps"] == 1
    with lfbo_aot.use_database(hidden):
        assert resolve(KERNEL, shape(100), ARCH).config["num_warps"] == 1
    (text,) = texts(caplog)
    assert text == f"{KERNEL}: damaged: {hidden}: can't be read: Permission denied"


def test_a_closed_folder_of_declarations(layers, caplog, closed):
    high, _ = layers
    closed(high / "kernels")
    assert get_config(KERNEL, (100, 2048, "bfloat16"), ARCH)["num_warps"] == 1
    (text,) = texts(caplog)
    assert text == f"{KERNEL}: damaged: {high / 'kernels'}: can't be read: Permission denied"


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (Path.mkdir, "not a file"),
        (lambda path: path.symlink_to("nowhere"), "No such file or directory"),
        (os.mkfifo, "not a file"),
    ],
)
def test_a_shard_that_is_no_file(layers, caplog, make, says):
    high, low = layers
    shard(high).unlink()
    make(shard(high))
    assert resolve(KERNEL, shape(100), ARCH).layer == str(low)
    (text,) = texts(caplog)
    assert text == f"{KERNEL}: damaged: {shard(high)}: can't be read: {says}"
