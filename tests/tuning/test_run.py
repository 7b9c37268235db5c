from __future__ import annotations

import json
import resource
import zlib
from dataclasses import replace

import pytest

from lfbo_aot.database.database import Database
from lfbo_aot.database.journal import Journal
from lfbo_aot.database.verify import verify
from lfbo_aot.errors import DatabaseError
from lfbo_aot.errors import JournalBusyError
from lfbo_aot.errors import TuningError
from lfbo_aot.registry.devices import DeviceId
from lfbo_aot.tuning import run as run_module
from lfbo_aot.tuning.devices.device import Outcome
from lfbo_aot.tuning.devices.replay import ReplayDevice
from lfbo_aot.tuning.folders import journal_path
from lfbo_aot.tuning.plan import make_plan
from lfbo_aot.tuning.run import Options
from lfbo_aot.tuning.run import Silence
from lfbo_aot.tuning.run import tune

H200 = DeviceId("sm90", "NVIDIA H200")
BEST = {"block": 64, "warps": 8, "stages": 3, "order": "b"}


class Watcher(Silence):
    def __init__(self):
        self.begun, self.stages, self.ended = [], [], []

    def begins(self, item, number, total):
        self.begun.append((item.bucket.key, number, total))

    def steps(self, step):
        self.stages.append(step.stage)

    def ends(self, result):
        self.ended.append((result.item.bucket.key, result.status))


@pytest.fixture
def folders(tmp_path):
    return {"into": tmp_path / "tuned", "state": tmp_path / "state"}


@pytest.fixture
def tune_all(folders, recording, spec):
    """Plan and tune; gives the summary."""

    def run(*specs, device=None, recorded=recording, watcher=None, where=None, again=False, **opts):
        device = device or ReplayDevice(recorded, device_id=H200)
        plan = make_plan(
            specs or [spec], device.id, Database(folders["into"]), where=where, again=again
        )
        options = Options(**{"trials": 20, "rounds": 3, "algorithm": "random", **opts})
        return tune(plan, device, **folders, options=options, watcher=watcher)

    return run


def entries(folders, kernel="pkg.norm"):
    shard = Database(folders["into"]).shard(kernel, "sm90")
    return {} if shard is None else {key: shard.entry(key) for key in shard.keys}


def records(folders, kernel="pkg.norm"):
    return list(Journal(journal_path(folders["state"], H200, kernel)).records())


def statuses(summary):
    return [r.status for r in summary.results]


def test_every_bucket_is_tuned_once(tune_all, folders, spec, recording):
    watcher = Watcher()
    summary = tune_all(watcher=watcher, trials=None)
    first, second, third, fourth = (bucket.key for bucket in spec.buckets)
    keys = [first, third, second, fourth]  # the same dtype is nearer than the same size
    assert statuses(summary) == ["tuned"] * 4
    assert summary.complete
    assert watcher.begun == [(key, i + 1, 4) for i, key in enumerate(keys)]
    assert watcher.ended == [(key, "tuned") for key in keys]
    assert watcher.stages.count("final") == 4
    assert summary.seconds == sum(r.seconds for r in summary.results) > 0
    assert verify(folders["into"]) == ()
    held = entries(folders)
    assert sorted(held) == sorted(f"NVIDIA H200|{key}" for key in keys)
    entry = held[f"NVIDIA H200|{keys[0]}"]
    assert dict(entry.config) == BEST
    assert (entry.latency_us, entry.default_us, entry.default) == (10.0, 30.0417, False)
    assert entry.resources["shared"] == 64 * 64
    assert entry.space == recording.space.digest
    assert (entry.source, dict(entry.settings)) == (spec.source, dict(spec.settings))
    assert (dict(entry.policy), dict(entry.versions)) == (recording.policy, recording.versions)
    assert [dict(item) for item in entry.layout] == recording.layout
    assert entry.search["trials"] == 360
    assert entry.search["ended"] == "converged"
    assert entry.note is None
    # A second run has nothing to do.
    again = tune_all(watcher=watcher)
    assert statuses(again) == ["held"] * 4
    assert again.results[0].entry.latency_us == 10.0
    assert len(watcher.begun) == 4


def test_winners_of_neighbours_are_tried(tune_all, folders, spec):
    tune_all(trials=None, where={"m": [1], "dtype": ["float32"]})
    tune_all(trials=5, where={"m": [4096], "dtype": ["float32"]})
    opened = [r for r in records(folders) if r["kind"] == "open"]
    assert [r["seeds"] for r in opened] == [[], [BEST]]
    assert entries(folders)["NVIDIA H200|m=65..4096|dtype=float32"].latency_us == 10.0


def test_no_budget(tune_all, folders):
    watcher = Watcher()
    summary = tune_all(budget_s=0.0, watcher=watcher)
    assert statuses(summary) == ["unfinished"] * 4
    assert {r.reason for r in summary.results} == {"the budget is spent"}
    assert not summary.complete
    assert watcher.begun == []
    assert entries(folders) == {}
    assert verify(folders["into"]) == ()


def test_a_budget_is_shared_and_what_it_left_is_done_next_time(tune_all, folders):
    summary = tune_all(budget_s=20.0, trials=None)
    assert statuses(summary) == ["tuned"] * 4
    assert {r.entry.search["ended"] for r in summary.results} == {"time"}
    assert max(r.seconds for r in summary.results) < 11.0


def test_a_budget_that_reaches_one_bucket_only(tune_all, folders):
    first = tune_all(budget_s=4.0, trials=None)
    assert "unfinished" in statuses(first)
    assert not first.complete
    # Trials that were made are not made again.
    count = sum(r["kind"] == "trial" for r in records(folders))
    assert count > 0
    second = tune_all(budget_s=400.0, trials=None)
    assert second.complete
    trials = [r for r in records(folders) if r["kind"] == "trial"]
    assert len({(r["bucket"], tuple(r["point"])) for r in trials}) == len(trials) > count


def test_seconds_for_one_bucket(tune_all):
    summary = tune_all(per_bucket_s=5.0, trials=None)
    assert all(4.0 < r.seconds < 10.0 for r in summary.results)
    assert statuses(summary) == ["tuned"] * 4


class Broken(ReplayDevice):
    """Can't open one of the buckets."""

    def open(self, spec, shape):
        if shape["m"] == 64:
            msg = "inputs= of kernel 'pkg.norm' failed: RuntimeError: boom"
            raise TuningError(msg)
        return super().open(spec, shape)


def test_a_bucket_that_can_not_be_opened_fails_alone(tune_all, recording, folders):
    watcher = Watcher()
    summary = tune_all(device=Broken(recording, device_id=H200), watcher=watcher)
    assert statuses(summary) == ["failed", "tuned", "failed", "tuned"]
    assert summary.results[0].reason.endswith("failed: RuntimeError: boom")
    assert [status for _, status in watcher.ended] == statuses(summary)
    assert len(entries(folders)) == 2
    # It is tried again the next time.
    assert statuses(tune_all()) == ["held", "held", "tuned", "tuned"]


def test_a_full_disk_ends_the_run_and_is_no_candidates_fault(
    tune_all, make_recording, space, bowl, folders
):
    """A compiler that can't write fails whatever it is given: none of that is to be remembered."""
    outcome_of, config_of = bowl

    def outcome(point):
        if config_of(point) == config_of(space.default):
            return outcome_of(point)
        error = "OSError: [Errno 28] No space left on device: '/tmp/x'"
        return Outcome(0, "compile_error", config_of(point), error=error)

    with pytest.raises(TuningError, match=r"^can't go on: /.*: No space left on device"):
        tune_all(recorded=make_recording(outcome=outcome))
    assert [r["status"] for r in records(folders) if r["kind"] == "trial"] == ["ok"]
    assert statuses(tune_all()) == ["tuned"] * 4


def test_every_candidate_fails(tune_all, make_recording, space, bowl, folders):
    """The default is kept, with the reason."""
    outcome_of, config_of = bowl

    def outcome(point):
        if config_of(point) == config_of(space.default):
            return outcome_of(point)
        return Outcome(0, "compile_error", config_of(point), error="no")

    summary = tune_all(recorded=make_recording(outcome=outcome), where={"m": [1]})
    assert statuses(summary) == ["tuned", "tuned"]
    entry = summary.results[0].entry
    assert entry.default
    assert entry.latency_us == entry.default_us == 30.0417
    assert entry.note in {
        "no candidate ran: 19 compile_error",
        "no candidate ran: 18 compile_error",
    }


def test_nothing_runs(tune_all, make_recording, bowl, folders):
    """No entry, and the reason in the result and in the journal."""
    _, config_of = bowl
    broken = make_recording(outcome=lambda p: Outcome(0, "crash", config_of(p), error="dead"))
    summary = tune_all(recorded=broken, where={"m": [1], "dtype": ["float32"]})
    assert [(r.status, r.entry, r.reason) for r in summary.results] == [
        ("failed", None, "crash: dead")
    ]
    final = records(folders)[-1]
    assert (final["kind"], final["entry"], final["reason"]) == ("final", None, "crash: dead")
    assert entries(folders) == {}


def test_a_note_is_about_candidates_of_earlier_sessions_too(tune_all, folders):
    """Failures that an earlier search met don't outnumber what ran in this one."""
    where = {"m": [1], "dtype": ["float32"]}
    tune_all(where=where, trials=60)
    summary = tune_all(where=where, trials=2, again=True, seed=4)
    assert statuses(summary) == ["tuned"]
    assert summary.results[0].entry.note is None
    assert summary.results[0].entry.search["trials"] == 2


def test_the_entry_is_in_the_database_before_the_session_ends(tune_all, folders, monkeypatch):
    where = {"m": [1], "dtype": ["float32"]}
    merges = []
    real = run_module.merge

    def dies(path, found, declarations):
        if found:
            merges.append(found)
            raise KeyboardInterrupt
        real(path, found, declarations)

    monkeypatch.setattr(run_module, "merge", dies)
    with pytest.raises(KeyboardInterrupt):
        tune_all(where=where)
    assert len(merges) == 1
    assert records(folders)[-1]["kind"] in {"trial", "ask"}
    monkeypatch.setattr(run_module, "merge", real)
    before = records(folders)
    summary = tune_all(where=where)
    assert statuses(summary) == ["tuned"]
    after = records(folders)
    assert [r["kind"] for r in after[len(before) :] if r["kind"] != "ask"] == ["final"]
    assert after[-1]["entry"] == summary.results[0].entry.to_json()
    assert list(entries(folders).values()) == [summary.results[0].entry]


def test_two_runs_of_one_kernel(tune_all, folders, recording, make_spec_of):
    """The second one is refused at once; another kernel, or another device, is not."""
    other = make_spec_of("pkg.other")

    class Nested(ReplayDevice):
        def open(self, spec, shape):
            with pytest.raises(JournalBusyError) as caught:
                tune_all(device=ReplayDevice(recording, device_id=H200))
            assert "another run is tuning pkg.norm for this device (its lock: " in str(caught.value)
            assert str(folders["state"]) in str(caught.value)
            tune_all(other, device=ReplayDevice(recording, device_id=H200))
            tune_all(device=ReplayDevice(recording, device_id=DeviceId("sm90", "NVIDIA H100 NVL")))
            return super().open(spec, shape)

    where = {"m": [1], "dtype": ["float32"]}
    assert statuses(tune_all(device=Nested(recording, device_id=H200), where=where)) == ["tuned"]
    assert len(entries(folders, "pkg.other")) == 4
    # The lock is free again.
    assert "unfinished" not in statuses(tune_all())


def test_damage_is_found_before_anything_is_tuned(tune_all, folders):
    tune_all(where={"m": [1]})
    shard = folders["into"] / "sm90" / "pkg.norm.jsonl"
    whole = shard.read_bytes()
    for damaged in (whole.replace(b'"near_tie"', b'"near_tia"', 1), whole[:-40]):
        shard.write_bytes(damaged)
        watcher = Watcher()
        with pytest.raises(DatabaseError, match=r"pkg\.norm\.jsonl:\d: "):
            tune_all(watcher=watcher)
        assert watcher.begun == []
        assert shard.read_bytes() == damaged


def test_entries_of_a_newer_version_are_left_alone_and_not_replaced(tune_all, folders):
    where = {"m": [1], "dtype": ["float32"]}
    tune_all(where=where)
    shard = folders["into"] / "sm90" / "pkg.norm.jsonl"
    key, _, entry = json.loads(shard.read_text())
    newer = json.dumps({**entry, "schema": 99, "new": 1}, separators=(", ", ": "))
    crc = f"{zlib.crc32(newer.encode()):08x}"
    shard.write_text(f'["{key}", "{crc}", {newer}]\n')
    watcher = Watcher()
    with pytest.raises(DatabaseError, match="schema 99 is newer"):
        tune_all(where=where, watcher=watcher)
    assert watcher.begun == []
    assert statuses(tune_all(where={"m": [4096], "dtype": ["float32"]})) == ["tuned"]
    assert newer in shard.read_text()


@pytest.mark.parametrize("which", ["into", "state"])
def test_a_folder_that_can_not_be_made(tune_all, folders, tmp_path, which):
    (tmp_path / "file").write_text("not a folder")
    folders[which] = tmp_path / "file" / "below"
    with pytest.raises(TuningError) as caught:
        tune_all()
    assert str(caught.value).startswith(f"can't go on: {tmp_path / 'file'}")


def test_a_full_disk(tune_all, folders):
    """The journal keeps what was written, and the next run goes on."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (6000, hard))
    try:
        with pytest.raises((TuningError, DatabaseError)) as caught:
            tune_all()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "\n" not in str(caught.value)
    assert str(journal_path(folders["state"], H200, "pkg.norm")) in str(caught.value)
    kept = records(folders)
    assert 2 < len(kept) < 60
    assert statuses(tune_all()) == ["tuned"] * 4
    assert records(folders)[: len(kept)] == kept
    assert verify(folders["into"]) == ()


def test_nothing_to_do_touches_nothing(folders, recording, spec):
    device = ReplayDevice(recording, device_id=H200)
    assert tune([], device, **folders).results == []
    assert not folders["into"].exists()
    assert not folders["state"].exists()


def test_a_plan_of_held_buckets_needs_no_device(folders, recording, spec, make_entry):
    plan = make_plan([spec], H200, Database(folders["into"]))
    held = [replace(item, held=make_entry(), why="") for item in plan]
    summary = tune(held, ReplayDevice(recording, device_id=H200), **folders)
    assert statuses(summary) == ["held"] * 4
    assert summary.complete


DAMAGE = {
    "garbage": b"gibberish\n",
    "binary": b"\xff\xfe\x00\n",
    "an array": b"[1]\n",
    "no session": b'{"kind": "trial"}\n',
    "another kind": b'{"session": 1, "kernel": "k", "bucket": "b"}\n',
    "no proposals": b'{"kind": "ask", "session": 1, "bucket": "b", "n": 1, "points": [1]}\n',
    "no latency": b'{"kind": "trial", "session": 1, "bucket": "b", "ticket": 1, "point": [], '
    b'"status": "ok"}\n',
}


@pytest.mark.parametrize("line", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_journal_stops_its_own_kernel_only(  # noqa: PLR0917
    tune_all, folders, spec, changed, caplog, line
):
    other = changed(spec, kernel_id="pkg.other")
    where = {"m": [1], "dtype": ["float32"]}
    tune_all(where=where)
    path = journal_path(folders["state"], H200, "pkg.norm")
    whole = path.read_bytes().splitlines(keepends=True)
    damaged = b"".join([*whole[:3], line, *whole[3:]])
    path.write_bytes(damaged)
    summary = tune_all(spec, other, where=where, again=True)
    assert statuses(summary) == ["failed", "tuned"]
    reason = summary.results[0].reason
    assert reason.startswith(f"{path}:4: ")
    assert reason.endswith(
        "take that line out, or start without it by --fresh, which keeps the file"
    )
    assert path.read_bytes() == damaged
    for n in (1, 2):
        path.write_bytes(damaged)
        summary = tune_all(spec, other, where=where, again=True, fresh=True)
        assert statuses(summary) == ["tuned", "tuned"]
        assert path.with_name(f"{path.name}.damaged-{n}").read_bytes() == damaged
        assert f"the damaged journal of pkg.norm is now {path}.damaged-{n}" in caplog.text
        assert {r["session"] for r in records(folders)} == {1}
