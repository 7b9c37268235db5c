from __future__ import annotations

import json
import zlib

import pytest

import lfbo_aot
from lfbo_aot.runtime.resolve import get_config
from lfbo_aot.runtime.resolve import resolve

pytestmark = pytest.mark.usefixtures("isolated")

KERNEL = "mykern.norm"
ARCH = "sm90/NVIDIA H200"
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
    assert texts(caplog) == []  # none of it says that it was about this key
    assert "damaged" not in str(resolve(KERNEL, shape(100), ARCH).reasons)


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
