from __future__ import annotations

import pytest

from lfbo_aot.registry import enumeration
from lfbo_aot.registry.enumeration import enumeration_digest
from lfbo_aot.registry.enumeration import told_otherwise

OPS = """
import lfbo_aot
from lfbo_aot import Range
from .sizes import N

@lfbo_aot.kernel(dims={"m": Range(1, N)}, shape=lambda x: {"m": x.size(0)}, inputs=lambda s, d: ())
def k(x):
    return x
"""


@pytest.fixture
def package(tmp_path):
    folder = tmp_path / "pkg"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "sizes.py").write_text("N = 64\n")
    (folder / "ops.py").write_text(OPS)
    (folder / "other.py").write_text("X = 1\n")
    return folder


def digest(folder, declared="declared", kernel_id="pkg.k"):
    return enumeration_digest(folder / "ops.py", "pkg.ops", kernel_id, declared)


def test_comments_formatting_and_places_do_not_count(package, tmp_path):
    before = digest(package)
    assert before is not None
    assert before.startswith("sha256:")
    (package / "ops.py").write_text(OPS.replace("    return x", "    # the same\n    return (x)"))
    (package / "other.py").write_text("X = 2\n")
    assert digest(package) == before
    moved = package.rename(tmp_path / "elsewhere")
    moved = moved.rename(tmp_path / "pkg")
    assert digest(moved) == before


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("sizes.py", "64", "128"),
        ("ops.py", "return x", "return x + 1"),
        ("ops.py", "lambda s, d: ()", "lambda s, d: (s,)"),
        ("ops.py", '"m"', '"n"'),
        ("__init__.py", "", "X = 1\n"),
    ],
)
def test_what_a_declaration_follows_from_counts(package, file, old, new):
    before = digest(package)
    path = package / file
    path.write_text(path.read_text().replace(old, new) if old else new)
    assert digest(package) not in (before, None)


def test_the_declaration_and_the_version_count(package, monkeypatch):
    before = digest(package)
    assert digest(package, "declared otherwise") != before
    monkeypatch.setattr(enumeration, "_version", lambda: "99.0")
    assert digest(package) != before
    monkeypatch.setattr(enumeration, "_version", lambda: None)
    assert digest(package) is None


def test_a_kernel_that_is_not_declared_there_has_none(package):
    assert digest(package, kernel_id="pkg.other") is None
    (package / "sizes.py").write_text("import os\nN = len(os.environ)\n")
    assert digest(package) is None
    (package / "sizes.py").write_text("N = (\n")
    assert digest(package) is None


def test_variables_that_change_helions_defaults_are_told_from_those_that_do_not():
    names = [
        "HELION_FAST_MATH",
        "HELION_SKIP_CACHE",
        "TRITON_F32_DEFAULT",
        "HELION_AUTOTUNE_X",
        "A",
    ]
    assert told_otherwise(names) == ["HELION_FAST_MATH", "TRITON_F32_DEFAULT"]
