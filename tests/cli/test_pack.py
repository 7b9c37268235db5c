from __future__ import annotations

import base64
import email
import hashlib
import json
import subprocess
import sys
import zipfile
from importlib import metadata

import pytest

from lfbo_aot.cli.main import main
from lfbo_aot.database.verify import verify
from lfbo_aot.database.wheel import Project
from lfbo_aot.registry.devices import DeviceId

pytestmark = pytest.mark.usefixtures("isolated")

KERNEL = "my_kern.norm"
ONE, TWO = "m=1..16|n=2048|dtype=bfloat16", "m=17..256|n=2048|dtype=bfloat16"
B200 = DeviceId("sm100", "NVIDIA B200")
PCIE = DeviceId("sm90", "NVIDIA H100 PCIe")


@pytest.fixture
def database(tmp_path, write_database, make_entry):
    held = {
        KERNEL: {
            ONE: make_entry(1),
            TWO: make_entry(2, measured="2026-12-24"),
            (PCIE, ONE): make_entry(4),
            (B200, ONE): make_entry(8, measured="2027-01-01"),
        },
        "my_kern.never_tuned": {},
    }
    return write_database(tmp_path / "tuned", held)


def pack(database, out, *words):
    return main(["pack", "--database", str(database), "--out", str(out), *map(str, words)])


def test_what_is_in_it(database, tmp_path, capsys):
    assert pack(database, tmp_path / "dist", "--arch", "sm90") == 0
    wheel = tmp_path / "dist" / "my_kern_tuned_sm90-2026.12.24-py3-none-any.whl"
    assert capsys.readouterr().out == (
        f"{wheel}: 3 entries for sm90/NVIDIA H100 PCIe, sm90/NVIDIA H200, "
        f"{wheel.stat().st_size} bytes\n"
    )
    info = "my_kern_tuned_sm90-2026.12.24.dist-info"
    with zipfile.ZipFile(wheel) as archive:
        assert archive.testzip() is None
        files = {name: archive.read(name).decode() for name in archive.namelist()}
    assert list(files) == [
        "my_kern_tuned_sm90/__init__.py",
        f"my_kern_tuned_sm90/kernels/{KERNEL}.json",
        "my_kern_tuned_sm90/manifest.json",
        f"my_kern_tuned_sm90/sm90/{KERNEL}.jsonl",
        f"{info}/METADATA",
        f"{info}/WHEEL",
        f"{info}/entry_points.txt",
        f"{info}/RECORD",
    ]
    page = email.message_from_string(files[f"{info}/METADATA"])
    assert (page["Name"], page["Version"]) == ("my-kern-tuned-sm90", "2026.12.24")
    assert page["Requires-Dist"] is None
    assert "Tag: py3-none-any\n" in files[f"{info}/WHEEL"]
    assert files[f"{info}/entry_points.txt"] == (
        "[lfbo_aot.databases]\nmy_kern_tuned_sm90 = my_kern_tuned_sm90\n"
    )
    shard = f"sm90/{KERNEL}.jsonl"
    assert files[f"my_kern_tuned_sm90/{shard}"] == (database / shard).read_text()
    manifest = json.loads(files["my_kern_tuned_sm90/manifest.json"])
    assert (manifest["schema"], manifest["entries"]) == (1, 3)
    assert manifest["kernels"] == {KERNEL: "sha256:50ce"}


def test_equal_bytes_for_equal_databases(database, tmp_path, monkeypatch):
    import shutil

    copy = shutil.copytree(database, tmp_path / "elsewhere" / "copy")
    assert pack(database, tmp_path / "a", "--arch", "sm90") == 0
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "315532800")
    assert pack(copy, tmp_path / "b", "--arch", "sm_90a") == 0
    (one,), (other,) = (list((tmp_path / name).iterdir()) for name in "ab")
    assert (one.name, one.read_bytes()) == (other.name, other.read_bytes())


def test_installers_take_it_whole_and_leave_nothing(database, tmp_path):
    assert pack(database, tmp_path / "dist", "--name", "tuned-kern", "--version", "1.0rc1") == 0
    (wheel,) = (tmp_path / "dist").iterdir()
    assert wheel.name == "tuned_kern-1.0rc1-py3-none-any.whl"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    site = tmp_path / "site"
    words = ["install", "-q", "--no-index", "--no-compile", "--target", site, wheel]
    done = subprocess.run([*pip, *words], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert verify(site / "tuned_kern") == ()
    (installed,) = metadata.distributions(path=[str(site)])
    recorded = [file for file in installed.files if file.hash is not None]
    for file in recorded:
        digest = hashlib.new(file.hash.mode, file.locate().read_bytes()).digest()
        assert base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == file.hash.value
        assert file.locate().stat().st_size == file.size
    assert {file.name for file in recorded} >= {"__init__.py", "METADATA", "manifest.json"}
    (point,) = installed.entry_points
    assert (point.group, point.value) == ("lfbo_aot.databases", "tuned_kern")
    assert {p.name for p in site.iterdir()} == {"tuned_kern", "tuned_kern-1.0rc1.dist-info"}
    names = {p.name for p in (site / "tuned_kern").iterdir()}
    assert names == {"__init__.py", "kernels", "manifest.json", "sm90", "sm100"}


def test_json(database, tmp_path, capsys):
    assert pack(database, tmp_path, "never_tuned", "norm", "--arch", "sm100", "--json") == 0
    data = json.loads(capsys.readouterr().out)
    assert data.pop("bytes") > 1000
    assert data == {
        "wheel": str(tmp_path / "my_kern_tuned_sm100-2027.1.1-py3-none-any.whl"),
        "name": "my-kern-tuned-sm100",
        "version": "2027.1.1",
        "archs": ["sm100"],
        "devices": ["sm100/NVIDIA B200"],
        "kernels": [KERNEL],
        "entries": 1,
    }


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["--arch", "sm80"], (1, "holds no entry for sm80; archs held: sm100, sm90")),
        (["never_tuned"], (1, "holds no entry for this")),
        (["nrom"], (2, "unknown kernel 'nrom'. Did you mean")),
        (["--arch", "sm90/NVIDIA H200"], (2, "give the arch")),
        (["--version", "1.0+local"], (2, "'1.0+local' is not a public version")),
        (["--version", "v1"], (2, "'v1' is not a public version")),
        (["--name", "a b"], (2, "'a b' can't be the name of a package")),
        (["--name", "../evil"], (2, "can't be the name of a package")),
        (["--name", "my-kern"], (2, "is that of the kernels' own package")),
        (["--name", "My.Kern"], (2, "is that of the kernels' own package")),
        (["--arhc", "sm90"], (2, "unknown argument")),
    ],
)
def test_refusals(database, tmp_path, capsys, words, answer):
    status, says = answer
    assert pack(database, tmp_path / "dist", *words) == status
    assert says in capsys.readouterr().err
    assert not (tmp_path / "dist").exists()


def test_several_packages_need_a_name(database, tmp_path, capsys, write_database, make_entry):
    write_database(database, {"other.soft": {ONE: make_entry(1)}})
    assert pack(database, tmp_path / "dist") == 2
    assert "give the distribution a --name" in capsys.readouterr().err
    assert pack(database, tmp_path / "dist", "--name", "all-of-them") == 0


def test_a_damaged_database_is_not_packed(database, tmp_path, capsys):
    shard = database / "sm90" / f"{KERNEL}.jsonl"
    shard.write_bytes(shard.read_bytes()[:-20])
    assert pack(database, tmp_path / "dist") == 1
    err = capsys.readouterr().err
    assert f"{shard}:3: " in err
    assert "nothing is packed from a damaged database" in err


def test_names_and_versions_as_indexes_take_them():
    assert Project("A.b__c", "1!2.0.post1.dev0", "", "").file_name == (
        "a_b_c-1!2.0.post1.dev0-py3-none-any.whl"
    )


def test_help_has_an_example(capsys):
    assert main(["pack", "--help"]) == 0
    assert "example: lfbo-aot pack" in capsys.readouterr().out
