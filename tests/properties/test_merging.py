"""Merging: what comes out depends on what the databases hold, and on nothing else."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

from hypothesis import HealthCheck
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from lfbo_aot import Range
from lfbo_aot.database.combine import combine
from lfbo_aot.database.contents import folder_files
from lfbo_aot.database.contents import read_folder
from lfbo_aot.database.declaration import Declaration
from lfbo_aot.database.merge import merge
from lfbo_aot.database.verify import verify
from lfbo_aot.registry.buckets import Bucket
from lfbo_aot.registry.devices import DeviceId

PROPERTY = settings(
    max_examples=10,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
KERNELS = ("mykern.norm", "mykern.scale")
DEVICES = (
    DeviceId("sm90", "NVIDIA H200"),
    DeviceId("sm90", "NVIDIA H100 PCIe"),
    DeviceId("gfx942", "AMD Instinct MI300X"),
)
KEYS = ("m=1..8", "m=9..64", "m=1..64")
RULES = st.sampled_from(["best", "newest"])
FIELDS = st.fixed_dictionaries(
    {
        "warps": st.integers(1, 3),
        "latency_us": st.sampled_from([10.0, 11.0, 12.0]),
        "measured": st.sampled_from(["2026-11-01", "2026-11-02", "2026-11-02T10:00:00Z"]),
        "status": st.sampled_from(["measured", "measured", "imported", "transferred"]),
        "source": st.sampled_from(["sha256:50ce", "sha256:4e3"]),
        "pinned": st.sampled_from([False, False, True]),
    }
)
# One kernel's entries by device and key, and of which source and range it is declared.
HELD = st.dictionaries(
    st.tuples(st.sampled_from(DEVICES), st.sampled_from(KEYS)), FIELDS, max_size=4
)
DECLARED = st.tuples(st.sampled_from(["sha256:50ce", "sha256:4e3"]), st.sampled_from([64, 128]))
DATABASE = st.dictionaries(st.sampled_from(KERNELS), st.tuples(DECLARED, HELD), min_size=1)


def declaration(kernel_id, source, hi):
    return Declaration(kernel_id, {"m": Range(1, hi)}, (f"m=1..{hi}",), {"fast": True}, source)


def write(path, database, make_entry):
    entries = {
        kernel_id: {
            (device, Bucket.parse(key)): make_entry(**fields)
            for (device, key), fields in held.items()
        }
        for kernel_id, (_, held) in database.items()
    }
    merge(path, entries, [declaration(k, *how) for k, (how, _) in database.items()])
    return path


@PROPERTY
@given(databases=st.lists(DATABASE, min_size=2, max_size=3), base=st.none() | DATABASE, rule=RULES)
def test_the_order_of_the_databases_does_not_matter_and_once_is_enough(
    make_entry, databases, base, rule
):
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        paths = [write(root / f"source {i}", d, make_entry) for i, d in enumerate(databases)]
        sources = [read_folder(path) for path in paths]
        before = [folder_files(path) for path in paths]
        merged, told = [], []
        for number, order in enumerate(itertools.permutations(sources)):
            into = root / f"into {number}"
            if base is not None:
                write(into, base, make_entry)
            outcome = combine(into, order, rule)
            assert outcome.written
            merged.append(folder_files(into))
            told.append([(c.what, c.kernel_id, c.device, c.bucket) for c in outcome.changes])
            assert verify(into) == ()
            again = combine(into, order[::-1], rule)
            assert {change.what for change in again.changes} <= {"kept", "equal"}
            assert folder_files(into) == merged[-1]
        assert all(files == merged[0] for files in merged)
        assert all(changes == told[0] for changes in told)
        assert [folder_files(path) for path in paths] == before  # what is merged is only read


@PROPERTY
@given(databases=st.lists(DATABASE, min_size=1, max_size=3), rule=RULES)
def test_nothing_is_lost_and_nothing_is_made_up(make_entry, databases, rule):
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        paths = [write(root / f"source {i}", d, make_entry) for i, d in enumerate(databases)]
        sources = [read_folder(path) for path in paths]
        combine(root / "into", sources, rule)
        found = read_folder(root / "into")
        claims = {}
        for source in sources:
            for place, entry in source.entries.items():
                claims.setdefault(place, []).append(entry)
        assert found.entries.keys() == claims.keys()
        assert all(found.entries[place] in entries for place, entries in claims.items())
        declared = {k: [s.declarations[k] for s in sources if k in s.declarations] for k in KERNELS}
        assert all(found.declarations[k] in declared[k] for k in found.declarations)
        assert set(found.declarations) == {k for k in KERNELS if declared[k]}


@PROPERTY
@given(database=DATABASE, rule=RULES)
def test_a_database_merged_into_itself_or_an_empty_one_is_itself(make_entry, database, rule):
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        path = write(root / "one", database, make_entry)
        files = folder_files(path)
        combine(path, [read_folder(path)], rule)
        combine(root / "two", [read_folder(path)], rule)
        combine(root / "three", [read_folder(path)], "error")
        assert folder_files(path) == folder_files(root / "two") == files
        assert folder_files(root / "three") == files
