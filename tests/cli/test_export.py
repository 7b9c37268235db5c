from __future__ import annotations

import inspect
import io
import json
import sys

import pytest

from lfbo_aot.cli.main import main
from lfbo_aot.database.archive import read_archive
from lfbo_aot.database.contents import folder_files
from lfbo_aot.database.contents import read_folder
from lfbo_aot.database.database import Database
from lfbo_aot.database.verify import verify
from lfbo_aot.registry.devices import DeviceId
from lfbo_aot.registry.spec import make_spec
from lfbo_aot.runtime import settings
from lfbo_aot.tuning.plan import make_plan

pytestmark = pytest.mark.usefixtures("isolated")

KERNEL = "mykern.norm"
ONE, TWO = "m=1..16|n=2048|dtype=bfloat16", "m=17..256|n=2048|dtype=bfloat16"
H200 = DeviceId("sm90", "NVIDIA H200")
B200 = DeviceId("sm100", "NVIDIA B200")


@pytest.fixture
def here(tmp_path, write_database, make_entry):
    held = {KERNEL: {ONE: make_entry(1), (B200, ONE): make_entry(2)}, "other.soft": {}}
    return write_database(tmp_path / "here", held)


def call(*words):
    return main([str(word) for word in words])


def said(capsys):
    return json.loads(capsys.readouterr().out)


def test_the_round_trip(here, tmp_path, capsys, write_database, make_entry):
    job, far, result = tmp_path / "job.zip", tmp_path / "far", tmp_path / "out" / "result.zip"
    limits = ["norm", "n=2048", "m=1,17", "dtype=bfloat16", "--arch", "sm90/NVIDIA H200"]
    assert call("export", *limits, "--database", here, "--out", job) == 0
    assert capsys.readouterr().out == (
        f"{job}: 1 kernels, 1 entries, 1 buckets missing on sm90/NVIDIA H200\n"
    )
    assert call("import", job, "--into", far) == 0
    command = f"lfbo-aot tune {KERNEL} n=2048 m=1,17 dtype=bfloat16 --into {far}"
    assert capsys.readouterr().out.splitlines()[1:] == [
        f"{KERNEL}  sm90/NVIDIA H200: 1 added",
        f"{far}: written",
        f"1 buckets are missing on sm90/NVIDIA H200; to tune: {command}",
    ]
    assert verify(far) == ()

    # What `tune` does there:
    write_database(far, {KERNEL: {TWO: make_entry(8)}})

    assert call("export", "--database", far, "--out", result, "--json") == 0
    made = said(capsys)
    assert (made["entries"], made["target"], made["archive"]) == (2, None, str(result))
    assert call("import", result, "--into", here, "--json") == 0
    data = said(capsys)
    assert [(c["what"], c["bucket"]) for c in data["changes"]] == [("equal", ONE), ("added", TWO)]
    assert data["changes"][1]["source"] == str(result)
    assert data["archives"][0]["origin"]["by"].startswith("lfbo-aot ")
    held = read_folder(here).entries
    warps = {(str(p.device), p.bucket.key): e.config["num_warps"] for p, e in held.items()}
    h200 = "sm90/NVIDIA H200"
    assert warps == {(h200, ONE): 1, (h200, TWO): 8, ("sm100/NVIDIA B200", ONE): 2}
    assert verify(here) == ()


@pytest.fixture
def far(tmp_path, write_database, make_entry):
    return write_database(tmp_path / "far", {KERNEL: {TWO: make_entry(8)}})


def test_the_origin_is_kept(here, far, tmp_path, monkeypatch):
    result = tmp_path / "result.zip"
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1764547200")
    monkeypatch.setattr("platform.node", lambda: "far-away")
    assert call("export", "--database", far, "--out", result) == 0
    before = result.read_bytes()
    for _ in range(2):
        assert call("import", result, "--into", here) == 0
    lines = [json.loads(line) for line in (here / "origins.jsonl").read_text().splitlines()]
    assert len(lines) == 1
    assert lines[0]["archive"].startswith("sha256:")
    assert lines[0]["origin"]["machine"] == "far-away"
    assert lines[0]["origin"]["day"] == "2025-12-01"
    assert lines[0]["entries"] == {KERNEL: [f"sm90/NVIDIA H200|{TWO}"]}
    assert verify(here) == ()
    assert call("export", "--database", far, "--out", result) == 0
    assert result.read_bytes() == before


def test_tune_does_there_exactly_what_is_missing(here, tmp_path, capsys, make_declaration):
    declared = make_declaration(KERNEL)
    spec = make_spec(
        kernel=object(),
        kernel_id=KERNEL,
        signature=inspect.signature(lambda x: x),
        place=("mykern.ops", "ops.py", 1),
        source=declared.source,
        settings=dict(declared.settings),
        dims=declared.dims,
        shape=lambda _: {},
    )
    job, far = tmp_path / "job.zip", tmp_path / "far"
    words = ["n=2048", "--arch", "sm90/NVIDIA H200", "--database", here, "--out", job]
    assert call("export", "norm", *words) == 0
    assert call("import", job, "--into", far) == 0
    plan = make_plan([spec], H200, Database(far), where={"n": [2048]})
    listed = read_archive(job).job.missing
    assert [(i.bucket.key, i.why) for i in plan if i.why] == [(m.bucket, m.why) for m in listed]
    assert [i.bucket.key for i in plan if not i.why] == [ONE]
    assert len(listed) == 5


def test_conflicts(here, tmp_path, capsys, write_database, make_entry):
    far = write_database(tmp_path / "far", {KERNEL: {ONE: make_entry(8, latency_us=20.0)}})
    result, before = tmp_path / "result.zip", folder_files(here)
    assert call("export", "--database", far, "--out", result) == 0
    assert call("import", result, "--into", here) == 1
    assert "1 conflict, nothing was written" in capsys.readouterr().err
    assert folder_files(here) == before
    assert not (here / "origins.jsonl").exists()
    assert call("import", result, "--into", here, "--rule", "best") == 0
    assert "20.00 us, not 25.60 us" in capsys.readouterr().out


def test_files_of_kernels_come_along_as_text(here, tmp_path, capsys):
    ops = tmp_path / "ops.py"
    ops.write_text("raise RuntimeError('run')\n")
    job, far = tmp_path / "job.zip", tmp_path / "far"
    (tmp_path / "empty").mkdir()
    words = ["scale", "--module", ops, "--database", tmp_path / "empty", "--out", job]
    assert call("export", *words) == 0
    capsys.readouterr()
    assert call("import", job, "--into", far) == 0
    out = capsys.readouterr().out
    assert "files of kernels came along, and --modules DIR writes them: ops.py" in out
    assert not list(tmp_path.glob("far/**/*.py"))
    modules = tmp_path / "src"
    assert call("import", job, "--into", far, "--modules", modules, "--json") == 0
    data = said(capsys)
    assert data["modules"] == [str(modules / "ops.py")]
    assert data["commands"] == [f"lfbo-aot tune scale --module {modules / 'ops.py'} --into {far}"]
    assert (modules / "ops.py").read_text() == ops.read_text()
    (modules / "ops.py").write_text("mine\n")
    assert call("import", job, "--into", far, "--modules", modules) == 2
    assert "another ops.py is there" in capsys.readouterr().err
    assert (modules / "ops.py").read_text() == "mine\n"


def test_a_link_is_not_written_through(here, tmp_path, capsys):
    ops = tmp_path / "ops.py"
    ops.write_text("x = 1\n")
    job, modules = tmp_path / "job.zip", tmp_path / "src"
    modules.mkdir()
    (modules / "ops.py").symlink_to(tmp_path / "elsewhere.py")
    assert call("export", "--module", ops, "--database", here, "--out", job) == 0
    assert call("import", job, "--into", tmp_path / "far", "--modules", modules) == 2
    assert not (tmp_path / "elsewhere.py").exists()


def test_the_users_database_is_the_default(tmp_path, capsys, write_database, make_entry):
    mine = tmp_path / "user-data" / "lfbo-aot" / "tuned"
    assert call("export", "--out", tmp_path / "job.zip") == 2
    assert "you have no database of your own yet" in capsys.readouterr().err
    write_database(mine, {KERNEL: {ONE: make_entry(1)}})
    assert call("export", "--out", tmp_path / "job.zip") == 0
    assert call("import", tmp_path / "job.zip", "--json") == 0
    capsys.readouterr()
    assert call("import", tmp_path / "job.zip", "--json") == 0
    assert said(capsys)["into"] == str(mine)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["export", "norm", "--database", "{here}"], "required: --out"),
        (["export", "nrm", "--out", "x", "--database", "{here}"], "unknown kernel 'nrm'"),
        (["export", "k=1", "--out", "x", "--database", "{here}"], "unknown dim 'k'"),
        (["export", "n=", "--out", "x", "--database", "{here}"], "isn't written dim=value"),
        (["export", "--out", "x", "--database", "{here}/kernels"], "holds no kernel"),
        (["export", "--out", "x", "--database", "{here}", "--arch", "a b"], "unknown arch"),
        (["export", "--out", "x", "--database", "{here}", "--arch", "h200"], "'sm90/NVIDIA H200'"),
        (
            ["export", "--out", "x", "--database", "{here}", "--arch", "smm90"],
            "Did you mean 'sm90'",
        ),
        (["export", "--out", "x", "--database", "{here}", "--module", "o.txt"], "not a .py file"),
        (["import", "{here}/none.zip"], "no such file"),
        (["import"], "required: FILE"),
        (["import", "{here}/kernels/other.soft.json", "--into", "{file}"], "a file, not a folder"),
    ],
)
def test_wrong_use(here, tmp_path, capsys, words, says):
    file = tmp_path / "file"
    file.write_text("")
    assert call(*(word.format(here=here, file=file) for word in words)) == 2
    err = capsys.readouterr().err
    assert says in err
    assert len(err.splitlines()) <= 2


def test_what_is_no_archive(here, tmp_path, capsys):
    assert call("import", here / "kernels" / "other.soft.json", "--into", tmp_path / "x") == 1
    err = capsys.readouterr().err
    assert "not an archive, or a damaged one" in err
    assert len(err.splitlines()) == 1
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("command", ["export", "import"])
def test_help_has_an_example(command, capsys):
    assert call(command, "--help") == 0
    assert f"example: lfbo-aot {command}" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["export", "merge", "pack"])
def test_what_cannot_be_read_is_not_left_out(here, tmp_path, capsys, command):
    shard = here / "sm90" / "other.soft.jsonl"
    shard.symlink_to("moved.jsonl")
    out = tmp_path / "out"
    words = [here, "--into", out] if command == "merge" else ["--database", here, "--out", out]
    assert call(command, *words) == 1
    said, err = capsys.readouterr()
    assert said == ""
    assert f"{shard}: can't be read: No such file or directory" in err
    assert not out.exists()


def test_json_where_the_output_takes_ascii_only(tmp_path, write_database, make_entry, monkeypatch):
    held = {KERNEL: {ONE: make_entry()}}
    here, job = write_database(tmp_path / "größe", held), tmp_path / "jöb.zip"
    far = tmp_path / "fär"

    def written(*words):
        stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
        monkeypatch.setattr(sys, "stdout", stream)
        assert call(*words, "--json") == 0
        stream.flush()
        return json.loads(stream.buffer.getvalue().decode("ascii"))

    assert written("export", "--database", here, "--out", job)["archive"] == str(job)
    assert written("import", job, "--into", far)["into"] == str(far)
    assert written("merge", here, "--into", far)["sources"] == [str(here)]
    monkeypatch.setenv("LFBO_AOT_STATE", str(tmp_path / "zuständig"))
    settings.current.cache_clear()
    assert written("status")["state"] == str(tmp_path / "zuständig")
