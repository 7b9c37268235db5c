from __future__ import annotations

import dataclasses
import itertools
import tempfile
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from lfbo_aot.database.combine import combine
from lfbo_aot.database.contents import Contents
from lfbo_aot.database.contents import Place
from lfbo_aot.database.contents import folder_files
from lfbo_aot.database.contents import read_files
from lfbo_aot.database.contents import read_folder
from lfbo_aot.database.database import Database
from lfbo_aot.database.declaration import Declaration
from lfbo_aot.database.declaration import Enumeration
from lfbo_aot.database.entry import Entry
from lfbo_aot.database.merge import merge
from lfbo_aot.database.rules import choose
from lfbo_aot.database.verify import verify
from lfbo_aot.errors import DatabaseError
from lfbo_aot.registry.buckets import Bucket
from lfbo_aot.registry.devices import DeviceId
from lfbo_aot.registry.dims import Exact
from lfbo_aot.registry.dims import Range

H200 = DeviceId("sm90", "NVIDIA H200")
PCIE = DeviceId("sm90", "NVIDIA H100 PCIe")
B200 = DeviceId("sm100", "NVIDIA B200")
KERNEL = "mykern.scale"
ONE, TWO = "m=1..4", "m=5..16"
SETTINGS = {"static_shapes": True, "fast_math": False}
DECLARED = Declaration(KERNEL, {"m": Range(1, 4096, factor=4)}, (), SETTINGS, "sha256:50ce")


@pytest.fixture
def entry(make_entry):
    return make_entry


def database(path, held, declared=DECLARED):
    """A database of `{(device, bucket key) or bucket key: entry}`."""
    entries = {}
    for key, found in held.items():
        device, bucket = (H200, key) if isinstance(key, str) else key
        entries[device, Bucket.parse(bucket)] = found
    merge(path, {declared.kernel_id: entries}, [declared])
    return path


def run(into, *sources, rule="error"):
    return combine(into, [read_folder(source) for source in sources], rule)


def held(path, key=ONE, device=H200):
    return Database(path).shard(KERNEL, device.arch).entry(f"{device.name}|{key}")


def told(outcome):
    return [
        (c.what, c.bucket.key if c.bucket else "declaration", c.reason) for c in outcome.changes
    ]


def test_other_databases_are_added(tmp_path, entry):
    a = database(tmp_path / "a", {ONE: entry(1)})
    b = database(tmp_path / "b", {TWO: entry(2), (PCIE, ONE): entry(4), (B200, ONE): entry(8)})
    outcome = run(tmp_path / "new" / "tuned", a, b)
    assert [(c.what, c.device, c.source) for c in outcome.changes] == [
        ("added", None, str(a)),
        ("added", B200, str(b)),
        ("added", PCIE, str(b)),
        ("added", H200, str(a)),
        ("added", H200, str(b)),
    ]
    assert outcome.complete
    assert verify(tmp_path / "new" / "tuned") == ()
    again = run(tmp_path / "new" / "tuned", b, a)
    assert {c.what for c in again.changes} == {"equal"}


@pytest.mark.parametrize(
    "case",
    [
        ("best", {"latency_us": 9.0}, {"latency_us": 8.0}, "replaced", "8.00 us, not 9.00 us"),
        ("best", {"latency_us": 7.0}, {"latency_us": 8.0}, "kept", "7.00 us, not 8.00 us"),
        (
            "best",
            {"latency_us": 9.0, "measured": "2026-12-02"},
            {"latency_us": 8.0, "measured": "2026-12-01"},
            "replaced",
            "8.00 us, not 9.00 us",
        ),
        (
            "best",
            {"latency_us": 7.0, "measured": "2026-12-01"},
            {"latency_us": 8.0, "measured": "2026-12-02", "policy": {"l2": "warm"}},
            "replaced",
            "of 2026-12-02, not 2026-12-01; latencies of another policy aren't compared",
        ),
        (
            "best",
            {"latency_us": 7.0, "source": "sha256:01d", "measured": "2026-12-03"},
            {"latency_us": 8.0, "measured": "2026-12-02"},
            "replaced",
            "of the declared source and settings, the other isn't",
        ),
        (
            "best",
            {"latency_us": 8.0, "status": "measured"},
            {"latency_us": 7.0, "status": "transferred"},
            "kept",
            "measured, not transferred",
        ),
        (
            "newest",
            {"latency_us": 7.0, "measured": "2026-12-01"},
            {"latency_us": 8.0, "measured": "2026-12-02"},
            "replaced",
            "of 2026-12-02, not 2026-12-01",
        ),
        (
            "newest",
            {"latency_us": 9.0},
            {"latency_us": 8.0},
            "replaced",
            "of one day; 8.00 us, not 9.00 us",
        ),
        (
            "newest",
            {"status": "measured", "measured": "2026-12-01"},
            {"status": "imported", "measured": "2026-12-02"},
            "kept",
            "measured, not imported",
        ),
    ],
)
def test_rules(tmp_path, entry, case):
    rule, mine, theirs, what, reason = case
    into = database(tmp_path / "into", {ONE: entry(1, **mine), TWO: entry(1)})
    other = database(tmp_path / "other", {ONE: entry(2, **theirs)})
    outcome = run(into, other, rule=rule)
    assert told(outcome) == [(what, ONE, reason)]
    assert held(into) == entry(2, **theirs) if what == "replaced" else entry(1, **mine)
    assert held(into, TWO) == entry(1)


def test_conflicts_are_listed_and_nothing_is_written(tmp_path, entry):
    into = database(tmp_path / "into", {ONE: entry(1), TWO: entry(1)})
    a = database(tmp_path / "a", {ONE: entry(2, latency_us=20.0), TWO: entry(1)})
    b = database(tmp_path / "b", {(B200, ONE): entry(4)})
    before = folder_files(into)
    outcome = run(into, a, b)
    assert [(c.what, c.device, c.reason) for c in outcome.changes] == [
        ("added", B200, ""),
        (
            "conflict",
            H200,
            f"held otherwise in {a}; best would keep that of {a}: 20.00 us, not 25.60 us",
        ),
        ("equal", H200, ""),
    ]
    assert (outcome.written, outcome.complete) == (False, False)
    assert folder_files(into) == before
    assert not run(tmp_path / "none", into, a).written
    assert not (tmp_path / "none").exists()


def test_the_declaration_of_the_newest_entries_is_kept(tmp_path, entry):
    old = dataclasses.replace(DECLARED, source="sha256:01d")
    into = database(tmp_path / "into", {ONE: entry(1, source="sha256:01d")}, old)
    new = database(tmp_path / "new", {ONE: entry(2, measured="2026-12-02")})
    fitting = "of the declared source and settings, the other isn't"
    assert told(run(into, new)) == [
        ("conflict", "declaration", f"declared otherwise in {into}: source differs"),
        ("conflict", ONE, f"held otherwise in {new}; best would keep that of {new}: {fitting}"),
    ]
    outcome = run(into, new, rule="best")
    assert told(outcome) == [
        ("replaced", "declaration", "its entries are newer; source differs"),
        ("replaced", ONE, "of the declared source and settings, the other isn't"),
    ]
    assert read_folder(into).declarations == {KERNEL: DECLARED}
    assert told(run(new, into, rule="newest")) == [("equal", ONE, "")]


def test_of_equally_new_declarations_the_one_that_is_there_stays(tmp_path, entry):
    wider = dataclasses.replace(DECLARED, dims={"m": Range(1, 8192, factor=4)})
    for mine, theirs in ((DECLARED, wider), (wider, DECLARED)):
        root = tmp_path / str(mine is wider)
        into = database(root / "into", {ONE: entry(1)}, mine)
        other = database(root / "other", {TWO: entry(1)}, theirs)
        assert told(run(into, other, rule="best")) == [
            ("kept", "declaration", "dims differ"),
            ("added", TWO, ""),
        ]
        assert read_folder(into).declarations == {KERNEL: mine}


@pytest.mark.parametrize("rule", ["error", "best", "newest"])
def test_how_a_declaration_is_known_to_hold_is_no_difference_and_comes_along(tmp_path, entry, rule):
    known = dataclasses.replace(DECLARED, enumeration=Enumeration("sha256:" + 64 * "0", ()))
    other = dataclasses.replace(DECLARED, enumeration=Enumeration("sha256:" + 64 * "1", ()))
    into = database(tmp_path / "into", {ONE: entry()})
    first = database(tmp_path / "first", {ONE: entry()}, known)
    second = database(tmp_path / "second", {TWO: entry()}, other)
    assert told(run(into, first, rule=rule)) == [("equal", ONE, "")]
    assert Database(into).declaration(KERNEL) == known
    assert told(run(into, second, rule=rule)) == [("added", TWO, "")]
    assert Database(into).declaration(KERNEL) == known, "the one that is there stays"
    assert told(run(tmp_path / "new", first, second, rule=rule))[0] == ("added", "declaration", "")
    assert Database(tmp_path / "new").declaration(KERNEL) in (known, other)


def test_a_place_that_cannot_be_written_is_named(tmp_path, entry):
    other = database(tmp_path / "other", {ONE: entry(1)})
    (tmp_path / "file").write_text("")
    with pytest.raises(DatabaseError, match="can't be written: "):
        run(tmp_path / "file" / "tuned", other)


def test_entries_of_other_dims_are_refused_and_none_is_lost(tmp_path, entry):
    other = Declaration(
        KERNEL, {"m": Range(1, 8), "dtype": Exact("float32")}, (), SETTINGS, "sha256:50ce"
    )
    into = database(tmp_path / "into", {ONE: entry(1)})
    wide = database(
        tmp_path / "wide", {"m=1..8|dtype=float32": entry(2, measured="2026-12-03")}, other
    )
    before = folder_files(into)
    outcome = run(into, wide, rule="newest")
    assert told(outcome) == [
        ("kept", "declaration", "dims differ"),
        (
            "refused",
            "m=1..8|dtype=float32",
            "its dims are m, dtype; the declaration that is kept has m",
        ),
    ]
    assert (outcome.written, outcome.complete) == (True, False)
    assert folder_files(into) == before


def test_a_newer_schema_is_refused_and_never_written_over(tmp_path, entry):
    text = b'{"schema": 9, "key": "NVIDIA H200|m=1..4", "anything": true}'
    newer = b'["NVIDIA H200|m=1..4", "%08x", %s]\n' % (zlib.crc32(text), text)
    into, other = (database(tmp_path / name, {TWO: entry(1)}) for name in ("into", "other"))
    for path in (into, other):
        file = path / "sm90" / f"{KERNEL}.jsonl"
        file.write_bytes(newer + file.read_bytes())
    says = "schema 9 is newer than 1, the newest that this version reads; upgrade lfbo-aot"
    plain = database(tmp_path / "plain", {ONE: entry(1)})
    assert told(run(tmp_path / "new", other)) == [
        ("added", "declaration", ""),
        ("refused", ONE, says),
        ("added", TWO, ""),
    ]
    outcome = run(into, plain, rule="newest")
    assert told(outcome) == [("refused", ONE, f"{into} holds one of a newer version: {says}")]
    assert (into / "sm90" / f"{KERNEL}.jsonl").read_bytes().startswith(newer)


def test_a_shard_that_nobody_declares_is_refused(tmp_path, entry):
    other = database(tmp_path / "other", {ONE: entry(1)})
    (other / "kernels" / f"{KERNEL}.json").unlink()
    outcome = run(tmp_path / "new", other)
    assert told(outcome) == [("refused", ONE, f"no database declares the kernel {KERNEL!r}")]
    assert told(run(database(tmp_path / "into", {}), other)) == [("added", ONE, "")]


@pytest.mark.parametrize("whose", ["source", "into"])
def test_damage_stops_a_merge(tmp_path, entry, whose):
    into = database(tmp_path / "into", {TWO: entry(1)})
    other = database(tmp_path / "other", {ONE: entry(1)})
    file = {"source": other, "into": into}[whose] / "sm90" / f"{KERNEL}.jsonl"
    file.write_bytes(file.read_bytes().replace(b"25.6", b"25.7"))
    before = folder_files(into)
    with pytest.raises(DatabaseError, match=r"mykern\.scale\.jsonl:1: checksum"):
        run(into, other, rule="best")
    assert folder_files(into) == before


def test_folders_that_are_no_database(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(DatabaseError, match="no database: a database is a folder"):
        read_folder(tmp_path / "empty")
    with pytest.raises(DatabaseError, match="no such folder"):
        read_folder(tmp_path / "none")
    with pytest.raises(DatabaseError, match="the folder of this arch is 'sm90'"):
        read_files("x", {"sm_90a/a.b.jsonl": b""})


BASE = Entry(
    config={"num_warps": 1},
    latency_us=1.0,
    default_us=2.0,
    source="sha256:50ce",
    space="sha256:1",
    measured="2026-12-01",
    settings=SETTINGS,
)
COMPARABLE = st.builds(
    lambda warps, latency, day, status: dataclasses.replace(
        BASE, config={"num_warps": warps}, latency_us=latency, measured=day, status=status
    ),
    st.sampled_from([1, 2]),
    st.sampled_from([1.0, 2.0, 3.0]),
    st.sampled_from(["2026-12-01", "2026-12-02", "2026-12-02T10:00Z"]),
    st.sampled_from(["measured", "imported", "transferred"]),
)
ANY = st.builds(
    lambda entry, source, policy: dataclasses.replace(entry, source=source, policy={"l2": policy}),
    COMPARABLE,
    st.sampled_from(["sha256:50ce", "sha256:01d"]),
    st.sampled_from(["cold", "warm"]),
)


@given(st.lists(ANY, min_size=1, max_size=5), st.sampled_from(["best", "newest"]))
def test_the_order_does_not_matter_and_once_more_changes_nothing(entries, rule):
    kept = choose(rule, entries, DECLARED)
    assert kept in entries
    for order in itertools.islice(itertools.permutations(entries), 24):
        assert choose(rule, order, DECLARED) == kept
    assert choose(rule, [kept, *entries], DECLARED) == kept
    assert choose(rule, [kept, kept], DECLARED) == kept


@given(st.lists(ANY, min_size=3, max_size=5), st.integers(1, 2))
def test_newest_in_steps_is_newest_at_once(entries, cut):
    first = choose("newest", entries[:cut], DECLARED)
    assert choose("newest", [first, *entries[cut:]], DECLARED) == choose(
        "newest", entries, DECLARED
    )


@given(st.lists(COMPARABLE, min_size=3, max_size=5), st.integers(1, 2))
def test_best_in_steps_is_best_at_once_where_all_can_be_compared(entries, cut):
    first = choose("best", entries[:cut], DECLARED)
    together = choose("best", entries, DECLARED)
    assert choose("best", [first, *entries[cut:]], DECLARED) == together
    rank = [e for e in entries if e.status == together.status]
    assert together.latency_us == min(e.latency_us for e in rank)


PLACES = st.sampled_from([(H200, ONE), (H200, TWO), (B200, ONE)])
DATABASES = st.lists(
    st.dictionaries(PLACES, COMPARABLE, min_size=1, max_size=3), min_size=2, max_size=3
)


def contents(number, entries):
    places = {Place(KERNEL, device, Bucket.parse(key)): e for (device, key), e in entries.items()}
    return Contents(f"source {number}", {KERNEL: DECLARED}, places)


@settings(max_examples=25, deadline=None)
@given(DATABASES, st.sampled_from(["best", "newest"]))
def test_databases_in_any_order_or_in_steps_give_the_same_bytes(databases, rule):
    sources = [contents(i, entries) for i, entries in enumerate(databases)]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        combine(root / "a", sources, rule)
        combine(root / "b", sources[::-1], rule)
        for source in sources:
            combine(root / "c", [source], rule)
        files = [folder_files(root / name) for name in "abc"]
        assert files[0] == files[1] == files[2]
        again = combine(root / "a", sources, rule)
        assert {change.what for change in again.changes} <= {"kept", "equal"}
        assert folder_files(root / "a") == files[0]


@pytest.mark.parametrize("rule", ["newest", "best"])
def test_a_pin_is_not_lost_in_a_merge(tmp_path, entry, rule):
    pinned = entry(1, pinned=True, measured="2025-01-01", latency_us=90.0)
    mine = database(tmp_path / "mine", {ONE: pinned})
    theirs = database(tmp_path / "theirs", {ONE: entry(2, measured="2026-01-01")})
    for into, source in ((mine, theirs), (theirs, mine)):
        run(into, source, rule=rule)
        assert Database(into).shard(KERNEL, "sm90").entry(f"{H200.name}|{ONE}") == pinned
