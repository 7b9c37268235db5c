from __future__ import annotations

from pathlib import Path

from lfbo_aot.buildstep.static import static_digests
from lfbo_aot.database.database import Database
from lfbo_aot.registry.source import source_digest

ROOT = Path(__file__).resolve().parents[2]

KERNEL = """
def kernel(x):
    return x + {n}
"""


def package(root, **files):
    for name, text in files.items():
        path = root / "pkg" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_a_function_of_a_module_and_of_one_below_is_found(tmp_path):
    package(tmp_path, __init__="", ops=KERNEL.format(n=1))
    expected = {"kernel": {source_digest(tmp_path / "pkg" / "ops.py", "kernel", module="pkg.ops")}}
    assert static_digests(["kernel"], ["pkg.ops"], tmp_path) == expected
    assert static_digests(["kernel"], ["pkg"], tmp_path) == expected


def test_two_functions_of_one_name_have_two_digests(tmp_path):
    package(tmp_path, __init__="", a=KERNEL.format(n=1), b=KERNEL.format(n=2))
    assert len(static_digests(["kernel"], ["pkg"], tmp_path)["kernel"]) == 2


def test_what_is_not_there_or_not_python_has_none(tmp_path):
    package(tmp_path, __init__="", broken="def kernel(:\n")
    assert static_digests(["kernel"], ["pkg", "pkg.none", "other"], tmp_path) == {"kernel": set()}


def test_nothing_is_run(tmp_path):
    package(tmp_path, __init__="", ops="raise SystemExit('run')\n" + KERNEL.format(n=1))
    assert len(static_digests(["kernel"], ["pkg.ops"], tmp_path)["kernel"]) == 1


def test_the_shipped_declarations_agree_with_the_shipped_kernels(tmp_path):
    (tmp_path / "lfbo_aot").mkdir()
    (tmp_path / "lfbo_aot" / "__init__.py").write_text("")
    (tmp_path / "lfbo_aot" / "kernels").symlink_to(ROOT / "kernels")
    database = Database(ROOT / "tuned")
    names = {kernel_id.rpartition(".")[2]: kernel_id for kernel_id in database.kernels()}
    found = static_digests(names, ["lfbo_aot.kernels"], tmp_path)
    assert names
    for name, kernel_id in names.items():
        declaration = database.declaration(kernel_id)
        assert declaration is not None
        assert found[name] == {declaration.source}
