from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
from pathlib import Path
from textwrap import dedent

import pytest

import lfbo_aot.registry
from lfbo_aot.registry.source import SourceError
from lfbo_aot.registry.source import source_digest
from lfbo_aot.registry.syntax import canonical
from lfbo_aot.registry.syntax import uses

OPS = """
    import helion.language as hl
    import torch
    from torch import nn
    import lfbo_aot
    from .helpers import scale
    from . import tables
    import mykern.deep.inner as inner
    import mykern.flat

    EPS = 1e-5
    UNUSED = 3

    def local_helper(x, y=EPS):
        return x + y

    def unused_helper(x):
        return x * UNUSED

    @lfbo_aot.kernel(dims={"m": 1}, shape=lambda x: {"m": UNUSED}, reference=unused_helper)
    def op(x: torch.Tensor, flag: hl.constexpr = True) -> torch.Tensor:
        out = torch.empty_like(x)
        for tile in hl.tile(x.size(0)):
            y = scale(local_helper(x[tile])) * tables.FACTORS[0] + inner.twice(x[tile])
            out[tile] = [hl.exp(v) for v in (y, mykern.flat.third)][0]
        return out
"""
HELPERS = """
    from .constants import RATE
    from .constants import OTHER

    def scale(x):
        return _inner(x) * RATE

    def _inner(x):
        return x + 1

    def elsewhere(x):
        return OTHER
"""
FILES = {
    "__init__.py": "",
    "ops.py": OPS,
    "helpers.py": HELPERS,
    "constants.py": "RATE = 2\nOTHER = 3\n",
    "tables.py": "FACTORS = [1, 2]\nFACTORS[0] = 4\nMORE = [3]\n",
    "deep/__init__.py": "",
    "deep/inner.py": "from ..constants import RATE as R\n\ndef twice(x):\n    return x * R\n",
    "flat.py": "third = 3\nfourth = 4\n",
}


def write(folder, files=None, **changed):
    for name, text in {**FILES, **(files or {})}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text), encoding="utf-8")
    return folder / "ops.py"


def digest(folder, files=None, **more):
    return source_digest(write(folder / "mykern", files), "op", **more)


@pytest.fixture
def plain(tmp_path):
    return digest(tmp_path / "plain")


def test_form(plain):
    assert plain.startswith("sha256:")
    assert len(plain) == 7 + 64


SAME = {
    "comment": ("ops.py", "out = torch.empty_like(x)", "out = torch.empty_like(x)  # made here"),
    "formatting": ("ops.py", "return x + y", "return (\n        x\n        +   y\n    )"),
    "kernel's docstring": ("ops.py", "    out = torch", '    """Says."""\n        out = torch'),
    "helper's docstring": ("helpers.py", "return _inner", '"""Says."""\n        return _inner'),
    "module's docstring": ("ops.py", "import helion", '"""Says."""\n    import helion'),
    "unused constant": ("ops.py", "UNUSED = 3", "UNUSED = 4"),
    "unused helper": ("ops.py", "return x * UNUSED", "return x / UNUSED"),
    "decorator": ("ops.py", 'dims={"m": 1}', 'dims={"m": 2}'),
    "unused constant elsewhere": ("constants.py", "OTHER = 3", "OTHER = 4"),
    "unused attribute": ("flat.py", "fourth = 4", "fourth = 5"),
    "unused function elsewhere": ("helpers.py", "return OTHER", "return 0"),
    "unused table": ("tables.py", "MORE = [3]", "MORE = [4]"),
    "number's spelling": ("ops.py", "1e-5", "0.00001"),
    "quotes": ("ops.py", '{"m": UNUSED}', "{'m': UNUSED}"),
    "import's order": (
        "ops.py",
        "import torch\n    from torch import nn",
        "from torch import nn\n    import torch",
    ),
    "type comment": ("ops.py", "return x + y", "return x + y  # type: int"),
}
OTHER = {
    "kernel": ("ops.py", "x.size(0)", "x.size(1)"),
    "default": ("ops.py", "flag: hl.constexpr = True", "flag: hl.constexpr = False"),
    "annotation": ("ops.py", "flag: hl.constexpr", "flag: bool"),
    "constant": ("ops.py", "1e-5", "1e-6"),
    "number's type": ("tables.py", "[1, 2]", "[1.0, 2]"),
    "helper": ("ops.py", "return x + y", "return x - y"),
    "helper elsewhere": ("helpers.py", "_inner(x) * RATE", "RATE * _inner(x)"),
    "helper's helper": ("helpers.py", "return x + 1", "return x + 2"),
    "helper's constant": ("constants.py", "RATE = 2", "RATE = 5"),
    "table": ("tables.py", "[1, 2]", "[1, 3]"),
    "table's later change": ("tables.py", "FACTORS[0] = 4", "FACTORS[0] = 5"),
    "module by absolute import": ("deep/inner.py", "x * R", "x + R"),
    "import under another name": ("deep/inner.py", "import RATE as R", "import OTHER as R"),
    "attribute of a package": ("flat.py", "third = 3", "third = 4"),
    "what a name is imported from": ("ops.py", "helion.language", "triton.language"),
}


def changed(case):
    file, before, after = case
    text = dedent(FILES[file])
    before, after = (dedent(part) if file != "ops.py" else part for part in (before, after))
    source = FILES[file] if file in ("ops.py", "helpers.py") else text
    assert before in source
    return {file: source.replace(before, after, 1)}


@pytest.mark.parametrize("case", SAME.values(), ids=SAME)
def test_not_changed_by(case, plain, tmp_path):
    assert digest(tmp_path / "new", changed(case)) == plain


@pytest.mark.parametrize("case", OTHER.values(), ids=OTHER)
def test_changed_by(case, plain, tmp_path):
    assert digest(tmp_path / "new", changed(case)) != plain


def test_folder_and_module_name_do_not_count(plain, tmp_path):
    assert digest(tmp_path / "a" / "b c") == plain
    assert digest(tmp_path / "c", module="mykern.ops") == plain


def test_definitions_may_move_within_the_file_and_to_another(plain, tmp_path):
    lines = dedent(OPS).split("\n\n")
    helper = next(part for part in lines if part.startswith("def local_helper"))
    last = "\n\n".join([*(part for part in lines if part != helper), helper])
    assert digest(tmp_path / "last", {"ops.py": last}) == plain
    away = "\n\n".join(part for part in lines if part != helper)
    away = away.replace("import torch\n", "import torch\nfrom mykern.away import local_helper\n", 1)
    away = away.replace("EPS = 1e-5\n", "")
    files = {"ops.py": away, "away.py": f"EPS = 1e-5\n\n{helper}\n"}
    assert digest(tmp_path / "away", files) == plain


def test_a_helper_may_be_exported_by_its_package(plain, tmp_path):
    through = dedent(OPS).replace("from .helpers import scale", "from mykern import scale")
    files = {"ops.py": through, "__init__.py": "from .helpers import scale\n"}
    assert digest(tmp_path / "one", files) == plain
    files["__init__.py"] = "from .helpers import *\n"
    assert digest(tmp_path / "star", files) == plain


def test_swapped_aliases_count(tmp_path):
    text = "from .h import {} as a\nfrom .h import {} as b\n\ndef op(x):\n    return a(b(x))\n"
    helpers = "def f(x):\n    return x + 1\n\ndef g(x):\n    return x * 2\n"
    one = digest(tmp_path / "one", {"ops.py": text.format("f", "g"), "h.py": helpers})
    two = digest(tmp_path / "two", {"ops.py": text.format("g", "f"), "h.py": helpers})
    assert one != two


def test_a_mapped_package_folder_has_the_digest_of_the_installed_one(tmp_path):
    """`kernels/` of a checkout is `mykern.kernels` when installed."""
    op = "from .parts import f\nfrom mykern.kernels.parts import g\n\ndef op(x):\n    return f(g(x))\n"
    parts = "def f(x):\n    return x\n\ndef g(x):\n    return x + {}\n"
    found = []
    for folder, constant in (("checkout/kernels", 1), ("site/mykern/kernels", 1), ("x/kernels", 2)):
        base = tmp_path / folder
        base.mkdir(parents=True)
        (base / "__init__.py").touch()
        if base.parent.name == "mykern":
            (base.parent / "__init__.py").touch()
        (base / "op.py").write_text(op)
        (base / "parts.py").write_text(parts.format(constant))
        found.append(source_digest(base / "op.py", "op", module="mykern.kernels.op"))
    assert found[0] == found[1]
    assert found[0] != found[2]


def test_cycles_end(tmp_path):
    files = {
        "ops.py": "from .h import f\n\ndef op(x):\n    return f(x) + op(x) + g(x)\n\n"
        "def g(x):\n    return f(x)\n",
        "h.py": "from .ops import g\nfrom .ops import lost\n\ndef f(x):\n    return g(x) + lost\n",
    }
    files["ops.py"] += "from .h import lost\n"
    assert digest(tmp_path, files) == digest(tmp_path / "again", files)


def test_conditions_and_alternatives_count(tmp_path):
    text = (
        "import sys\nLIMIT = 3\nif sys.version_info > (LIMIT,):\n    def f(x):\n        return x\n"
        "else:\n    f = abs\ntry:\n    from math import cbrt\nexcept ImportError:\n    cbrt = None\n"
        "\ndef op(x):\n    return f(x) + cbrt(x)\n"
    )
    one = digest(tmp_path / "1", {"ops.py": text})
    assert digest(tmp_path / "2", {"ops.py": text.replace("abs", "pow")}) != one
    assert digest(tmp_path / "3", {"ops.py": text.replace("LIMIT = 3", "LIMIT = 4")}) != one
    assert digest(tmp_path / "4", {"ops.py": text.replace("cbrt = None", "cbrt = 0")}) != one


def test_imports_within_the_function_are_followed(tmp_path):
    text = "def op(x):\n    from .helpers import scale\n    return scale(x)\n"
    one = digest(tmp_path / "1", {"ops.py": text})
    assert digest(tmp_path / "2", {"ops.py": text, "constants.py": "RATE = 9\nOTHER = 3\n"}) != one


def test_a_function_within_a_function(tmp_path):
    text = "def make(n):\n    K = {}\n\n    def op(x):\n        return x + K + n\n\n    return op\n"
    folder = tmp_path / "mykern"
    found = []
    for constant in (1, 2, 1):
        path = write(folder, {"ops.py": text.format(constant)})
        os.utime(path, ns=(1, len(found) + 1))
        found.append(source_digest(path, "make.<locals>.op"))
    assert found[0] == found[2]
    assert found[0] != found[1]


def test_text_in_place_of_a_file():
    one = source_digest("<cell 1>", "op", text="K = 1\ndef op(x):\n    return x + K\n")
    two = source_digest("<cell 2>", "op", text="def op(x):\n    return x + K\nK = 1\n")
    assert one == two


def test_what_cannot_be_found_or_read_is_said(tmp_path):
    path = write(tmp_path / "mykern")
    with pytest.raises(SourceError, match="no function 'nothing'"):
        source_digest(path, "nothing")
    with pytest.raises(SourceError, match="no 'Outer'"):
        source_digest(path, "Outer.op")
    with pytest.raises(SourceError, match="can't be read"):
        source_digest(tmp_path / "absent.py", "op")
    path.write_text("def op(:\n")
    with pytest.raises(SourceError, match="isn't Python"):
        source_digest(path, "op")


def test_free_names():
    def free(text):
        return [".".join((name, *more)) for name, more in uses(ast.parse(dedent(text)).body[0])]

    assert free("def f(a, b=D, *c: T, **e) -> R: return a + b + c + e + g.h.i(j)") == [
        "T", "D", "R", "g.h.i", "j",
    ]  # fmt: skip
    assert free("def f():\n    x = y\n    def g(): return x + z\n    return g") == ["y", "z"]
    assert free("def f():\n    return [i + j for i in k(i0) for m in i if m]") == ["k", "i0", "j"]
    assert free("def f():\n    return lambda q: q + w") == ["w"]
    assert free("def f():\n    global n\n    n = 1\n    return n") == ["n"]
    assert free("def f():\n    if (w := v()):\n        return w") == ["v"]
    assert free("class C(B):\n    k = l\n    m = k\n    def f(self): return k") == ["B", "l", "k"]
    assert free("def f(x):\n    for y in x:\n        pass\n    with a as b:\n        b") == ["a"]


def test_f_strings_and_docstrings_in_canonical_text():
    def text(source):
        return canonical(ast.parse(source))

    assert text("f'a' 'b' f'{x}'") == text("f'ab{x}'")
    assert text("f'{x:}'") == text("f'{x}'")
    assert text("def f():\n    'doc'\n    return 'doc'") == text("def f():\n    return 'doc'")
    assert text("u'a'") == text("'a'")
    assert text("x = 'doc'") != text("x = 'dok'")
    assert text("x = 1") != text("x = True")
    assert text("x = 1") != text("x = 1.0")
    assert text("x.a") != text("x.b")


RARE = {
    "ops.py": OPS.replace(
        "return x + y",
        "match x:\n            case {'a': [1, *r], **k} if r: pass\n"
        "        with open(f'{y=!r:>{x}} a' 'b') as f, f: ...\n"
        "        return x + y + (lambda *a, k=1: -1)() + 1j + b'\\xff'[0]",
    )
}
# Changing this makes every stored entry stale: only with a reason, and a line in the change log.
GOLDEN = "sha256:9ddbfe8adf13a30bed28af3beccc07ca03f8a651b42588ffbf2a10b1baef0d78"


def test_the_digest_of_this_python_is_the_one_of_the_others(tmp_path):
    assert digest(tmp_path, RARE) == GOLDEN


def pythons():
    """Interpreters of the supported versions on this machine that start."""
    for version in ("3.10", "3.11", "3.12", "3.13"):
        # pyenv's stand-ins need to be told which one is meant.
        environ = {**os.environ, "PYENV_VERSION": version}
        found = shutil.which(f"python{version}")
        code = "import sys; print(sys.executable)"
        run = found and subprocess.run(
            [found, "-I", "-c", code], env=environ, capture_output=True, text=True
        )
        if run and run.returncode == 0:
            yield version, run.stdout.strip()


def test_equal_on_every_python(tmp_path):
    write(tmp_path / "mykern", RARE)
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from lfbo_aot.registry.source import source_digest\n"
        "print(source_digest(sys.argv[2], 'op'))"
    )
    root = Path(lfbo_aot.registry.__file__).parents[2]
    ops = tmp_path / "mykern" / "ops.py"
    found = {}
    for version, python in pythons():
        run = subprocess.run(
            [python, "-I", "-c", code, str(root), str(ops)], capture_output=True, text=True
        )
        found[version] = run.stdout.strip() or run.stderr
    assert found == dict.fromkeys(found, GOLDEN)


SCRIPT = """
import helpers
from constants import RATE as R
from os.path import join

def op(x):
    return helpers.scale(x) * R + join(x)
"""
BESIDE = {
    "ops.py": SCRIPT,
    "helpers.py": "from constants import OFFSET\n\ndef scale(x):\n    return x + OFFSET\n",
    "constants.py": "RATE = 2\nOFFSET = 3\nUNUSED = 4\n",
}


@pytest.fixture
def script(tmp_path):
    """The digest of a script's kernel, with files beside it changed."""

    def make(module=None, **changed):
        files = BESIDE | {f"{name}.py": text for name, text in changed.items()}
        for name, text in files.items():
            (tmp_path / name).write_text(text)
        return source_digest(tmp_path / "ops.py", "op", module=module)

    return make


def test_files_beside_a_script_count(script):
    first = script()
    assert script("ops") == first
    assert script(helpers=BESIDE["helpers.py"].replace("+", "-")) != first
    assert script(constants=BESIDE["constants.py"].replace("RATE = 2", "RATE = 5")) != first
    assert script(constants=BESIDE["constants.py"].replace("OFFSET = 3", "OFFSET = 5")) != first
    assert script(constants=BESIDE["constants.py"].replace("UNUSED = 4", "UNUSED = 5")) == first
    assert script(helpers="# moved\n" + BESIDE["helpers.py"]) == first


def test_folders_beside_a_script_do_not_count(script, tmp_path):
    """As where a module of its own and other packages are installed side by side."""
    other = "import torch\n\ndef scale(x):\n    return torch.exp(x)\n"
    first = script(helpers=other)
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("def exp(x):\n    return x\n")
    assert script(helpers=other) == first


def test_a_cell_has_no_files_beside_it(script, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    script()
    one = source_digest("<cell 1>", "op", text=SCRIPT)
    script(helpers="scale = 1\n")
    assert source_digest("<cell 1>", "op", text=SCRIPT) == one


SHIPPED = sorted((Path(__file__).parents[2] / "tuned").glob("*/*.jsonl"))


@pytest.mark.parametrize("shard", SHIPPED, ids=lambda path: path.stem)
def test_shipped_entries_hold_for_the_kernels_here(shard):
    name = shard.stem.rpartition(".")[2]
    here = source_digest(Path(__file__).parents[2] / "kernels" / f"{name}.py", name)
    entries = [json.loads(line)[2] for line in shard.read_text().splitlines()]
    assert {entry["source"] for entry in entries} == {here}
    declared = json.loads((shard.parents[1] / "kernels" / f"{shard.stem}.json").read_text())
    assert declared["source"] == here


def test_there_are_shipped_entries():
    assert len(SHIPPED) >= 3
