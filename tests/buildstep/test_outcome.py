from __future__ import annotations

import json

import pytest

from lfbo_aot.buildstep.ask import Answer
from lfbo_aot.buildstep.ask import Kernel
from lfbo_aot.buildstep.ask import Row
from lfbo_aot.buildstep.checked import read_checked_in
from lfbo_aot.buildstep.interpreter import Search
from lfbo_aot.buildstep.manifest import manifest
from lfbo_aot.buildstep.manifest import refusal
from lfbo_aot.buildstep.manifest import summary
from lfbo_aot.buildstep.manifest import told
from lfbo_aot.buildstep.manifest import told_lines
from lfbo_aot.buildstep.outcome import Asked
from lfbo_aot.buildstep.outcome import compose
from lfbo_aot.buildstep.settings import BuildSettings
from lfbo_aot.database.line import encode_line
from lfbo_aot.registry.devices import INTERPRETER
from lfbo_aot.registry.source import source_digest

FIRST = "m=1..16|n=2048|dtype=bfloat16"
SECOND = "m=17..256|n=2048|dtype=bfloat16"
SHARD = "sm90/pkg.k.jsonl"
SETTINGS = {"static_shapes": True, "fast_math": False}
NOT_FOUND = Search(None, ("python as it is: no torch",))


@pytest.fixture
def project(tmp_path, write_database, make_entry):
    """A package with one kernel, and a database with an entry of its source and a stale one."""
    (tmp_path / "pkg").mkdir()
    ops = tmp_path / "pkg" / "ops.py"
    ops.write_text("def k(x):\n    return x\n")
    (tmp_path / "pkg" / "__init__.py").write_text("")
    source = source_digest(ops, "k", module="pkg.ops")
    held = {FIRST: make_entry(1, source=source), SECOND: make_entry(2, source="sha256:01d")}
    write_database(tmp_path / "tuned", {"pkg.k": held})
    return tmp_path, source


def settings(**given):
    return BuildSettings(**{"package": "pkg", "kernels": ("pkg.ops",), **given})


def made(project, asked, **given):
    root, _ = project
    checked = read_checked_in(root / "tuned", "tuned")
    return compose(settings(**given), "1.0", checked, asked, root)


def buckets(outcome, name=SHARD):
    lines = outcome.files.get(name, b"").decode().splitlines()
    return [json.loads(line)[0].partition("|")[2] for line in lines]


def answered(source, rows=(), lines=(), **given):
    kernel = Kernel('{"declaration": "as the kernel says"}\n', source, SETTINGS)
    return Answer(
        archs=("sm90",), kernels={"pkg.k": kernel}, rows=list(rows), lines=list(lines), **given
    )


def test_enumerated_kernels_keep_what_was_made_for_their_source(project):
    _, source = project
    rows = [Row("sm90", "pkg.k", FIRST, "kept"), Row("sm90", "pkg.k", SECOND, "missing", "no GPU")]
    out = made(project, Asked(Search(None, ()), answered(source, rows)))
    assert out.enumerated
    assert buckets(out) == [FIRST]
    assert [(bucket, why) for _, _, bucket, why in out.left_out] == [
        (f"NVIDIA H200|{SECOND}", "the kernel's source has changed since")
    ]
    assert out.files["kernels/pkg.k.json"] == b'{"declaration": "as the kernel says"}\n'


def test_what_was_tuned_joins_the_shard_in_order(project, make_entry):
    _, source = project
    key = f"NVIDIA H200|{SECOND}"
    line = encode_line(key, make_entry(7, source=source))
    rows = [Row("sm90", "pkg.k", FIRST, "kept"), Row("sm90", "pkg.k", SECOND, "tuned", "on H200")]
    answer = answered(source, rows, [("sm90", "pkg.k", key, line)], device="sm90/NVIDIA H200")
    out = made(project, Asked(Search(None, ()), answer))
    assert buckets(out) == [FIRST, SECOND]
    assert out.files[SHARD].decode().splitlines()[1] == line
    assert not out.unmet
    assert "1 kept, 1 tuned on sm90/NVIDIA H200" in summary(out)


def test_a_kernel_that_is_declared_no_more_is_left_out(project):
    out = made(project, Asked(Search(None, ()), Answer(archs=("sm90",))))
    assert out.files == {}
    assert {why for *_, why in out.left_out} == {"no kernel of this id is declared"}


def test_without_an_interpreter_the_source_files_decide(project):
    out = made(project, Asked(NOT_FOUND))
    assert buckets(out) == [FIRST]
    assert not out.enumerated
    assert out.unmet
    kept = [row for row in out.rows if row.status == "kept"]
    assert [row.bucket for row in kept] == [FIRST]
    assert {row.why for row in out.rows if row.status == "missing"} == {"not enumerated"}
    assert "not enumerated" in summary(out)
    assert "tried python as it is: no torch" in summary(out)
    assert "LFBO_AOT_PYTHON" in refusal(out)


def test_off_ships_what_is_checked_in_and_says_what_is_stale(project):
    out = made(project, Asked(), tune="off")
    assert buckets(out) == [FIRST, SECOND]
    assert out.notes == [
        "not enumerated: tune is off",
        "pkg.k: the source has changed since some entries were measured",
    ]


def test_a_kernel_that_no_file_defines_ships_uncompared(project):
    out = made(project, Asked(NOT_FOUND), kernels=("pkg",), package="pkg")
    assert buckets(out) == [FIRST], "it is found below the package, too"
    (project[0] / "pkg" / "ops.py").unlink()
    out = made(project, Asked(NOT_FOUND))
    assert buckets(out) == [FIRST, SECOND]
    assert any("its source isn't compared" in note for note in out.notes)


def test_a_module_that_fails_leaves_its_kernels_to_their_source(project):
    answer = Answer(archs=("sm90",), failed_modules={"pkg.ops": "kernel module 'pkg.ops' can't"})
    out = made(project, Asked(Search(None, ()), answer))
    assert buckets(out) == [FIRST]
    assert not out.enumerated
    assert "kernel module 'pkg.ops' can't" in summary(out)


def test_the_interpreters_entries_ship_only_where_its_arch_is_named(
    tmp_path, write_database, make_entry
):
    box = "m=16|n=128|dtype=float32"
    write_database(tmp_path / "tuned", {"pkg.k": {(INTERPRETER, box): make_entry()}})
    plain = made((tmp_path, ""), Asked(NOT_FOUND))
    assert [name for name in plain.files if name.endswith("l")] == []
    named = made((tmp_path, ""), Asked(NOT_FOUND), archs=("cpu-interpreter",))
    assert buckets(named, "cpu-interpreter/pkg.k.jsonl") == [box]


def test_damage_is_told_and_fails_require(project):
    shard = project[0] / "tuned" / "sm90" / "pkg.k.jsonl"
    shard.write_bytes(shard.read_bytes()[:-40] + b"\n")
    _, source = project
    out = made(project, Asked(Search(None, ()), answered(source)))
    assert out.unmet
    assert "damaged: tuned/sm90/pkg.k.jsonl:2: " in summary(out)


def test_a_variable_that_means_nothing_is_told(project):
    out = made(project, Asked(NOT_FOUND), unknown_variables=("LFBO_AOT_TUNES",))
    assert "LFBO_AOT_TUNES means nothing to lfbo-aot" in summary(out)


def test_the_manifest_says_what_was_done_and_why_and_holds_no_path(project):
    out = made(project, Asked(Search(None, ("/some/python as it is: no torch",))))
    text = manifest(out)
    assert text == manifest(made(project, Asked(NOT_FOUND)))
    data = json.loads(text)
    assert data["schema"] == 1
    assert (data["package"], data["version"], data["tune"]) == ("pkg", "1.0", "auto")
    assert data["enumerated"] is False
    assert data["keys"]["sm90"]["pkg.k"]["kept"] == 1
    assert data["left_out"]["sm90"]["pkg.k"] == {
        "the kernel's source has changed since": [f"NVIDIA H200|{SECOND}"]
    }
    assert sorted(data["files"]) == ["kernels/pkg.k.json", SHARD]


def test_what_doctor_tells_of_a_manifest(project):
    found = told(json.loads(manifest(made(project, Asked(NOT_FOUND)))))
    assert found is not None
    declared = 12  # 3 intervals of m, 2 values of n, 2 dtypes
    assert (found["kept"], found["tuned"]) == (1, 0)
    assert found["missing"] == {"not enumerated": declared - 1}
    assert told_lines(found)[:2] == [
        "built for sm90 with tune=auto: 1 kept, 0 tuned, 11 missing",
        "missing 11: not enumerated",
    ]
    assert told({"schema": 1, "made": "by another tool"}) is None


def test_a_long_list_of_reasons_is_cut(project):
    out = made(project, Asked(NOT_FOUND))
    out.rows = [Row("sm90", f"pkg.k{i}", FIRST, "missing", "no GPU") for i in range(9)]
    lines = summary(out).splitlines()
    assert sum("missing: " in line for line in lines) == 6
    assert "  and 3 more such lines" in lines


def test_require_without_an_arch_is_not_met(tmp_path):
    out = made((tmp_path, ""), Asked(Search(None, ()), Answer()), tune="require")
    assert out.unmet
    assert "no arch to build for" in summary(out)
