from __future__ import annotations

import json
import stat
import zipfile

import pytest
from hypothesis import HealthCheck
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from lfbo_aot.database import archive as archives
from lfbo_aot.database.archive import make_archive
from lfbo_aot.database.archive import read_archive
from lfbo_aot.database.contents import folder_files
from lfbo_aot.database.contents import read_folder
from lfbo_aot.database.contents import to_files
from lfbo_aot.database.job import Job
from lfbo_aot.database.job import Missing
from lfbo_aot.database.job import find_missing
from lfbo_aot.errors import DatabaseError
from lfbo_aot.registry.devices import DeviceId
from lfbo_aot.registry.devices import parse_target

KERNEL = "mykern.norm"
ONE, TWO = "m=1..16|n=2048|dtype=bfloat16", "m=17..256|n=2048|dtype=bfloat16"
B200 = DeviceId("sm100", "NVIDIA B200")
ORIGIN = {"by": "lfbo-aot 0.1.0", "machine": "here", "day": "2026-12-01"}
JOB = Job(
    origin=ORIGIN,
    target=parse_target("sm90/NVIDIA H200"),
    kernels=(KERNEL,),
    where={"n": (2048, 5120), "dtype": ("bfloat16",), "causal": (True,)},
    missing=(Missing(KERNEL, TWO, "missing"),),
    modules=("ops.py",),
)
MODULES = {"ops.py": b"raise RuntimeError('run')\n"}


@pytest.fixture
def contents(tmp_path, write_database, make_entry):
    held = {KERNEL: {ONE: make_entry(1), (B200, TWO): make_entry(2)}}
    return read_folder(write_database(tmp_path / "tuned", held))


@pytest.fixture
def good(tmp_path, contents):
    path = tmp_path / "good.zip"
    path.write_bytes(make_archive(JOB, contents, MODULES))
    return path


def rewritten(source, target, change):
    """The archive with `change` made to its files, a list of (name or ZipInfo, content)."""
    with zipfile.ZipFile(source) as old:
        files = [(name, old.read(name)) for name in old.namelist()]
    with zipfile.ZipFile(target, "w") as new:
        for name, content in change(files):
            new.writestr(name, content)
    return target


def test_there_and_back(good, contents, tmp_path):
    found = read_archive(good)
    assert found.job == JOB
    assert found.modules == MODULES
    assert to_files(found.contents) == folder_files(tmp_path / "tuned")
    assert (found.contents.entries, found.contents.name) == (contents.entries, str(good))
    assert good.read_bytes() == make_archive(JOB, contents, MODULES)
    with zipfile.ZipFile(good) as archive:
        assert archive.namelist() == [
            "manifest.json",
            "tuned/kernels/mykern.norm.json",
            "tuned/sm100/mykern.norm.jsonl",
            "tuned/sm90/mykern.norm.jsonl",
            "modules/ops.py",
        ]
    assert JOB.tune_words() == [KERNEL, "n=2048,5120", "dtype=bfloat16", "causal=true"]


NAMES = [
    "../evil.json",
    "/etc/passwd",
    "tuned/../../evil.jsonl",
    "tuned/sm90/../evil.jsonl",
    "tuned/sm90/a.b.py",
    "tuned/kernels/a.b.jsonl",
    "tuned\\sm90\\a.b.jsonl",
    "C:/evil.json",
    "modules/sub/evil.py",
    "modules/../evil.py",
    "modules/evil.so",
    "tuned/sm90/",
    "tuned/__init__.py",
    "tuned/.hidden/a.b.jsonl",
    " ",
]


@pytest.mark.parametrize("name", NAMES)
def test_names_that_are_never_written_are_refused(good, tmp_path, name):
    bad = rewritten(good, tmp_path / "bad.zip", lambda files: [*files, (name, b"{}")])
    with pytest.raises(DatabaseError, match=r"can't be in an archive: no such name") as caught:
        read_archive(bad)
    assert caught.value.path == bad


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(max_size=20))
def test_no_odd_name_gets_in(good, tmp_path, name):
    files = {"manifest.json": b"", f"tuned/sm90/{name}.jsonl": b"", f"modules/{name}.py": b""}
    for member in list(files)[1:]:
        reason = archives._refusal(zipfile.ZipInfo(member))
        if not reason:
            assert name.isascii()
            assert not {"/", "\\", "\0"} & set(name)
            assert not name.startswith((".", "-"))


def test_links_and_modes_mean_nothing(good, tmp_path):
    def linked(files):
        link = zipfile.ZipInfo("modules/link.py")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        return [*files, (link, b"/etc/passwd")]

    found = read_archive(rewritten(good, tmp_path / "bad.zip", linked))
    assert found.modules["link.py"] == b"/etc/passwd"


def test_a_name_that_stands_there_twice(good, tmp_path):
    with pytest.warns(UserWarning, match="Duplicate name"):
        bad = rewritten(good, tmp_path / "bad.zip", lambda files: [*files, files[-1]])
    with pytest.raises(DatabaseError, match="stands there twice"):
        read_archive(bad)


def test_sizes_are_counted_not_believed(good, monkeypatch):
    monkeypatch.setattr(archives, "LARGEST_FILE", 500)
    with pytest.raises(DatabaseError, match="too large"):
        read_archive(good)
    monkeypatch.setattr(archives, "LARGEST_FILE", 1 << 20)
    monkeypatch.setattr(archives, "LARGEST", 1000)
    with pytest.raises(DatabaseError, match="too large"):
        read_archive(good)
    monkeypatch.setattr(archives, "MOST_FILES", 4)
    with pytest.raises(DatabaseError, match="5 files"):
        read_archive(good)


def with_manifest(**fields):
    def change(files):
        page = json.loads(files[0][1]) | fields
        page = {name: value for name, value in page.items() if value is not ...}
        return [(files[0][0], json.dumps(page).encode()), *files[1:]]

    return change


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda files: files[1:], "holds no manifest.json"),
        (with_manifest(format=2), "format 2 is newer than 1"),
        (with_manifest(format=...), "isn't one of format 1"),
        (with_manifest(extra=1), "isn't one of format 1"),
        (with_manifest(target="a b c"), "unknown arch"),
        (with_manifest(missing=[{"kernel": "--into", "bucket": ONE, "why": ""}]), "'--into'"),
        (with_manifest(missing=[{"kernel": KERNEL, "bucket": "x", "why": ""}]), "bucket 'x'"),
        (with_manifest(origin={"by": "two\nlines"}), "not printable"),
        (with_manifest(tune={"kernels": ["-x"], "dims": {}}), "'-x'"),
        (with_manifest(tune={"kernels": [], "dims": {"--into": [1]}}), "'--into'"),
        (with_manifest(tune={"kernels": [], "dims": {"n": ["a b"]}}), "n"),
        (with_manifest(tune=[]), "tune is not an object"),
        (lambda files: [(files[0][0], b"[1"), *files[1:]], "manifest.json"),
        (lambda files: [*files[:-1], ("modules/ops.py", b"\xff")], "not text in UTF-8"),
        (lambda files: [*files, ("tuned/sm_90/a.b.jsonl", b"")], "this arch is 'sm90'"),
        (
            lambda files: [(n, c.replace(b"25.6", b"25.7")) for n, c in files],
            r"tuned|sm100/mykern\.norm\.jsonl:1: checksum",
        ),
    ],
)
def test_what_is_damaged_or_newer_is_an_error(good, tmp_path, change, says):
    bad = rewritten(good, tmp_path / "bad.zip", change)
    with pytest.raises(DatabaseError, match=says):
        read_archive(bad)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.data())
def test_damaged_bytes_raise_one_kind_of_error(good, tmp_path, data):
    content = bytearray(good.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    bad = tmp_path / "bad.zip"
    bad.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    try:
        found = read_archive(bad)
    except DatabaseError:
        return
    assert found.modules in (MODULES, {})


def test_what_is_missing(contents):
    def missing(target=None, **where):
        found = find_missing(contents, None if target is None else parse_target(target), where)
        return [(m.bucket, m.why) for m in found]

    everything = len(contents.declarations[KERNEL].buckets)
    assert len(missing()) == everything - 2
    assert len(missing("sm90")) == len(missing("sm90/NVIDIA H200")) == everything - 1
    assert len(missing("sm80")) == len(missing("sm90/NVIDIA H100 PCIe")) == everything
    assert missing("sm90", n=(2048,), dtype=("bfloat16",)) == [
        ("m=17..256|n=2048|dtype=bfloat16", "missing"),
        ("m=257..4096|n=2048|dtype=bfloat16", "missing"),
    ]
    assert missing("sm90", n=(2048,), m=(1, 300), dtype=("float16",)) == [
        ("m=1..16|n=2048|dtype=float16", "missing"),
        ("m=257..4096|n=2048|dtype=float16", "missing"),
    ]


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"source": "sha256:01d"}, "source changed"),
        ({"settings": {"static_shapes": False}}, "settings changed"),
        ({"status": "transferred"}, "transferred, not measured"),
        ({}, None),
    ],
)
def test_what_is_held_and_does_not_hold_is_missing(
    tmp_path, write_database, make_entry, fields, why
):
    path = write_database(tmp_path / "x", {KERNEL: {ONE: make_entry(1, **fields)}})
    found = {m.bucket: m.why for m in find_missing(read_folder(path), None, {})}
    assert found.get(ONE) == why
