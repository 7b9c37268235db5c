from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import lfbo_aot
from lfbo_aot.cli.main import main
from lfbo_aot.database import store
from lfbo_aot.database.frozen import thaw
from lfbo_aot.registry.devices import DeviceId
from lfbo_aot.registry.dims import Exact
from lfbo_aot.registry.dims import Range

pytestmark = pytest.mark.usefixtures("alone")

DECLARED = str(Path(__file__).parent / "fake_tuning" / "declared.py")
KERNEL = "mine.norm"
DIMS = {"m": Range(1, 64), "dtype": Exact("float32")}
BUCKET = "m=1..64|dtype=float32"
WORDS = ["norm", "m=4", "dtype=float32"]
H200 = DeviceId("sm90", "NVIDIA H200")
H100 = DeviceId("sm90", "NVIDIA H100 80GB HBM3")
SETTINGS = {"static_shapes": True}


@pytest.fixture
def layers(tmp_path, write_database, monkeypatch):
    """Writes databases, the first one over the rest, and lays them over nothing; their paths."""
    monkeypatch.setattr(store, "built_in_database", lambda: tmp_path / "nothing-shipped")

    def write(*databases):
        paths = [tmp_path / f"layer{n}" for n in range(len(databases))]
        for path, held in reversed(list(zip(paths, databases, strict=True))):
            write_database(path, {KERNEL: held}, dims=DIMS)
            lfbo_aot.use_database(path)
        return paths

    return write


@pytest.fixture
def explain(capsys):
    """Runs the command with --json; gives (exit status, what it printed)."""

    def run(*words, arch=str(H200)):
        status = main(["explain", *WORDS, "--arch", arch, *words, "--json"])
        out, err = capsys.readouterr()
        assert err == ""
        return status, json.loads(out)

    return run


def checks(found):
    return {c["name"]: (c["entry"], c["here"], c["verdict"]) for c in found["checks"]}


def test_it_shows_what_resolve_considered(layers, explain, make_entry):
    """The trace is the look-up's own, field by field; the answer is that of `get`."""
    layers({(H100, BUCKET): make_entry(2)}, {BUCKET: make_entry(1)})
    status, found = explain()
    shape = {"m": 4, "dtype": "float32"}
    answer = lfbo_aot.resolve(KERNEL, shape, str(H200))
    assert status == 0
    assert [row["layer"] for row in found["considered"]] == [c.layer for c in answer.considered]
    for row, considered in zip(found["considered"], answer.considered, strict=True):
        for name in ("path", "outcome", "key", "arch", "status", "fresh", "pinned"):
            assert row[name] == getattr(considered, name)
        assert row["why"] == list(considered.why)
        assert [c["name"] for c in row["checks"]] == [c.name for c in considered.checks]
        assert [c["verdict"] for c in row["checks"]] == [c.verdict for c in considered.checks]
    assert found["config"] == thaw(answer.config)
    assert found["reasons"] == list(answer.reasons)
    assert found["policy"] == "compatible"


def test_which_layer_answered_and_what_gave_way(layers, explain, make_entry):
    high, low = layers({(H100, BUCKET): make_entry(2)}, {BUCKET: make_entry(1)})
    _, found = explain()
    rows = {row["layer"]: row for row in found["considered"] if row["key"]}
    assert found["layer"] == str(low)
    assert rows[str(low)]["outcome"] == "served"
    assert rows[str(high)]["outcome"] == "outranked"
    assert rows[str(high)]["why"] == ["status: same_arch comes after exact"]
    empty = [row["layer"] for row in found["considered"] if row["outcome"] == "nothing held"]
    assert empty == ["user", "built-in"]


def test_the_resource_check_shows_both_numbers(layers, explain, make_entry):
    """147,456 bytes of shared memory on a device of the arch that has 101,376."""
    a10 = DeviceId("sm86", "NVIDIA A10")
    made = make_entry(resources={"shared": 147456, "regs": 64, "spills": 0, "threads": 128})
    layers({(DeviceId("sm86", "NVIDIA A40"), BUCKET): made})
    status, found = explain(arch=str(a10))
    (row,) = (row for row in found["considered"] if row["key"])
    assert (status, found["status"], row["outcome"]) == (1, "default", "refused")
    assert checks(row)["shared"] == (147456, 101376, "differs")
    assert checks(row)["threads"] == (128, 1024, "equal")
    assert checks(row)["registers"] == (8192, 65536, "equal")
    assert row["why"] == [f"resources: shared entry=147456 limit=101376 of {a10}"]


def test_text(layers, make_entry, capsys):
    made = make_entry(
        resources={"shared": 300000, "regs": 64, "threads": 128}, source="sha256:" + "0a" * 32
    )
    (path,) = layers({BUCKET: made})
    assert main(["explain", *WORDS, "--arch", str(H200)]) == 1
    out = capsys.readouterr().out.splitlines()
    assert out[:5] == [
        "kernel   mine.norm",
        "shape    m=4 dtype=float32",
        "asked    for sm90/NVIDIA H200, policy compatible",
        "answer   default: the caller takes Helion's own default config",
        "key      NVIDIA H200|m=4|dtype=float32 (looked up)",
    ]
    at = out.index(str(path))
    assert out[at - 1] == ""
    assert out[at + 1] == f"  refused    NVIDIA H200|{BUCKET} (exact, versions not checked)"
    rest = out[at + 2 :]
    assert rest[0].startswith("    because  resources: shared entry=300000 limit=232448 of ")
    assert "    equal      device: sm90/NVIDIA H200" in rest
    assert "    allows     policy: entry=exact here=compatible" in rest
    assert "    unchecked  source: entry=sha256:0a0a0a0a0a0a... here=unknown" in rest
    assert "    exceeds    shared: entry=300000 limit=232448" in rest
    assert "    fits       registers: entry=8192 limit=65536" in rest
    assert rest[-2:] == [f"built-in: {path.parent / 'nothing-shipped'}", "  nothing held"]


def test_text_fits_80_columns_where_words_allow_it(layers, make_entry, capsys):
    config = {f"option_{n}": ["pointer", "tensor_descriptor"] for n in range(9)}
    layers({BUCKET: make_entry(config=config)}, {(H100, BUCKET): make_entry()})
    assert main(["explain", *WORDS, "--arch", str(H200)]) == 0
    out = capsys.readouterr().out
    long = [line for line in out.splitlines() if len(line) > 80]
    assert [line for line in long if len(max(line.split(), key=len)) < 60] == []  # paths are words
    _, _, rest = out.partition("config   ")
    text = " ".join(rest.partition("reason ")[0].split())
    assert json.loads(text) == config


def test_what_a_pin_does_is_told(layers, make_entry, capsys):
    layers({BUCKET: make_entry(1)}, {BUCKET: make_entry(2, pinned=True)})
    assert main(["explain", *WORDS, "--arch", str(H200)]) == 0
    out = capsys.readouterr().out
    assert f"  served     NVIDIA H200|{BUCKET} (exact, versions not checked,\n" in out
    assert "    because  pinned: the other one is" in out


def test_damage_is_an_outcome(layers, explain, make_entry, capsys):
    (path,) = layers({BUCKET: make_entry()})
    shard = path / "sm90" / f"{KERNEL}.jsonl"
    shard.write_bytes(shard.read_bytes().replace(b"25.6", b"15.6"))
    status, found = explain()
    row = found["considered"][0]
    assert (status, row["outcome"], row["key"]) == (1, "damaged", "")
    assert row["why"][0].startswith(f"{shard}:1: checksum")
    assert main(["explain", *WORDS, "--arch", str(H200)]) == 1
    assert f"{path}\n  damaged\n    because  {shard}:1:" in capsys.readouterr().out


def test_the_environment_of_the_kernel(layers, explain, make_entry, monkeypatch):
    """Every field that differs is listed, with both values."""
    from lfbo_aot.runtime import versions

    here = {"helion": "1.5.0", "torch": "2.12.0"}
    monkeypatch.setattr(versions, "loaded_versions", lambda: here)
    stored = {"helion": "1.5.0", "torch": "2.11.0"}
    layers({BUCKET: make_entry(settings=SETTINGS, versions=stored)})
    status, found = explain("--module", DECLARED)
    (row,) = (row for row in found["considered"] if row["key"])
    assert (status, found["status"], found["fresh"]) == (0, "exact", False)
    made = checks(row)
    assert made["source"] == ("sha256:50ce", "sha256:50ce", "equal")
    assert made["settings.static_shapes"] == (True, True, "equal")
    assert made["helion"] == ("1.5.0", "1.5.0", "equal")
    assert made["torch"] == ("2.11.0", "2.12.0", "differs")
    status, found = explain("--module", DECLARED, "--policy", "exact")
    assert (status, found["policy"]) == (1, "exact")


def test_another_source_and_other_settings(layers, explain, make_entry):
    settings = {"static_shapes": False, "fast_math": True}
    layers({BUCKET: make_entry(source="sha256:01d", settings=settings)})
    status, found = explain("--module", DECLARED)
    (row,) = (row for row in found["considered"] if row["key"])
    assert (status, row["outcome"]) == (1, "refused")
    assert {name for name, (*_, verdict) in checks(row).items() if verdict == "differs"} >= {
        "source",
        "settings.static_shapes",
        "settings.fast_math",
    }


def test_it_records_no_miss_and_raises_none(layers, explain, make_entry, isolated, tmp_path):
    isolated.setenv("LFBO_AOT_RECORD_MISSES", str(tmp_path / "misses"))
    isolated.setenv("LFBO_AOT_ON_MISS", "error")
    layers({BUCKET: make_entry()})
    assert explain(arch="sm80")[0] == 1
    assert not (tmp_path / "misses").exists()


@pytest.mark.parametrize("arch", ["sm121", "gfx942:sramecc+:xnack-"])
def test_archs_that_nothing_is_held_for(layers, explain, make_entry, arch):
    layers({BUCKET: make_entry()})
    status, found = explain(arch=arch)
    assert (status, found["status"], found["config"]) == (1, "default", {})
    assert found["arch"] == arch.partition(":")[0]
    assert found["reasons"][0].startswith(f"miss: nothing is held for {found['arch']}/*|m=4|")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nrm", "m=1", "--arch", "sm90"], "unknown kernel 'nrm'. Did you mean 'norm'"),
        ([*WORDS], "--arch is missing"),
        (["norm", "m=1", "--arch", "sm90"], "dim 'dtype': missing from the shape"),
        ([*WORDS, "--arch", "h200"], "unknown arch 'h200'. Did you mean 'sm90/NVIDIA H200'"),
        ([*WORDS, "--arch", "sm90", "--polcy", "any"], "Did you mean '--policy'"),
        ([*WORDS, "--arch", "sm90", "--module", "no.mod"], "'no.mod' can't be imported"),
        (["other", "--arch", "sm90", "--module", DECLARED], "unknown kernel 'other'"),
    ],
)
def test_wrong_use(layers, make_entry, capsys, words, says):
    layers({BUCKET: make_entry()})
    assert main(["explain", *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("lfbo-aot: error: ")
    assert says in err


def test_without_torch_and_into_a_pipe(tmp_path, write_database, make_entry):
    path = write_database(tmp_path / "tuned", {KERNEL: {BUCKET: make_entry()}}, dims=DIMS)
    code = (
        "import sys\nfrom lfbo_aot.cli.main import main\n"
        f"words = ['explain', *{WORDS!r}, '--arch', 'sm90', '--database', {str(path)!r}]\n"
        "status = main(words)\n"
        "heavy = {'torch', 'helion', 'triton', 'numpy', 'filelock'} & set(sys.modules)\n"
        "sys.exit(9 if heavy else status)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("kernel   mine.norm\n")


def test_help(capsys):
    assert main(["explain", "--help"]) == 0
    assert "example: lfbo-aot explain" in capsys.readouterr().out
