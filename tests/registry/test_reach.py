from __future__ import annotations

from pathlib import Path

import pytest

from lfbo_aot.registry.reach import reach
from lfbo_aot.registry.scope import SourceError

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def write(tmp_path):
    def files(**texts):
        for name, text in texts.items():
            path = tmp_path.joinpath(*name.split("__")).with_suffix(".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return files


def test_modules_are_followed_and_the_packages_that_they_are_in(write):
    root = write(
        pkg__ops="from .sizes import N\nimport pkg.deep.more\nimport torch\n",
        pkg__sizes="N = 1\n",
        pkg__deep__more="def f():\n    from pkg import late\n",
        pkg__late="",
        pkg__never="",
    )
    for folder in ("pkg", "pkg/deep"):
        (root / folder / "__init__.py").write_text("")
    found = reach(root / "pkg" / "ops.py", "pkg.ops")
    assert list(found) == ["pkg", "pkg.deep", "pkg.deep.more", "pkg.late", "pkg.ops", "pkg.sizes"]
    assert found["pkg.deep"].package == ("pkg", "deep")
    assert found["pkg.deep.more"].package == ("pkg", "deep")


def test_what_only_type_checkers_import_is_not_followed(write):
    text = (
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from . import a\nelse:\n    from . import b\n"
    )
    root = write(pkg__ops=text, pkg__a="", pkg__b="")
    (root / "pkg" / "__init__.py").write_text("")
    assert list(reach(root / "pkg" / "ops.py", "pkg.ops")) == ["pkg", "pkg.b", "pkg.ops"]


@pytest.mark.parametrize(
    ("head", "skipped"),
    [
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:", True),
        ("from typing import TYPE_CHECKING as T\nif T:", True),
        ("import typing\nif typing.TYPE_CHECKING:", True),
        ("import typing as t\nif t.TYPE_CHECKING:", True),
        ("TYPE_CHECKING = True\nif TYPE_CHECKING:", False),
        ("from typing import TYPE_CHECKING\nTYPE_CHECKING = 1\nif TYPE_CHECKING:", False),
        ("from typing import TYPE_CHECKING\nTYPE_CHECKING |= 1\nif TYPE_CHECKING:", False),
        ("from typing import TYPE_CHECKING\nfrom .b import *\nif TYPE_CHECKING:", False),
        (
            "from typing import TYPE_CHECKING\nfrom .b import TYPE_CHECKING\nif TYPE_CHECKING:",
            False,
        ),
        ("from .typing import TYPE_CHECKING\nif TYPE_CHECKING:", False),
        ("from .b import TYPE_CHECKING\nif TYPE_CHECKING:", False),
        ("from . import b as typing\nif typing.TYPE_CHECKING:", False),
        ("from typing import Any as TYPE_CHECKING\nif TYPE_CHECKING:", False),
        ("class typing:\n    TYPE_CHECKING = 1\nif typing.TYPE_CHECKING:", False),
        ("if not_known.TYPE_CHECKING:", False),
        ("from typing import TYPE_CHECKING\nif not TYPE_CHECKING:", False),
    ],
)
def test_the_flag_for_type_checkers_is_typings_and_nothing_else(write, head, skipped):
    root = write(pkg__ops=f"{head}\n    from . import a\n", pkg__a="", pkg__b="", pkg__typing="")
    (root / "pkg" / "__init__.py").write_text("")
    assert ("pkg.a" not in reach(root / "pkg" / "ops.py", "pkg.ops")) == skipped


@pytest.mark.parametrize(
    "name", ["sizes.so", "sizes.cpython-311-x86_64-linux-gnu.so", "__init__.abi3.so", "sizes.pyd"]
)
def test_a_compiled_module_beside_its_source_is_what_python_imports(write, name):
    root = write(pkg__ops="from .sizes import N\n", pkg__sizes="N = 1\n", pkg__unrelated="")
    (root / "pkg" / "__init__.py").write_text("")
    (root / "pkg" / "unrelated.so").write_bytes(b"")
    assert "pkg.sizes" in reach(root / "pkg" / "ops.py", "pkg.ops")
    (root / "pkg" / name).write_bytes(b"")
    with pytest.raises(SourceError, match="compiled"):
        reach(root / "pkg" / "ops.py", "pkg.ops")


def test_modules_that_import_each_other_end(write):
    root = write(pkg__a="from . import b\n", pkg__b="from . import a\n")
    (root / "pkg" / "__init__.py").write_text("")
    assert list(reach(root / "pkg" / "a.py", "pkg.a")) == ["pkg", "pkg.a", "pkg.b"]


def test_a_folder_without_an_init_is_passed_through(write):
    root = write(pkg__deep__a="from . import b\n", pkg__deep__b="")
    (root / "pkg" / "__init__.py").write_text("")
    found = reach(root / "pkg" / "deep" / "a.py", "pkg.deep.a")
    assert list(found) == ["pkg", "pkg.deep.a", "pkg.deep.b"]


def test_a_module_in_no_package_reaches_those_beside_it(write):
    root = write(ops="import sizes\nimport math\n", sizes="")
    assert list(reach(root / "ops.py", "ops")) == ["ops", "sizes"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("import pkg._C\n", "pkg._C is no Python file"),
        ("from pkg._C import op\n", "pkg._C is no Python file"),
        ("from ... import x\n", "leads out of its package"),
        ("from .broken import x\n", "isn't Python"),
    ],
)
def test_what_cannot_be_followed_is_an_error(write, text, says):
    root = write(pkg__ops=text, pkg__broken="def (:\n")
    (root / "pkg" / "__init__.py").write_text("")
    with pytest.raises(SourceError, match=says):
        reach(root / "pkg" / "ops.py", "pkg.ops")


def test_a_package_that_is_mapped_from_another_folder_is_not_followed_out_of_it(write):
    root = write(elsewhere__ops="from pkg.sizes import N\n")
    with pytest.raises(SourceError, match=r"the folder of pkg isn't known from that of pkg.sub"):
        reach(root / "elsewhere" / "ops.py", "pkg.sub.ops")


def test_the_shipped_kernels_reach_no_further_than_their_package(tmp_path):
    (tmp_path / "lfbo_aot").mkdir()
    (tmp_path / "lfbo_aot" / "__init__.py").write_text("import lfbo_aot.runtime\n")
    (tmp_path / "lfbo_aot" / "kernels").symlink_to(ROOT / "kernels")
    here = reach(ROOT / "kernels" / "softmax.py", "lfbo_aot.kernels.softmax")
    built = reach(tmp_path / "lfbo_aot" / "kernels" / "softmax.py", "lfbo_aot.kernels.softmax")
    assert list(here) == list(built)
    assert all(name.startswith("lfbo_aot.kernels") for name in here)
    assert "lfbo_aot.kernels.shapes" in here
