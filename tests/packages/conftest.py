"""Real projects, built by real front ends in environments of their own, with nothing but local files.

The interpreter device stands for the GPU. An environment that can tune gets the packages of the one
that runs the tests, except lfbo-aot and what builds with: installing torch would take a minute.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest
from filelock import FileLock

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
HIDDEN = (
    "lfbo",
    "__editable__",
    "pip",
    "setuptools",
    "_distutils",
    "distutils",
    "wheel",
    "platformdirs",
)
OURS = ("lfbo_aot", "kernels", "tuned", "setup.py", "pyproject.toml", "README.md", "LICENSE")
DISTRIBUTIONS = ("setuptools", "wheel", "platformdirs", "packaging", "pyproject-hooks", "build")


def checkout(folder):
    """A copy of this project, as it is checked in."""
    folder.mkdir(parents=True)
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", ".*")
    for name in OURS:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=ignored)
        else:
            shutil.copy(source, folder / name)
    return folder


def environment(**given):
    """The variables of a build: none of ours, no index, no configuration of the person who tests."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("LFBO_AOT_", "PIP_", "PYTHON", "PYTEST", "COV_", "VIRTUAL_ENV"))
    }
    fixed = {
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_INDEX": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    return {**kept, **fixed, **given}


def make_environment(folder, *, tunes):
    """The Python of a fresh virtual environment; one that `tunes` sees torch and Helion."""
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    if tunes:
        site = next(folder.glob("lib/python*/site-packages"))
        linked = folder / "linked"
        linked.mkdir()
        for path in Path(sysconfig.get_path("purelib")).iterdir():
            if not path.name.lower().startswith(HIDDEN) and path.suffix != ".pth":
                (linked / path.name).symlink_to(path)
        (site / "linked.pth").write_text(f"{linked}\n")
    return python


class Build:
    """What a test builds with: an environment's Python, a folder of wheels and a state folder."""

    def __init__(self, python, wheels, folder):
        self.python = python
        self.wheels = wheels
        self.folder = folder
        self.variables = environment(
            PIP_FIND_LINKS=str(wheels),
            LFBO_AOT_STATE=str(folder / "state"),
            XDG_DATA_HOME=str(folder / "user-data"),
            XDG_CACHE_HOME=str(folder / "user-cache"),
        )

    def case(self, name, called="project"):
        """A copy of the tiny project `name`."""
        return Path(shutil.copytree(HERE / name, self.folder / called))

    def run(self, command, *, check=True, cwd=None, **variables):
        done = subprocess.run(
            [str(word) for word in command],
            env={**self.variables, **variables},
            cwd=cwd or self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert not check or done.returncode == 0, done.stdout
        return done

    def pip(self, *words, **options):
        command = [sys.executable, "-m", "pip", "--python", self.python, *words]
        return self.run(command, **options)

    def wheel(self, project, *words, isolated=False, **options):
        """What `pip wheel` of a project says, and the wheel's files by name; None if it failed."""
        out = self.folder / "out"
        shutil.rmtree(out, ignore_errors=True)
        plain = () if isolated else ("--no-build-isolation",)
        done = self.pip("wheel", project, "--no-deps", "-v", "-w", out, *plain, *words, **options)
        return done.stdout, wheel_files(out)

    def install(self, *words, **options):
        return self.pip("install", "--no-deps", "--force-reinstall", "-v", *words, **options).stdout

    def look_up(self, kernel, shape, device):
        """(status, layer, config) as a serving process gets them."""
        script = (
            "import json, sys, lfbo_aot; k, s, d = json.loads(sys.argv[1]);"
            "r = lfbo_aot.resolve(k, s, d);"
            "print(json.dumps([r.status, r.layer, dict(r.config)], default=list))"
        )
        command = [self.python, "-c", script, json.dumps([kernel, shape, device])]
        return json.loads(self.run(command).stdout.splitlines()[-1])

    def doctor(self):
        done = self.run([self.python, "-m", "lfbo_aot.cli.main", "doctor", "--json"], check=False)
        return json.loads(done.stdout)


def wheel_files(folder):
    """The files of the one wheel in a folder, by name; None where there is no wheel."""
    wheels = list(folder.glob("*.whl")) if folder.is_dir() else []
    if not wheels:
        return None
    with zipfile.ZipFile(wheels[0]) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _shared(tmp_path_factory, name, make):
    """A folder made once for all the test processes of a run."""
    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent
    folder = base / name
    with FileLock(f"{folder}.lock"):
        if not (folder / "complete").is_file():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            make(folder)
            (folder / "complete").touch()
    return folder


@pytest.fixture(scope="session")
def wheels(tmp_path_factory):
    """A folder with the wheels that a build needs: this project's, and from the index what it builds with."""

    def make(folder):
        pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "download", "-d", folder, *DISTRIBUTIONS], check=True)
        project = checkout(folder / "checkout")
        subprocess.run(
            [*pip, "wheel", project, "--no-deps", "--no-build-isolation", "-w", folder],
            env=environment(LFBO_AOT_TUNE="off"),
            check=True,
        )
        shutil.rmtree(project)

    return _shared(tmp_path_factory, "wheels", make)


def _environment(tmp_path_factory, wheels, name, *, tunes):
    def make(folder):
        python = make_environment(folder / "venv", tunes=tunes)
        pip = [sys.executable, "-m", "pip", "--python", python, "--quiet", "install"]
        needed = ["lfbo-aot", "setuptools", "platformdirs"]
        subprocess.run(
            [*pip, "--no-deps", *needed], env=environment(PIP_FIND_LINKS=str(wheels)), check=True
        )

    return _shared(tmp_path_factory, name, make) / "venv" / "bin" / "python"


@pytest.fixture(scope="session")
def tuning_python(tmp_path_factory, wheels):
    """An environment with lfbo-aot and all that tuning needs."""
    pytest.importorskip("helion")
    return _environment(tmp_path_factory, wheels, "tuning-environment", tunes=True)


@pytest.fixture(scope="session")
def bare_python(tmp_path_factory, wheels):
    """An environment with lfbo-aot and without torch."""
    return _environment(tmp_path_factory, wheels, "bare-environment", tunes=False)


@pytest.fixture
def tuner(tuning_python, wheels, tmp_path):
    """Builds in an environment that can tune, on the interpreter."""
    build = Build(tuning_python, wheels, tmp_path)
    build.variables["LFBO_AOT_DEVICE"] = "interpreter"
    return build


@pytest.fixture
def bare(bare_python, wheels, tmp_path):
    """Builds in an environment without torch."""
    return Build(bare_python, wheels, tmp_path)


@pytest.fixture
def fresh(wheels, tmp_path):
    """A function that makes a `Build` in a fresh environment, with nothing installed."""

    def make(*, tunes=False, name="fresh"):
        python = make_environment(tmp_path / name, tunes=tunes)
        build = Build(python, wheels, tmp_path)
        if tunes:
            build.variables["LFBO_AOT_DEVICE"] = "interpreter"
        return build

    return make


@pytest.fixture
def fill(make_entry):
    """A function that gives a project entries as tuning would make them, without tuning.

    They are for the interpreter, at its small shape, and hold for the kernel's source as it is.
    """
    from lfbo_aot.database.declaration import Declaration
    from lfbo_aot.database.merge import merge
    from lfbo_aot.registry.buckets import Bucket
    from lfbo_aot.registry.buckets import enumerate_buckets
    from lfbo_aot.registry.devices import INTERPRETER
    from lfbo_aot.registry.dims import Exact
    from lfbo_aot.registry.dims import Range
    from lfbo_aot.registry.source import source_digest

    dims = {"m": Range(1, 64), "n": Exact(64), "dtype": Exact("bfloat16")}

    def write(database, module, file, names=("twice", "square")):
        package = module.partition(".")[0]
        for name in names:
            source = source_digest(file, name, module=module)
            kernel_id = f"{package}.{name}"
            declaration = Declaration(
                kernel_id=kernel_id,
                dims=dims,
                buckets=tuple(bucket.key for bucket in enumerate_buckets(dims)),
                settings={"static_shapes": True, "fast_math": False},
                source=source,
            )
            key = INTERPRETER, Bucket.parse(SMALL)
            merge(database, {kernel_id: {key: make_entry(2, source=source)}}, [declaration])
        database.with_name(f".{database.name}.lock").unlink()

    return write


SMALL = "m=4|n=16|dtype=float32"
