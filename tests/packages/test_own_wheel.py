"""This project built by itself: what ships, the same bytes each time, and all of it is served."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tarfile

import pytest

from lfbo_aot.database.database import Database

from .conftest import ROOT
from .conftest import checkout

EPOCH = "1700000000"
LIMIT = 1_000_000  # bytes an arch: what a wheel carries for every machine that isn't of that arch

RESOLVE_ALL = """
import json, lfbo_aot
from lfbo_aot.database.database import Database
from lfbo_aot.database.store import built_in_database
assert lfbo_aot.__file__.count("site-packages"), lfbo_aot.__file__
database = Database(built_in_database())
found = []
for arch in database.archs():
    for kernel_id in database.kernels():
        shard = database.shard(kernel_id, arch)
        for name in shard.device_names if shard is not None else ():
            for bucket, key in shard.boxes(name):
                for shape in (bucket.point, *bucket.probes):
                    answer = lfbo_aot.resolve(kernel_id, shape, f"{arch}/{name}")
                    assert answer.status == "exact", (key, answer.status, answer.reasons)
                    assert answer.layer == "built-in"
                    assert dict(answer.config) == dict(shard.entry(key).config)
                found.append([arch, kernel_id, key])
print(json.dumps(found))
"""


def entries(folder):
    """Every line of every shard, as its text says: no code of ours decides what there is."""
    found = [
        [shard.parent.name, shard.stem, json.loads(line)[0]]
        for shard in sorted(folder.glob("*/*.jsonl"))
        for line in shard.read_text().splitlines()
    ]
    assert found
    return found


@pytest.fixture
def project(tmp_path):
    return checkout(tmp_path / "project")


def test_each_entry_of_the_installed_wheel_resolves_without_torch(fresh, project):
    build = fresh()
    build.pip("install", project, "--only-binary=platformdirs")
    script = f"import sys; sys.modules['torch'] = sys.modules['helion'] = None\n{RESOLVE_ALL}"
    said = build.run([build.python, "-c", script]).stdout
    assert sorted(json.loads(said.splitlines()[-1])) == sorted(entries(ROOT / "tuned"))


def test_equal_bytes_for_one_commit_and_any_machine_has_one_wheel(bare, project):
    bare.variables["SOURCE_DATE_EPOCH"] = EPOCH
    made = []
    for name in ("first", "second"):
        copy = shutil.copytree(project, bare.folder / name)
        bare.wheel(copy)
        (wheel,) = (bare.folder / "out").glob("*.whl")
        assert wheel.name.endswith("-py3-none-any.whl")
        made.append(wheel.read_bytes())
    assert made[0] == made[1]
    bare.wheel(bare.folder / "first")
    (wheel,) = (bare.folder / "out").glob("*.whl")
    assert wheel.read_bytes() == made[0], "a build over what an earlier one left"


def test_equal_sdists_for_one_commit_and_equal_wheels_of_them(bare, project):
    bare.variables["SOURCE_DATE_EPOCH"] = EPOCH
    sdists, wheels = [], []
    for number, name in enumerate(("first", "second")):
        copy = shutil.copytree(project, bare.folder / name)
        for path in copy.rglob("*.py"):
            path.chmod(0o600 + 0o44 * number)
            os.utime(path, (1.6e9 + number, 1.6e9 + number))
        made = sdist(bare, copy)
        sdists.append(made.read_bytes())
        bare.run([sys.executable, "-m", "tarfile", "-e", made, bare.folder / f"x-{name}"])
        bare.wheel(next((bare.folder / f"x-{name}").iterdir()))
        (wheel,) = (bare.folder / "out").glob("*.whl")
        wheels.append(wheel.read_bytes())
    assert sdists[0] == sdists[1]
    assert wheels[0] == wheels[1]


def sdist(build, project):
    """The sdist that this project's backend makes of a checkout."""
    call = "import setuptools.build_meta as b; print(b.build_sdist('made'))"
    said = build.run([build.python, "-c", call], cwd=project).stdout
    return project / "made" / said.splitlines()[-1]


def test_the_wheel_holds_the_database_as_checked_in_and_nothing_else_of_the_checkout(bare, project):
    _, files = bare.wheel(project)
    expected = {p.relative_to(ROOT).as_posix() for p in (ROOT / "tuned").rglob("*.json*")}
    held = {
        name.removeprefix("lfbo_aot/"): text
        for name, text in files.items()
        if name.startswith("lfbo_aot/tuned/") and not name.endswith(("manifest.json", ".py"))
    }
    assert held == {name: (ROOT / name).read_bytes() for name in expected}
    tops = {name.split("/")[0] for name in files}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"lfbo_aot"}
    assert "lfbo_aot/kernels/softmax.py" in files
    assert not any("__pycache__" in name for name in files)


def test_the_shipped_database_is_small():
    for arch in Database(ROOT / "tuned").archs():
        size = sum(p.stat().st_size for p in (ROOT / "tuned" / arch).iterdir())
        assert size < LIMIT, f"{arch}: {size} bytes"
    assert sum(p.stat().st_size for p in (ROOT / "tuned" / "kernels").iterdir()) < LIMIT


def test_a_stale_egg_info_in_the_root_is_no_installed_distribution(bare, project):
    stale = project / "lfbo_aot.egg-info"
    stale.mkdir()
    (stale / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: lfbo-aot\nVersion: 0.0.1\n")
    (stale / "entry_points.txt").write_text(
        "[setuptools.finalize_distribution_options]\nx = no_such_module:hook\n"
        "[distutils.commands]\nbuild_tuned = no_such_module:Command\n"
    )
    _, files = bare.wheel(project, "--check-build-dependencies")
    assert "lfbo_aot/tuned/manifest.json" in files


def test_nothing_of_the_checkout_shadows_what_the_build_imports(bare, project):
    # The root is on sys.path only while setup.py imports the step.
    (project / "wheel.py").write_text("raise SystemExit('imported from the root')\n")
    (project / "packaging.py").write_text("raise SystemExit('imported from the root')\n")
    _, files = bare.wheel(project)
    assert files is not None


@pytest.mark.parametrize("mode", ["lenient", "strict"])
def test_an_editable_install_serves_the_checkout(fresh, project, mode):
    build = fresh()
    build.pip("install", "-e", project, "-C", f"editable_mode={mode}")
    script = RESOLVE_ALL.replace('"site-packages"', repr(str(project)))
    said = build.run([build.python, "-c", script]).stdout
    assert sorted(json.loads(said.splitlines()[-1])) == sorted(entries(ROOT / "tuned"))
    where = "import importlib.resources as r; print(r.files('lfbo_aot.tuned') / 'sm90')"
    assert str(project) in build.run([build.python, "-c", where]).stdout


@pytest.mark.slow
def test_python_m_build_makes_an_sdist_that_holds_all_and_its_wheel(fresh, project):
    build = fresh()
    out = build.folder / "dist"
    build.run([sys.executable, "-m", "build", "--outdir", out, project])
    with tarfile.open(next(out.glob("*.tar.gz"))) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    tuned = {p.relative_to(ROOT).as_posix() for p in (ROOT / "tuned").rglob("*.json*")}
    assert tuned <= names
    assert {"setup.py", "kernels/softmax.py", "lfbo_aot/buildstep/child.py"} <= names
    build.install(next(out.glob("*.whl")), "platformdirs")
    said = build.run([build.python, "-c", RESOLVE_ALL]).stdout
    assert sorted(json.loads(said.splitlines()[-1])) == sorted(entries(ROOT / "tuned"))


@pytest.mark.slow
def test_the_interpreter_tunes_this_projects_own_kernels_in_its_own_build(tuner, project):
    table = project / "pyproject.toml"
    table.write_text(
        table.read_text().replace('package = "lfbo_aot"\n', 'package = "lfbo_aot"\ntrials = 1\n')
    )
    said, files = tuner.wheel(project, LFBO_AOT_ARCHS="cpu-interpreter", LFBO_AOT_TUNE="require")
    assert "tuned on cpu-interpreter/Triton interpreter" in said
    manifest = json.loads(files["lfbo_aot/tuned/manifest.json"])
    kernels = manifest["keys"]["cpu-interpreter"]
    assert set(kernels) == {f"lfbo_aot.{p.stem}" for p in (ROOT / "kernels").glob("*.py")} - {
        "lfbo_aot.__init__",
        "lfbo_aot.shapes",
    }
    assert "lfbo_aot/tuned/sm90/lfbo_aot.softmax.jsonl" in files, "the other archs ship, too"
