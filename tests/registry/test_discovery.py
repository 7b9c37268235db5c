from __future__ import annotations

import importlib
import sys
from importlib.metadata import EntryPoint
from types import SimpleNamespace

import pytest

from lfbo_aot.errors import DeclarationError
from lfbo_aot.errors import DiscoveryError
from lfbo_aot.registry import discovery

DECLARES = """
from __future__ import annotations

import inspect

from lfbo_aot.registry import catalog
from lfbo_aot.registry.dims import Exact
from lfbo_aot.registry.spec import make_spec


class Kernel:
    def __init__(self, spec):
        self.lfbo_aot_spec = spec


def declare(name, line):
    def function(x): ...

    spec = make_spec(
        kernel=None,
        kernel_id="disco." + name,
        signature=inspect.signature(function),
        place=(__name__, __file__, line),
        source="sha256:00",
        settings={},
        dims={"m": Exact(1)},
        shape=lambda x: {"m": x},
    )
    catalog.add(spec)
    return Kernel(spec)
"""


@pytest.fixture
def package(tmp_path, monkeypatch, empty_catalog):
    """A package `disco` with kernels in two modules, and one that gathers one of them."""
    folder = tmp_path / "disco"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "one.py").write_text(DECLARES + "first = declare('first', 1)\n")
    (folder / "two.py").write_text(DECLARES + "second = declare('second', 2)\n")
    (folder / "all.py").write_text("from disco.two import second\nfrom disco import one\n")
    (folder / "broken.py").write_text("import no_such_module_anywhere\n")
    (folder / "wrong.py").write_text(
        "from lfbo_aot.errors import DeclarationError\nraise DeclarationError('bad dim')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield folder
    for name in [name for name in sys.modules if name.partition(".")[0] == "disco"]:
        del sys.modules[name]


def ids(modules):
    return [spec.kernel_id for spec in discovery.load_kernels(modules)]


def test_kernels_of_a_module_are_those_in_it_and_those_that_it_holds(package):
    assert ids(["disco.one"]) == ["disco.first"]
    assert ids(["disco.all"]) == ["disco.second"]
    assert ids(["disco.two", "disco.one", "disco.two"]) == ["disco.first", "disco.second"]


def test_a_package_holds_what_its_loaded_modules_declare(package):
    assert ids(["disco"]) == []
    assert ids(["disco.one"]) == ["disco.first"]
    assert ids(["disco"]) == ["disco.first"]


def test_a_module_that_fails_to_import_is_named_with_the_cause(package):
    with pytest.raises(DiscoveryError, match=r"disco\.broken.*no_such_module_anywhere") as caught:
        ids(["disco.broken"])
    assert isinstance(caught.value.__cause__, ModuleNotFoundError)
    with pytest.raises(DiscoveryError, match=r"disco\.absent"):
        ids(["disco.absent"])


def test_a_wrong_declaration_comes_through(package):
    with pytest.raises(DeclarationError, match="bad dim"):
        ids(["disco.wrong"])


def test_a_file_is_loaded_by_path(package, monkeypatch):
    path = package.parent / "loose_kernels.py"
    path.write_text(DECLARES + "third = declare('third', 3)\n")
    assert ids([str(path)]) == ["disco.third"]
    assert ids([str(path)]) == ["disco.third"]
    del sys.modules["loose_kernels"]
    with pytest.raises(DiscoveryError, match="no such file"):
        ids([str(package / "nothing.py")])
    monkeypatch.setitem(sys.modules, "loose_kernels", SimpleNamespace(__file__="/other.py"))
    with pytest.raises(DiscoveryError, match="rename the file"):
        ids([str(path)])


@pytest.mark.parametrize("code", ["0", "3", "'bye'", ""])
def test_a_module_that_ends_the_program_is_named(package, code):
    (package / "ends.py").write_text(f"import sys\nsys.exit({code})\n")
    with pytest.raises(DiscoveryError, match=r"disco\.ends.*SystemExit"):
        ids(["disco.ends"])
    loose = package.parent / "ends.py"
    loose.write_text(f"import sys\nsys.exit({code})\n")
    with pytest.raises(DiscoveryError, match=r"ends\.py.*SystemExit"):
        ids([str(loose)])
    assert "ends" not in sys.modules


def test_a_file_of_a_package_is_loaded_under_its_dotted_name(package, monkeypatch):
    """Else its kernels would have other ids than where the package is imported."""
    inner = package / "inner"
    inner.mkdir()
    (inner / "__init__.py").write_text(DECLARES + "fourth = declare('fourth', 4)\n")
    (inner / "ops.py").write_text(
        "from ..one import declare\nfifth = declare('fifth', 5)\nMODULE = __name__\n"
    )
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p != str(package.parent)])
    importlib.invalidate_caches()
    monkeypatch.chdir(package)
    assert "disco.fifth" in ids(["inner/ops.py"])
    assert sys.modules["disco.inner.ops"].MODULE == "disco.inner.ops"
    assert "ops" not in sys.modules
    assert sys.path[0] == str(package.parent)
    assert "disco.fourth" in ids([str(inner / "__init__.py")])
    assert sys.path.count(str(package.parent)) == 1


def test_a_file_whose_package_is_another_one_here(package, tmp_path, monkeypatch):
    other = tmp_path / "elsewhere" / "disco"
    other.mkdir(parents=True)
    (other / "__init__.py").touch()
    (other / "one.py").touch()
    ids(["disco.one"])
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(DiscoveryError, match=r"its name is disco\.one, and that is .*one\.py here"):
        ids([str(other / "one.py")])


def test_announced_modules_are_loaded_where_none_are_named(package, monkeypatch):
    points = [EntryPoint("x", "disco.two", discovery.GROUP), EntryPoint("y", "disco.one", "g")]
    asked = []

    def entry_points(group):
        asked.append(group)
        return points

    monkeypatch.setattr("importlib.metadata.entry_points", entry_points)
    assert ids(None) == ["disco.first", "disco.second"]
    assert asked == ["lfbo_aot.kernels"]


def test_this_package_announces_its_kernels():
    assert "lfbo_aot.kernels" in discovery.announced()
