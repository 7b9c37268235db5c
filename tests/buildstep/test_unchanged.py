from __future__ import annotations

import dataclasses
import json

import pytest

from lfbo_aot.buildstep.ask import Row
from lfbo_aot.buildstep.checked import read_checked_in
from lfbo_aot.buildstep.interpreter import Interpreter
from lfbo_aot.buildstep.unchanged import unchanged
from lfbo_aot.database.declaration import Declaration
from lfbo_aot.database.declaration import Enumeration
from lfbo_aot.database.merge import merge
from lfbo_aot.registry import enumeration
from lfbo_aot.registry.buckets import Bucket
from lfbo_aot.registry.buckets import enumerate_buckets
from lfbo_aot.registry.devices import INTERPRETER
from lfbo_aot.registry.devices import DeviceId
from lfbo_aot.registry.dims import Exact
from lfbo_aot.registry.dims import Range
from lfbo_aot.registry.source import source_digest

H200 = DeviceId("sm90", "NVIDIA H200")
PCIE = DeviceId("sm90", "NVIDIA H100 PCIe")
HERE = Interpreter("/bin/python", {"HELION_SKIP_CACHE": "1"}, "1.5.0")
DIMS = {"m": Range(1, 256, edges=[16]), "dtype": Exact("bfloat16")}
FIRST, SECOND = "m=1..16|dtype=bfloat16", "m=17..256|dtype=bfloat16"
SMALL = "m=4|dtype=float32"
OPS = """
import helion.language as hl
import torch
import lfbo_aot
from lfbo_aot import Exact, Range
from .sizes import EDGES

DIMS = {"m": Range(1, 256, edges=EDGES), "dtype": Exact("bfloat16")}
"""
KERNEL = """
@lfbo_aot.kernel(dims=DIMS, shape=lambda x: {}, small=[{"m": 4, "dtype": "float32"}])
def NAME(x):
    return x + ADDED
"""
SETTINGS = {"static_shapes": True, "fast_math": False}


class Project:
    """A package with two kernels, each with entries for all of its buckets, on two devices."""

    def __init__(self, root, make_entry):
        self.root = root
        self.make_entry = make_entry
        self.database = root / "tuned"
        (root / "pkg").mkdir()
        self.write("__init__.py", "")
        self.write("sizes.py", "EDGES = [16]\n")
        self.write("ops.py", OPS + self.kernel("one", 1) + self.kernel("two", 2))
        for name in ("one", "two"):
            held = {(H200, FIRST): {}, (PCIE, SECOND): {}, (INTERPRETER, SMALL): {}}
            self.declare(name, held)

    def write(self, name, text):
        (self.root / "pkg" / name).write_text(text)

    def change(self, name, old, new):
        path = self.root / "pkg" / name
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))

    @staticmethod
    def kernel(name, added):
        return KERNEL.replace("NAME", name).replace("ADDED", str(added))

    def declaration(self, name, module="pkg.ops", **fields):
        """What the kernel's spec would give, which takes Helion to make."""
        file = self.root.joinpath(*module.split(".")).with_suffix(".py")
        source = source_digest(file, name, module=module)
        buckets = tuple(bucket.key for bucket in enumerate_buckets(DIMS))
        found = Declaration(f"pkg.{name}", DIMS, buckets, SETTINGS, source)
        found = dataclasses.replace(found, **fields)
        digest = enumeration.enumeration_digest(
            file, module, found.kernel_id, found.follows_from((SMALL,))
        )
        known = None if digest is None else Enumeration(digest, (SMALL,))
        return dataclasses.replace(found, enumeration=known)

    def declare(self, name, held=(), declaration=None, **fields):
        found = declaration or self.declaration(name, **fields)
        entries = {
            (device, Bucket.parse(key)): self.make_entry(
                **{"source": found.source, "settings": dict(found.settings), **held[device, key]}
            )
            for device, key in held
        }
        merge(self.database, {found.kernel_id: entries}, [found])

    def answer(self, archs=("sm90",), modules=("pkg.ops",), interpreter=HERE):
        checked = read_checked_in(self.database, "tuned")
        return unchanged(modules, archs, checked, interpreter, self.root)


@pytest.fixture
def project(tmp_path, make_entry):
    return Project(tmp_path, make_entry)


def test_where_nothing_changed_the_answer_is_known(project):
    answer = project.answer(("sm90", "cpu-interpreter"))
    assert answer is not None
    assert answer.archs == ("sm90", "cpu-interpreter")
    assert answer.rows == [
        Row("cpu-interpreter", "pkg.one", SMALL, "kept"),
        Row("cpu-interpreter", "pkg.two", SMALL, "kept"),
        *(Row("sm90", f"pkg.{k}", b, "kept") for k in ("one", "two") for b in (FIRST, SECOND)),
    ]
    assert (answer.device, answer.failed_modules, answer.lines) == (None, {}, [])
    assert answer.kernels["pkg.one"].settings == SETTINGS
    written = (project.database / "kernels" / "pkg.one.json").read_text()
    assert answer.kernels["pkg.one"].declaration == written


@pytest.mark.parametrize("modules", [("pkg",), ("pkg.ops", "pkg"), ("pkg", "pkg.ops")])
def test_a_package_is_known_by_the_modules_that_it_imports(project, modules):
    project.write("__init__.py", "from .ops import one, two\n")
    for name in ("one", "two"):
        project.declare(name)
    answer = project.answer(modules=modules)
    assert answer is not None
    assert set(answer.kernels) == {"pkg.one", "pkg.two"}


def test_a_change_that_means_nothing_leaves_it_known(project):
    project.change("ops.py", "    return x + 1", "    # one more\n    return (x + 1)")
    project.write("unrelated.py", "import os\nX = os.environ\n")
    assert project.answer() is not None


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("ops.py", "x + 1", "x + 3"),
        ("ops.py", '"bfloat16"', '"float16"'),
        ("ops.py", 'small=[{"m": 4', 'small=[{"m": 8'),
        ("ops.py", "small=", "fast_math=True, small="),
        ("ops.py", "def two", "def three"),
        ("ops.py", "import torch\n", "import torch\nimport os\nDIMS = os.environ\n"),
        ("ops.py", "import torch\n", "import torch\nimport other\n"),
        ("ops.py", "import torch\n", "import torch\nfrom lfbo_aot.kernels import softmax\n"),
        ("sizes.py", "16", "32"),
        ("__init__.py", "", "from . import ops\n"),
        ("ops.py", "import torch\n", "import torch (\n"),
    ],
)
def test_another_text_is_asked(project, file, old, new):
    project.change(file, old, new)
    assert project.answer() is None


def test_a_new_kernel_is_asked_for_also_in_a_module_of_its_own(project):
    project.write("__init__.py", "from . import ops\n")
    for name in ("one", "two"):
        project.declare(name)
    assert project.answer(modules=("pkg",)) is not None
    project.write("more.py", OPS + project.kernel("three", 3))
    assert project.answer(modules=("pkg",)) is not None, "nothing imports it"
    assert project.answer(modules=("pkg", "pkg.more")) is None
    project.write("__init__.py", "from . import ops, more\n")
    assert project.answer(modules=("pkg",)) is None


def test_registered_kernels_are_asked_for(project):
    text = "def three(x): ...\nlfbo_aot.register(three, dims=DIMS, shape=lambda x: {})\n"
    project.write("ops.py", OPS + project.kernel("one", 1) + text)
    project.declare("one")
    assert project.declaration("one").enumeration is None
    assert project.answer() is None


def test_kernels_of_a_module_beside_the_named_one_are_asked_for(project):
    project.write("named.py", "from . import ops\n")
    assert project.answer(modules=("pkg.named",)) is None


def test_modules_that_declare_nothing_or_are_not_there_are_asked(project):
    assert project.answer(modules=("pkg.sizes",)) is None
    assert project.answer(modules=("pkg.none",)) is None
    assert project.answer(modules=("pkg.ops", "pkg.none")) is None


def test_archs_that_are_not_named_are_asked_for(project):
    assert project.answer(archs=()) is None
    assert project.answer(archs=("sm90", "sm100")) is None


@pytest.mark.parametrize(
    "fields",
    [
        {"source": "sha256:01d"},
        {"settings": {"static_shapes": True, "fast_math": True}},
        {"status": "imported"},
        {"status": "transferred"},
    ],
)
def test_an_entry_that_does_not_hold_is_asked_for(project, fields):
    project.declare("one", {(PCIE, SECOND): fields})
    assert project.answer() is None


def test_an_entry_of_any_device_of_the_arch_will_do(project):
    project.declare("one", {(PCIE, FIRST): {"source": "sha256:01d"}})
    assert project.answer() is not None, "the H200's holds"


def test_a_missing_line_is_asked_for(project):
    shard = project.database / "sm90" / "pkg.one.jsonl"
    lines = shard.read_bytes().splitlines(keepends=True)
    shard.write_bytes(lines[0])
    assert project.answer() is None


def test_damage_anywhere_is_asked_about(project):
    shard = project.database / "cpu-interpreter" / "pkg.one.jsonl"
    shard.write_bytes(shard.read_bytes()[:-9])
    assert project.answer() is None


def test_a_declaration_without_the_field_or_edited_by_hand_is_asked_about(project):
    file = project.database / "kernels" / "pkg.one.json"
    whole = file.read_text()
    page = json.loads(whole)
    del page["enumeration"]
    file.write_text(json.dumps(page))
    assert project.answer() is None
    page = json.loads(whole)
    page["buckets"] = [FIRST]
    file.write_text(json.dumps(page))
    assert project.answer() is None
    page = json.loads(whole)
    page["enumeration"]["small"] = []
    file.write_text(json.dumps(page))
    assert project.answer(("cpu-interpreter",)) is None


def test_a_declaration_that_is_gone_is_asked_for(project):
    (project.database / "kernels" / "pkg.two.json").unlink()
    for shard in project.database.glob("*/pkg.two.jsonl"):
        shard.unlink()
    assert project.answer() is None


@pytest.mark.parametrize(
    "interpreter",
    [
        Interpreter("/bin/python", {}, "1.6.0"),
        Interpreter("/bin/python", {}, None),
        Interpreter("/bin/python", {"HELION_FAST_MATH": "1"}, "1.5.0"),
        Interpreter("/bin/python", {"TRITON_F32_DEFAULT": "ieee"}, "1.5.0"),
    ],
)
def test_another_helion_or_one_that_is_told_otherwise_is_asked(project, interpreter):
    assert project.answer(interpreter=interpreter) is None


def test_another_version_of_lfbo_aot_is_asked(project, monkeypatch):
    monkeypatch.setattr(enumeration, "_version", lambda: "99.0")
    assert project.answer() is None


def test_a_source_digest_that_is_made_otherwise_is_asked_about(project, monkeypatch):
    # As a later version of this package might, if its number were forgotten.
    monkeypatch.setattr(
        "lfbo_aot.buildstep.unchanged.source_digest", lambda *_, **__: "sha256:other"
    )
    assert project.answer() is None
