"""One damaged byte, anywhere: no look-up raises, none answers what nobody measured, and each says so."""

from __future__ import annotations

import contextlib
import json
import logging
import shutil
import tempfile
from importlib import metadata
from pathlib import Path

import pytest
from hypothesis import HealthCheck
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

import lfbo_aot
from lfbo_aot import Environment
from lfbo_aot import Exact
from lfbo_aot import Range
from lfbo_aot.database import installed
from lfbo_aot.errors import UnknownNameError
from lfbo_aot.registry.buckets import Bucket
from lfbo_aot.registry.devices import DeviceId
from lfbo_aot.runtime import notices
from lfbo_aot.runtime import state

pytestmark = pytest.mark.usefixtures("isolated")

PROPERTY = settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
KERNEL = "mykern.norm"
H200, H100 = DeviceId("sm90", "NVIDIA H200"), DeviceId("sm90", "NVIDIA H100 PCIe")
DIMS = {"m": Range(1, 64), "dtype": Exact("bfloat16", "float16"), "causal": Exact(True, False)}
REST = "|dtype=bfloat16|causal=true"
HERE = Environment(source="sha256:50ce", versions={"torch": "2.11.0", "helion": "1.5.0"})

# Boxes in boxes, two devices, and keys that differ in one letter, so that damage can make one of
# the other. The upper layer's entries have 1, 2, ... warps, the lower one's 101, 102, ...
PLACES = [
    (H200, f"m=1..8{REST}"),
    (H200, f"m=1..64{REST}"),
    (H200, f"m=5..6{REST}"),
    (H200, "m=1..8|dtype=float16|causal=false"),
    (H100, f"m=1..8{REST}"),
    (H100, f"m=16..64{REST}"),
]
SHAPES = [
    {"m": m, "dtype": dtype, "causal": causal}
    for m in (1, 6, 8, 20, 64)
    for dtype, causal in (("bfloat16", True), ("float16", False))
]
QUESTIONS = [
    (shape, target, policy, environment)
    for shape in SHAPES
    for target, policy, environment in (
        (str(H200), "compatible", None),
        (str(H200), "exact", HERE),
        (str(H100), "any", HERE),
        ("sm90", "compatible", None),
    )
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory, write_database, make_entry):
    """Two databases, of which the lower one lacks some of what the upper one holds."""
    folder = tmp_path_factory.mktemp("whole")
    for name, base, places in (("high", 1, PLACES), ("low", 101, PLACES[::2])):
        held = {place: make_entry(base + i) for i, place in enumerate(places)}
        write_database(folder / name, {KERNEL: held}, dims=DIMS)
    return folder


def ask_all():
    """The answer to each question, read anew, and what was warned of."""
    state.refresh()
    notices.forget()
    return [
        lfbo_aot.resolve(KERNEL, shape, target, policy=policy, environment=environment)
        for shape, target, policy, environment in QUESTIONS
    ]


@contextlib.contextmanager
def laid(high, low):
    with lfbo_aot.use_database(low), lfbo_aot.use_database(high):
        yield


def answers_held():
    """For each shape, the warps of all entries whose box holds it, in both layers."""
    held = []
    for shape, *_ in QUESTIONS:
        mine = set()
        for base, places in ((1, PLACES), (101, PLACES[::2])):
            for i, (_, key) in enumerate(places):
                if Bucket.parse(key).contains(shape):
                    mine.add(base + i)
        held.append(mine)
    return held


HELD = answers_held()


def warps(found):
    return found.config.get("num_warps")


@st.composite
def damage(draw):
    """One byte changed, lost or put in, at a place given as a share of the file."""
    place = draw(st.floats(0, 1, exclude_max=True))
    # What has a meaning in these files is likelier to make something else of them.
    byte = draw(st.sampled_from(b'0123456789"|=.,:{}[]\\ \nabf\x00\xff') | st.integers(0, 255))
    return draw(st.sampled_from(["flip", "delete", "insert"])), place, byte


def damaged(content, how, place, byte):
    at = int(place * len(content))
    if how == "flip":
        changed = byte if content[at] != byte else byte ^ 1
        return content[:at] + bytes([changed]) + content[at + 1 :]
    return (
        content[:at]
        + (bytes([byte]) if how == "insert" else b"")
        + content[at + (how != "insert") :]
    )


FILES = [f"sm90/{KERNEL}.jsonl", f"kernels/{KERNEL}.json"]


def check(before, after, said):
    """Each answer is the one before, or another that is held for the shape or none, and said so."""
    for was, found, held in zip(before, after, HELD, strict=True):
        if found.status == "default":
            assert dict(found.config) == {}
        else:
            assert warps(found) in held
        if answer(found) != answer(was):
            assert any(reason.startswith("damaged: ") for reason in found.reasons)
            assert any("damaged: " in text for text in said)


def answer(found):
    layer = None if found.layer is None else Path(found.layer).name
    return found.config, found.status, found.fresh, found.key, layer


@pytest.fixture
def undamaged(whole, tmp_path):
    """The answers with both layers, and with the upper one alone."""
    with laid(whole / "high", whole / "low"):
        both = ask_all()
    with laid(whole / "high", tmp_path):
        return {True: both, False: ask_all()}


@pytest.mark.parametrize("file", FILES, ids=["shard", "declaration"])
@PROPERTY
@given(hurt=damage(), both=st.booleans())
def test_a_damaged_byte_in_the_upper_layer(whole, undamaged, caplog, *, file, hurt, both):
    with tempfile.TemporaryDirectory() as name:
        high = Path(name, "high")
        shutil.copytree(whole / "high", high)
        (high / file).write_bytes(damaged((high / file).read_bytes(), *hurt))
        caplog.clear()
        low = whole / "low" if both else Path(name)
        with laid(high, low), caplog.at_level(logging.WARNING, logger="lfbo_aot"):
            after = ask_all()
    check(undamaged[both], after, texts(caplog))


@PROPERTY
@given(hurt=damage())
def test_a_damaged_byte_in_the_manifest_of_an_installed_package(whole, caplog, monkeypatch, hurt):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copytree(whole / "high", folder / "mykern" / "tuned")
        info = folder / "mykern-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mykern\nVersion: 1.0\n")
        announced = "[lfbo_aot.databases]\nmykern = mykern.tuned\n"
        (info / "entry_points.txt").write_text(announced)
        manifest = folder / "mykern" / "tuned" / "manifest.json"
        manifest.write_text(json.dumps({"schema": 1, "archs": ["sm90"], "missing": []}, indent=2))
        here = list(metadata.distributions(path=[str(folder)]))
        monkeypatch.setattr(installed, "_distributions", lambda: here)
        installed.forget()
        before = ask_all()
        assert "package mykern" in {found.layer for found in before}
        manifest.write_bytes(damaged(manifest.read_bytes(), *hurt))
        installed.forget()
        caplog.clear()
        with caplog.at_level(logging.WARNING, logger="lfbo_aot"):
            try:
                after = ask_all()
            except UnknownNameError:  # no other layer knows the kernel
                (text,) = texts(caplog)
                assert text.startswith("data package mykern is passed over: ")
                return
    assert [f.config for f in after] == [f.config for f in before]


def texts(caplog):
    return [record.getMessage() for record in caplog.records]


def test_questions_are_answered_by_both_layers_by_all_boxes_and_by_none(whole):
    """Else the tests above could pass by asking nothing."""
    with laid(whole / "high", whole / "low"):
        answers = ask_all()
    assert {warps(found) for found in answers} >= {1, 2, 3, 4, 5, 6, None}
    assert {found.status for found in answers} >= {"exact", "same_arch", "default"}
