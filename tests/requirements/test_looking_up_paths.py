"""What must hold of look-ups that a kernel's own calls make: L9, L16.

On CPU tensors a kernel binds and generates code, which is all that setting a config needs.
"""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("helion")
triton = pytest.importorskip("triton")

import lfbo_aot  # noqa: E402
from lfbo_aot import Environment  # noqa: E402
from lfbo_aot.buildstep.ask import Answer  # noqa: E402
from lfbo_aot.buildstep.ask import Kernel  # noqa: E402
from lfbo_aot.buildstep.checked import read_checked_in  # noqa: E402
from lfbo_aot.buildstep.interpreter import Search  # noqa: E402
from lfbo_aot.buildstep.outcome import Asked  # noqa: E402
from lfbo_aot.buildstep.outcome import compose  # noqa: E402
from lfbo_aot.buildstep.settings import BuildSettings  # noqa: E402
from lfbo_aot.buildstep.target import write_target  # noqa: E402
from lfbo_aot.database.database import Database  # noqa: E402
from lfbo_aot.database.declaration import Declaration  # noqa: E402
from lfbo_aot.registry.devices import CPU  # noqa: E402
from lfbo_aot.runtime import lookup  # noqa: E402
from lfbo_aot.runtime.versions import loaded_versions  # noqa: E402

from .conftest import BOX  # noqa: E402
from .conftest import OPS  # noqa: E402
from .conftest import PARTS  # noqa: E402
from .conftest import said  # noqa: E402
from .conftest import set_default  # noqa: E402
from .conftest import set_warps  # noqa: E402
from .conftest import warps  # noqa: E402

pytestmark = pytest.mark.usefixtures("isolated")

X = torch.ones(32)


# L9

EDITS = {
    "the kernel": (OPS.replace("- 1", "- 2"), PARTS),
    "a helper that it calls": (OPS, PARTS.replace("more(x * FACTOR)", "more(FACTOR * x)")),
    "a helper of a helper": (OPS, PARTS.replace("x + 1", "x + 2")),
    "a global that a helper reads": (OPS, PARTS.replace("2.0", "3.0")),
}
SAME = {
    "comments": (OPS.replace("    out =", "    # Of one size.\n    out ="), "# Helpers\n" + PARTS),
    "formatting": (
        OPS.replace("torch.empty_like(x)", "torch.empty_like(\n        x,\n    )"),
        PARTS.replace("more(x * FACTOR)", "more((x*FACTOR))"),
    ),
    "order and other functions": (OPS, "def more(x):\n    return x + 1\n\n" + PARTS[:58] + "\n"),
    "what is declared around it": (OPS.replace("Range(1, 4096", "Range(1, 8192"), PARTS),
    "the path alone": (OPS, PARTS),
}


@pytest.mark.parametrize("name", EDITS)
def test_l9_an_edit_makes_the_entries_source_stale(project, tuned, caplog, name):
    before = project("before")
    tuned(before, {BOX: {"config": warps(8)}}, X)
    assert set_warps(before, X) == 8
    assert EDITS[name] != (OPS, PARTS)
    after = project("after", *EDITS[name])
    found = lfbo_aot.resolve(after, after.normalize_args(X))
    assert (found.status, set_default(after, X)) == ("default", True)
    old, new = before.lfbo_aot_spec.source, after.lfbo_aot_spec.source
    assert found.reasons[0].startswith(f"source: entry={old} here={new}")
    assert any(found.reasons[0] in text for text in said(caplog))


@pytest.mark.parametrize("name", SAME)
def test_l9_what_changes_no_computation_changes_no_answer(project, tuned, name):
    before = project("before")
    tuned(before, {BOX: {"config": warps(8)}}, X)
    after = project("moved/further away", *SAME[name])
    assert after.lfbo_aot_spec.source == before.lfbo_aot_spec.source
    assert after.lfbo_aot_spec.file != before.lfbo_aot_spec.file
    assert set_warps(after, X) == 8


# L16


@pytest.fixture
def weighed(monkeypatch):
    """Every entry that any look-up of this process weighs, as it was found."""
    found = []
    real = lookup.weigh

    def weigh(*args, **more):
        one = real(*args, **more)
        c = one.considered
        found.append((c.path, c.key, c.status, c.fresh, c.outcome, dict(c.entry.config)))
        return one

    monkeypatch.setattr(lookup, "weigh", weigh)
    return found


@pytest.mark.parametrize("version", ["as here", "0.1"])
def test_l16_decorator_function_and_command_line_give_one_answer_by_one_code_path(
    project, tuned, command, weighed, version
):
    kernel = project()
    versions = loaded_versions()
    versions["helion"] = versions["helion"] if version == "as here" else version
    tuned(kernel, {BOX: {"config": warps(8), "versions": versions}}, X)
    spec = kernel.lfbo_aot_spec
    shape = {"n": 32, "causal": False, "dtype": "float32"}
    environment = Environment(
        source=spec.source, settings=spec.settings, versions=loaded_versions()
    )
    assert set_warps(kernel, X) == 8
    answers = [
        lfbo_aot.resolve(kernel, kernel.normalize_args(X), environment=environment),
        lfbo_aot.resolve(kernel, shape, CPU, environment=environment),
        lfbo_aot.resolve("scale", shape, str(CPU), environment=environment),
        lfbo_aot.resolve(
            "mykern.scale", (32, False, "float32"), "cpu/CPU", environment=environment
        ),
    ]
    config = lfbo_aot.get_config("scale", shape, str(CPU), environment=environment)
    words = [spec.kernel_id, "n=32", "causal=false", "dtype=float32", "--arch", CPU]
    status, told = command("explain", *words, "--module", "mykern.ops")
    assert answers[1:] == answers[:1] * 3
    assert (answers[0].status, answers[0].fresh) == ("exact", version == "as here")
    assert config == answers[0].config
    assert status == 0
    for name in ("status", "fresh", "config", "key", "layer"):
        assert told[name] == getattr(answers[0], name)
    assert told["reasons"] == list(answers[0].reasons)
    assert len(weighed) == 7
    assert weighed == weighed[:1] * 7


def test_l16_a_build_ships_what_look_ups_serve_and_it_is_served_alike(project, tuned, tmp_path):
    kernel = project()
    spec = kernel.lfbo_aot_spec
    held = {
        "n=1..4": {},
        "n=5..16": {"source": "sha256:0ld"},
        "n=17..64": {"versions": {"helion": "0.1"}},
        "n=65..256": {"status": "imported"},
        "n=257..1024": {"settings": {**spec.settings, "fast_math": True}},
        "n=1025..4096": {"settings": {}},
    }
    rest = "|causal=false|dtype=float32"
    checked_in = tuned(kernel, {n + rest: fields for n, fields in held.items()}, X)
    environment = Environment(
        source=spec.source, settings=spec.settings, versions=loaded_versions()
    )

    def answers():
        for n in (4, 16, 64, 256, 1024, 4096):
            shape = {"n": n, "causal": False, "dtype": "float32"}
            found = lfbo_aot.resolve(kernel, shape, CPU, environment=environment)
            yield found.status, found.fresh, found.config, found.key

    before = list(answers())
    declared = Kernel(Declaration.of(spec).dumps(), spec.source, dict(spec.settings))
    answer = Answer(archs=("cpu",), kernels={spec.kernel_id: declared})
    settings = BuildSettings(package="mykern", kernels=("mykern.ops",))
    checked = read_checked_in(checked_in, "tuned")
    built = compose(settings, "1.0", checked, Asked(Search(None, ()), answer), tmp_path)
    write_target(tmp_path / "built", built.files)
    with lfbo_aot.use_database(tmp_path / "built"):
        assert list(answers()) == before
    served = [key for status, *_, key in before if status != "default"]
    assert [status for status, *_ in before].count("default") == 3
    shard = Database(tmp_path / "built").shard("mykern.scale", "cpu")
    assert sorted(shard.keys) == sorted(served)
