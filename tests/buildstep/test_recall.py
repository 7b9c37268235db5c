from __future__ import annotations

import dataclasses

import pytest

from lfbo_aot.buildstep import recall as recall_module
from lfbo_aot.buildstep.ask import Answer
from lfbo_aot.buildstep.ask import Kernel
from lfbo_aot.buildstep.ask import Request
from lfbo_aot.buildstep.ask import Row
from lfbo_aot.buildstep.ask import read_request
from lfbo_aot.buildstep.ask import write_request
from lfbo_aot.buildstep.interpreter import Interpreter
from lfbo_aot.buildstep.recall import recall

INTERPRETER = Interpreter("/bin/python", {})


PLAIN = """
import lfbo_aot
from lfbo_aot import Range

@lfbo_aot.kernel(dims={"m": Range(1, 64)}, shape=lambda x: {"m": x.size(0)})
def k(x): ...
"""


def remember(folder, digest, request, answer):
    recall_module.remember(folder, digest, request, answer, folder.parent)


def fingerprint(request, interpreter, root):
    return recall_module.fingerprint(request, interpreter, root, root / "pkg" / "tuned")


@pytest.fixture
def request_(tmp_path):
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "ops.py").write_text(PLAIN)
    (tmp_path / "tuned" / "sm90").mkdir(parents=True)
    (tmp_path / "tuned" / "sm90" / "pkg.k.jsonl").write_text("line\n")
    return Request(
        modules=("pkg.ops",),
        library=str(tmp_path),
        roots=(str(tmp_path),),
        source=str(tmp_path / "tuned"),
        built=str(tmp_path / "built"),
        state=str(tmp_path),
        archs=("sm90",),
        device="auto",
        budget_s=1.0,
        trials=None,
        tune=True,
    )


def answer(status="kept"):
    return Answer(
        archs=("sm90",),
        kernels={"pkg.k": Kernel("{}", "sha256:1", {"static_shapes": True})},
        rows=[Row("sm90", "pkg.k", "m=1", status, "why")],
        lines=[("sm90", "pkg.k", "key", "line")],
    )


def test_request_and_answer_come_back_as_they_were(tmp_path, request_):
    write_request(request_, tmp_path / "request.json")
    assert read_request(tmp_path / "request.json") == request_
    answer().write(tmp_path / "answer.json")
    assert Answer.read(tmp_path / "answer.json") == answer()
    assert Answer.read(tmp_path / "none.json") is None


def test_a_complete_answer_is_recalled_for_equal_inputs(tmp_path, request_):
    digest = fingerprint(request_, INTERPRETER, tmp_path)
    remember(tmp_path / "answers", digest, request_, answer())
    assert recall(tmp_path / "answers", digest) == answer()
    assert recall(tmp_path / "answers", "other") is None


@pytest.mark.parametrize("file", ["pkg/ops.py", "pkg/new.py", "tuned/sm90/pkg.k.jsonl"])
def test_another_source_or_database_is_another_input(tmp_path, request_, file):
    before = fingerprint(request_, INTERPRETER, tmp_path)
    (tmp_path / file).write_text("y = 2\n")
    assert fingerprint(request_, INTERPRETER, tmp_path) != before


def test_another_wish_or_interpreter_is_another_input(tmp_path, request_):
    other = dataclasses.replace(request_, archs=("sm100",))
    known = {
        fingerprint(request_, INTERPRETER, tmp_path),
        fingerprint(other, INTERPRETER, tmp_path),
        fingerprint(request_, Interpreter("/other/python", {}), tmp_path),
        fingerprint(request_, Interpreter("/bin/python", {}, "1.6.0"), tmp_path),
    }
    assert len(known) == 4


def test_what_an_earlier_build_wrote_is_no_input(tmp_path, request_):
    before = fingerprint(request_, INTERPRETER, tmp_path)
    (tmp_path / "pkg" / "tuned").mkdir()
    (tmp_path / "pkg" / "tuned" / "__init__.py").write_text("")
    assert fingerprint(request_, INTERPRETER, tmp_path) == before


def test_places_do_not_count(tmp_path, request_):
    moved = dataclasses.replace(request_, built="/elsewhere", state="/x", library="/y")
    assert fingerprint(moved, INTERPRETER, tmp_path) == fingerprint(request_, INTERPRETER, tmp_path)


def test_an_answer_that_leaves_something_missing_is_asked_again(tmp_path, request_):
    remember(tmp_path / "answers", "d", request_, answer("missing"))
    failed = answer()
    failed.failed_modules = {"pkg.ops": "no"}
    remember(tmp_path / "answers", "d", request_, failed)
    remember(tmp_path / "answers", "d", request_, Answer())
    remember(tmp_path / "answers", "d", dataclasses.replace(request_, archs=()), answer())
    assert recall(tmp_path / "answers", "d") is None


@pytest.mark.parametrize(
    "text",
    [
        PLAIN + "M = open('sizes.txt').read()\n",
        PLAIN + "import os\nM = os.environ.get('M')\n",
        PLAIN + "import torch\nM = torch.__version__\n",
        PLAIN + "import other\n",
        PLAIN + "import os\nif os.environ.get('MORE'):\n    lfbo_aot.register(k, dims={})\n",
        "import lfbo_aot\nfrom other import k\nlfbo_aot.register(k, dims={})\n",
        PLAIN.replace("def k", "def another"),
    ],
)
def test_what_follows_from_more_than_the_text_is_asked_again(tmp_path, request_, text):
    remember(tmp_path / "answers", "d", request_, answer())
    assert recall(tmp_path / "answers", "d") is not None
    (tmp_path / "pkg" / "ops.py").write_text(text)
    remember(tmp_path / "answers", "e", request_, answer())
    assert recall(tmp_path / "answers", "e") is None


def test_one_module_of_several_that_is_not_plain_is_enough(tmp_path, request_):
    (tmp_path / "pkg" / "more.py").write_text("import os\nM = len(os.environ)\n")
    more = dataclasses.replace(request_, modules=("pkg.ops", "pkg.more"))
    remember(tmp_path / "answers", "d", more, answer())
    assert recall(tmp_path / "answers", "d") is None


def test_variables_that_change_helions_defaults_are_an_input(tmp_path, request_):
    told = [{}, {"HELION_FAST_MATH": "1"}, {"HELION_FAST_MATH": "0"}, {"TRITON_F32_DEFAULT": "x"}]
    known = {fingerprint(request_, Interpreter("/bin/python", t), tmp_path) for t in told}
    assert len(known) == len(told)
    plain = fingerprint(request_, INTERPRETER, tmp_path)
    other = Interpreter("/bin/python", {"HELION_SKIP_CACHE": "1", "A": "b"})
    assert fingerprint(request_, other, tmp_path) == plain


def test_only_the_last_answer_is_kept_and_damage_is_no_answer(tmp_path, request_):
    remember(tmp_path / "answers", "first", request_, answer())
    remember(tmp_path / "answers", "second", request_, answer())
    assert [p.stem for p in (tmp_path / "answers").iterdir()] == ["second"]
    (tmp_path / "answers" / "second.json").write_text("{")
    assert recall(tmp_path / "answers", "second") is None
