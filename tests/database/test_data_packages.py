"""Installed data packages, in processes of their own: with real wheels, real pip, and no torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import threading
from importlib import metadata
from pathlib import Path

import pytest

import lfbo_aot
from lfbo_aot.cli.main import main
from lfbo_aot.database import installed
from lfbo_aot.database.database import Database
from lfbo_aot.database.store import Layer
from lfbo_aot.database.store import Layers
from lfbo_aot.database.store import Store

ONE, TWO = "m=1..16|n=2048|dtype=bfloat16", "m=17..256|n=2048|dtype=bfloat16"
KERNEL = "mykern.norm"
SHAPE = "{'m': 8, 'n': 2048, 'dtype': 'bfloat16'}"
ROOT = Path(lfbo_aot.__file__).parent.parent

# A site without site-packages but our own: nothing that happens to be installed here has a say.
PRELUDE = """
import json, logging, sys
class Records(logging.Handler):
    def emit(self, record): said.append(record.getMessage())
said = []
logging.getLogger().addHandler(Records())
import lfbo_aot
from lfbo_aot.database import installed
def ask(kernel="mykern.norm", shape={shape}, **more):
    found = lfbo_aot.resolve(kernel, shape, "sm90/NVIDIA H200", **more)
    return [found.config.get("num_warps"), found.layer, found.status]
"""


def run(site, code, **environ):
    """What `code` prints last as JSON, in a process that sees the packages in `site`."""
    places = [*([site] if isinstance(site, (str, Path)) else site), libraries()]
    env = {k: v for k, v in os.environ.items() if not k.startswith(("LFBO_AOT_", "PYTHON"))}
    env |= {"PYTHONPATH": os.pathsep.join(map(str, places)), "PYTHONDONTWRITEBYTECODE": "1"}
    env |= {"XDG_DATA_HOME": str(libraries() / "none"), **environ}
    text = PRELUDE.format(shape=SHAPE) + textwrap.dedent(code)
    done = subprocess.run(
        [sys.executable, "-S", "-c", text], capture_output=True, text=True, env=env, cwd="/"
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


_libraries = []


def libraries():
    return _libraries[0]


@pytest.fixture(scope="module", autouse=True)
def light_environment(tmp_path_factory):
    """lfbo_aot and platformdirs, and no more: no torch, no editable finder."""
    folder = tmp_path_factory.mktemp("libraries")
    (folder / "lfbo_aot").mkdir()
    for name in [p.name for p in (ROOT / "lfbo_aot").iterdir()]:
        (folder / "lfbo_aot" / name).symlink_to(ROOT / "lfbo_aot" / name)
    (folder / "lfbo_aot" / "tuned").mkdir()
    (folder / "lfbo_aot" / "tuned" / "__init__.py").write_text("")
    import platformdirs

    (folder / "platformdirs").symlink_to(Path(platformdirs.__file__).parent)
    _libraries[:] = [folder]


@pytest.fixture(scope="module")
def wheels(tmp_path_factory, write_database, make_entry):
    """Wheels by name: `pack` of databases that say which one they are by `num_warps`."""
    root = tmp_path_factory.mktemp("wheels")
    found = {}
    for warps, name in enumerate(("b-data", "a-data"), 1):
        path = write_database(root / f"db{warps}", {KERNEL: {ONE: make_entry(warps)}})
        words = ["--database", path, "--out", root / "dist", "--name", name, "--version", "1.0"]
        assert main(["pack", *map(str, words)]) == 0
        found[name] = root / "dist" / f"{name.replace('-', '_')}-1.0-py3-none-any.whl"
    return found


def pip_install(target, *what):
    words = ["install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    words += ["--disable-pip-version-check", "--target", target, *what]
    subprocess.run([sys.executable, "-m", "pip", *map(str, words)], check=True)
    return target


def announce(site, name, value, points=None):
    """The metadata of a distribution that announces a database, as if it had been installed."""
    info = site / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = points or {name: value}
    text = "".join(f"{key} = {package}\n" for key, package in lines.items())
    (info / "entry_points.txt").write_text(f"[lfbo_aot.databases]\n{text}")


def package(site, name, write_database, entry, init="raise RuntimeError('imported')\n"):
    """A package whose modules raise when imported, with a database in it; `name` is dotted."""
    folder = site
    for part in name.split("."):
        folder = folder / part
        folder.mkdir(exist_ok=True)
        (folder / "__init__.py").write_text(init)
    write_database(folder, {KERNEL: {ONE: entry}})
    (folder.parent / f".{folder.name}.lock").unlink()
    return folder


def test_a_packed_wheel_serves_where_it_is_installed(wheels, tmp_path):
    site = pip_install(tmp_path / "site", wheels["a-data"])
    code = """
    answer = ask()
    heavy = {"torch", "helion", "numpy", "triton"} & set(sys.modules)
    print(json.dumps([answer, sorted(heavy), "a_data" in sys.modules, said]))
    """
    assert run(site, code) == [[2, "package a-data", "exact"], [], False, []]


def test_two_packages_are_asked_in_the_order_of_their_names(wheels, tmp_path):
    site = pip_install(tmp_path / "site", wheels["b-data"], wheels["a-data"])
    code = """
    from lfbo_aot.runtime import state
    names = [layer.name for layer in state.store().layers]
    print(json.dumps([ask(), names]))
    """
    names = ["user", "package a-data", "package b-data", "built-in"]
    assert run(site, code) == [[2, "package a-data", "exact"], names]


def test_a_virtual_environment_finds_it(wheels, tmp_path):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    words = ["--python", python, "install", "-q", "--no-deps", "--no-index", wheels["a-data"]]
    subprocess.run([sys.executable, "-m", "pip", *map(str, words)], check=True)
    (site,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    (site / "light.pth").write_text(str(libraries()))
    code = PRELUDE.format(shape=SHAPE) + "print(ask())"
    env = {k: v for k, v in os.environ.items() if not k.startswith(("LFBO_AOT_", "PYTHON"))}
    env["XDG_DATA_HOME"] = str(tmp_path)
    done = subprocess.run(
        [python, "-c", code], capture_output=True, text=True, env=env, cwd="/", check=True
    )
    assert done.stdout == "[2, 'package a-data', 'exact']\n"


def test_nothing_of_a_package_is_imported(tmp_path, write_database, make_entry):
    site = tmp_path / "site"
    site.mkdir()
    package(site, "mykern.tuned", write_database, make_entry(8))
    announce(site, "mykern", "mykern.tuned")
    code = "print(json.dumps([ask(), [n for n in sys.modules if 'mykern' in n], said]))"
    assert run(site, code) == [[8, "package mykern", "exact"], [], []]


def test_the_search_is_lazy_and_happens_once(wheels, tmp_path, write_database, make_entry):
    site = pip_install(tmp_path / "site", wheels["a-data"])
    mine = write_database(tmp_path / "mine", {KERNEL: {TWO: make_entry(4)}})
    code = """
    calls = []
    real = installed._search
    installed._search = lambda: calls.append(1) or real()
    before = "importlib.metadata" in sys.modules
    seen = [len(calls)]
    lfbo_aot.use_database(sys.argv[1] if len(sys.argv) > 1 else MINE)
    lfbo_aot.use_policy("any")
    first = ask(shape=(200, 2048, "bfloat16"))
    seen.append(len(calls))
    second = ask()
    seen.append(len(calls))
    from lfbo_aot.runtime import state
    state.refresh()
    third = ask(shape=(9, 2048, "bfloat16"))
    seen.append(len(calls))
    print(json.dumps([before, first, second[:2], third[:2], seen]))
    """
    found = run(site, f"MINE = {str(mine)!r}\n" + textwrap.dedent(code))
    package_layer = [2, "package a-data"]
    assert found == [
        False,
        [4, str(mine), "exact"],
        package_layer,
        package_layer,
        [0, 1, 1, 1],
    ]


def test_the_users_own_entries_come_first(wheels, tmp_path, write_database, make_entry):
    site = pip_install(tmp_path / "site", wheels["a-data"])
    write_database(tmp_path / "data" / "lfbo-aot" / "tuned", {KERNEL: {ONE: make_entry(16)}})
    code = "print(json.dumps(ask()))"
    assert run(site, code, XDG_DATA_HOME=str(tmp_path / "data")) == [16, "user", "exact"]


def newer_manifest(site, write_database, entry):
    folder = package(site, "bad", write_database, entry)
    (folder / "manifest.json").write_text('{"schema": 7}')
    return "schema 7 is newer"


def damaged_manifest(site, write_database, entry):
    folder = package(site, "bad", write_database, entry)
    (folder / "manifest.json").write_text("{")
    return "manifest.json:1: "


def module_only(site, write_database, entry):
    (site / "bad.py").write_text("raise RuntimeError")
    return "there is no folder of the package 'bad'"


BROKEN = {
    "a newer manifest": newer_manifest,
    "a damaged manifest": damaged_manifest,
    "a module": module_only,
    "nothing": lambda *_: "there is no folder of the package 'bad'",
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_does_not_fit_is_passed_over_with_one_warning(
    wheels, tmp_path, write_database, make_entry, case
):
    site = pip_install(tmp_path / "site", wheels["b-data"])
    announce(site, "a-bad", "bad")
    says = BROKEN[case](site, write_database, make_entry(8))
    code = """
    answers = [ask(), ask(shape=(9, 2048, "bfloat16"))]
    print(json.dumps([answers, said]))
    """
    answers, said = run(site, code)
    assert answers == [[1, "package b-data", "exact"]] * 2
    assert len(said) == 1
    assert said[0].startswith("data package a-bad is passed over: ")
    assert says in said[0]


@pytest.mark.parametrize("value", ["../../etc", "os:system"])
def test_values_that_name_no_package(wheels, tmp_path, value):
    site = pip_install(tmp_path / "site", wheels["b-data"])
    announce(site, "a-bad", value)
    answer, said = run(site, "print(json.dumps([ask(), said]))")
    assert answer == [1, "package b-data", "exact"]
    reason = f"{value!r} isn't the dotted name of a package"
    assert said == [f"data package a-bad is passed over: {reason}"]


def test_the_working_folder_is_never_searched(wheels, tmp_path):
    site = pip_install(tmp_path / "site", wheels["b-data"])
    code = """
    import os
    os.chdir(SITE)
    sys.path[:] = ["", *(p for p in sys.path if p != SITE)]
    print(json.dumps(lfbo_aot.database.installed.data_packages() == ()))
    """
    assert run([], f"SITE = {str(site)!r}\n" + textwrap.dedent(code))


def test_unreadable_metadata_hides_nothing_else(wheels, tmp_path):
    site = pip_install(tmp_path / "site", wheels["b-data"])
    announce(site, "a-bad", "bad")
    (site / "a_bad-1.0.dist-info" / "entry_points.txt").write_bytes(b"\xff lfbo_aot.databases")
    announce(site, "a-worse", "bad")
    (site / "a_worse-1.0.dist-info" / "entry_points.txt").write_text("lfbo_aot.databases\n= \n[")
    assert run(site, "print(json.dumps(ask()))") == [1, "package b-data", "exact"]


def test_damaged_and_newer_lines_give_the_next_layer_its_turn(
    wheels, tmp_path, write_database, make_entry
):
    site = pip_install(tmp_path / "site", wheels["b-data"])
    folder = package(site, "bad", write_database, make_entry(8))
    announce(site, "a-bad", "bad")
    shard = folder / "sm90" / f"{KERNEL}.jsonl"
    shard.write_bytes(shard.read_bytes().replace(b"25.6", b"25.7"))
    code = "print(json.dumps([ask(), ask(shape=(9, 2048, 'bfloat16')), said]))"
    first, second, said = run(site, code)
    assert first == second == [1, "package b-data", "exact"]
    assert len(said) == 1
    assert f"{shard}:1: checksum" in said[0]


def test_another_source_warns_once_and_is_passed_over(wheels, tmp_path, write_database, make_entry):
    site = pip_install(tmp_path / "site", wheels["b-data"])
    package(site, "old", write_database, make_entry(8, source="sha256:01d"))
    announce(site, "a-old", "old")
    code = """
    known = lfbo_aot.Environment(source="sha256:50ce")
    answers = [ask(environment=known), ask(environment=known)]
    print(json.dumps([answers, said]))
    """
    answers, said = run(site, code)
    assert answers == [[1, "package b-data", "exact"]] * 2
    assert said == [
        f"{KERNEL}: package a-old is passed over: source: entry=sha256:01d here=sha256:50ce"
    ]


PYPROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "mykern"
version = "1.0"
[project.entry-points."lfbo_aot.databases"]
mykern = "mykern.tuned"
[tool.setuptools]
packages = ["mykern", "mykern.tuned"]
package-dir = {"mykern.tuned" = "tuned"}
package-data = {"mykern.tuned" = ["**/*.json", "**/*.jsonl"]}
"""


@pytest.mark.parametrize("mode", ["lenient", "strict", "wheel"])
def test_a_mapped_package_in_each_way_of_installing(tmp_path, write_database, make_entry, mode):
    project = tmp_path / "project"
    (project / "mykern").mkdir(parents=True)
    (project / "pyproject.toml").write_text(PYPROJECT)
    (project / "mykern" / "__init__.py").write_text("raise RuntimeError('imported')\n")
    tuned = write_database(project / "tuned", {KERNEL: {ONE: make_entry(8)}})
    (tuned / "__init__.py").write_text("raise RuntimeError('imported')\n")
    words = {
        "lenient": ["--editable", project],
        "strict": ["--config-settings", "editable_mode=strict", "--editable", project],
        "wheel": [project],
    }
    site = pip_install(tmp_path / "site", *words[mode])
    # `-S` reads no .pth files; an editable install needs them.
    code = """
    import site
    site.addsitedir(SITE)
    print(json.dumps([ask(), [n for n in sys.modules if n.startswith("mykern")], said]))
    """
    code = f"SITE = {str(site)!r}\n" + textwrap.dedent(code)
    assert run([], code) == [[8, "package mykern", "exact"], [], []]


def test_namespaces_and_several_entry_points(tmp_path, write_database, make_entry):
    site, other = tmp_path / "site", tmp_path / "other"
    for folder in (site, other):
        (folder / "space").mkdir(parents=True)
    write_database(other / "space" / "one", {KERNEL: {ONE: make_entry(1)}})
    write_database(site / "space" / "two", {KERNEL: {TWO: make_entry(2)}})
    announce(site, "Many.Data", "", points={"z": "space.two", "y": "space.one", "x": "space.no"})
    code = """
    answers = [ask(), ask(shape=(200, 2048, "bfloat16"))]
    print(json.dumps([answers, said]))
    """
    answers, said = run([site, other], code)
    assert answers == [[1, "package many-data:y", "exact"], [2, "package many-data:z", "exact"]]
    assert said == [
        "data package many-data:x is passed over: there is no folder of the package 'space.no'"
    ]


def test_list_doctor_and_verify_show_them(wheels, tmp_path):
    site = pip_install(tmp_path / "site", wheels["a-data"])
    announce(site, "z-bad", "bad")
    code = """
    import contextlib, io
    from lfbo_aot.cli.main import main
    def call(*words):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            main([*words, "--json"])
        return json.loads(out.getvalue())
    listed = [[row["kernel"], row["layer"]] for row in call("list")]
    doctor = call("doctor")
    checked = call("verify")
    print(json.dumps([
        listed, [layer["layer"] for layer in doctor["layers"]], doctor["passed_over"],
        [[p["layer"], p["lines"], p["problems"]] for p in checked["packages"]],
    ]))
    """
    assert run(site, code) == [
        [[KERNEL, "package a-data"]],
        ["user", "package a-data", "built-in"],
        [{"package": "z-bad", "reason": "there is no folder of the package 'bad'"}],
        [["package a-data", 1, []]],
    ]


def test_layers_are_looked_for_when_the_ones_before_were_asked(tmp_path):
    calls = []

    def later():
        calls.append(1)
        return (Layer("later", Database(tmp_path)),)

    first, last = Layer("first", Database(tmp_path)), Layer("last", Database(tmp_path))
    store = Store(Layers([first, later, last])).over(tmp_path / "over")
    walk = iter(store.layers)
    assert [next(walk).name for _ in range(2)] == [str(tmp_path / "over"), "first"]
    assert calls == []
    threads = [threading.Thread(target=lambda: list(store.layers)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [layer.name for layer in walk] == ["later", "last"]
    assert [layer.name for layer in store.layers[1:3]] == ["first", "later"]
    assert (len(store.layers), calls) == (4, [1])


def test_a_failing_search_is_no_failure_of_the_look_up(monkeypatch, caplog):
    def broken(**_):
        msg = "no metadata"
        raise OSError(msg)

    monkeypatch.setattr(metadata, "distributions", broken)
    monkeypatch.setattr(installed, "_found", None)
    assert installed.data_packages() == ()
    assert "no metadata" in caplog.text
    installed.forget()
