from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest

from lfbo_aot.database.journal import Journal
from lfbo_aot.search import RandomSearch
from lfbo_aot.tuning import bucket as bucket_module
from lfbo_aot.tuning.book import Book
from lfbo_aot.tuning.bucket import BucketSearch
from lfbo_aot.tuning.devices.device import Outcome
from lfbo_aot.tuning.devices.replay import ReplayDevice
from lfbo_aot.tuning.devices.replay import read_journal
from lfbo_aot.tuning.journaling import config_key
from lfbo_aot.tuning.limits import Limits
from lfbo_aot.tuning.task import Manner
from lfbo_aot.tuning.task import Task

BEST = {"block": 64, "warps": 8, "stages": 3, "order": "b"}


@pytest.fixture
def search_of(tmp_path, spec, recording):
    """Search one bucket in the journal `j.jsonl`; gives what was found and its steps."""

    def search(
        *,
        device=None,
        trials=30,
        seconds=None,
        recorded=recording,
        journal="j.jsonl",
        seeds=(),
        spec=spec,
        close=True,
        **manner,
    ):
        device = device or ReplayDevice(recorded)
        steps = []
        task = Task(spec, spec.buckets[0], spec.buckets[0].point, seeds)
        with Journal(tmp_path / journal) as opened:
            limits = Limits(trials=trials, clock=device.clock)
            manner = Manner(**{"rounds": 5, "algorithm": "random", **manner})
            search = BucketSearch(
                task,
                device,
                device.open(spec, task.shape),
                Book(opened),
                manner=manner,
                limits=limits,
                seconds=seconds,
                watch=steps.append,
            )
            found = search.finish(search.search())
            if close:
                search.record_final({"made": True}, "")
        return found, steps

    return search


@pytest.fixture
def journal_of(tmp_path):
    return lambda name="j.jsonl": list(Journal(tmp_path / name).records())


def told(records):
    return [r for r in records if r["kind"] == "trial"]


def ok_configs(records):
    return [config_key(r["config"]) for r in told(records) if r["status"] == "ok"]


def test_a_search_to_its_last_trial(search_of, journal_of):
    found, steps = search_of(algorithm="lfbo", trials=60)
    assert found.search == {
        "algorithm": "lfbo",
        "trials": 60,
        "seconds": found.search["seconds"],
        "seed": 0,
        "ended": "trials",
    }
    assert found.candidate_ran
    assert found.choice.latency_us < 13.0 < found.choice.default_us
    assert found.choice.default_us == pytest.approx(30.0417, abs=1e-3)
    assert found.choice.resources["threads"] == 32 * found.choice.config["warps"]
    records = journal_of()
    assert [r["kind"] for r in records][:2] == ["open", "ask"]
    assert records[-1]["kind"] == "final"
    assert len(told(records)) == 60
    assert {r["session"] for r in records} == {1}
    assert sum(found.failures.values()) + len(ok_configs(records)) == 60 - sum(
        r["status"] == "duplicate" for r in told(records)
    )
    assert [s.trials for s in steps] == [*range(1, 61), 60]
    assert steps[-1].stage == "final"
    assert steps[-1].default_us == found.choice.default_us
    assert steps[0].best_us == steps[0].default_us


def test_a_config_is_measured_once(search_of, journal_of):
    """Points of one stage have the same config whatever their order."""
    search_of(trials=200)
    records = journal_of()
    configs = ok_configs(records)
    assert len(configs) == len(set(configs))
    again = [r for r in told(records) if r["status"] == "duplicate"]
    assert len(again) > 5
    by_config = {config_key(r["config"]): r for r in told(records) if r["status"] == "ok"}
    for record in again:
        assert record["latency_us"] == by_config[config_key(record["config"])]["latency_us"]


def test_a_config_that_failed_first_and_ran_later_is_measured_once_more_only(
    search_of, journal_of, make_recording
):
    count = itertools.count()

    class Flaky(ReplayDevice):
        """The first trial of all but the default config crashes."""

        def __init__(self, recording):
            super().__init__(recording)
            self.seen = set()

        def wait(self, timeout_s):
            found = []
            for outcome in super().wait(timeout_s):
                key = config_key(outcome.config)
                first = key not in self.seen and next(count) > 0
                self.seen.add(key)
                crashed = replace(outcome, status="crash", latency_us=None)
                found.append(crashed if first else outcome)
            return found

    search_of(device=Flaky(make_recording()), trials=None)
    configs = ok_configs(journal_of())
    assert configs
    assert len(configs) == len(set(configs))


def test_a_whole_space_converges(search_of, space):
    found, _ = search_of(trials=None)
    assert found.search["ended"] == "converged"
    assert found.search["trials"] == space.count == 9 * 5 * 4 * 2
    assert found.choice.config == BEST
    assert found.failures == {"compile_error": 32, "compile_timeout": 8, "wrong_result": 16}


def test_the_time_is_up(search_of, journal_of):
    found, _ = search_of(trials=None, seconds=5.0)
    assert found.search["ended"] == "time"
    assert found.search["trials"] == len(told(journal_of())) <= 11
    assert found.choice is not None


def test_the_time_is_up_before_any_candidate(search_of, recording):
    found, _ = search_of(seconds=0.5)
    assert (found.choice, found.candidate_ran) == (None, False)
    assert found.search["trials"] == 1
    assert found.reason == "the time was up before any candidate was measured"
    # The clock starts when the device has opened the bucket.
    device = ReplayDevice(recording)
    device.wait(1000.0)
    found, _ = search_of(device=device, seconds=5.0, journal="other.jsonl")
    assert found.choice is not None


def only_default(space, bowl, failure="compile_error"):
    outcome_of, config_of = bowl

    def outcome(point):
        if point == space.default:
            return outcome_of(point)
        return Outcome(0, failure, config_of(point), compile_s=0.5, error="no")

    return outcome


@pytest.mark.parametrize(("seconds", "runs"), [(3.0, False), (30.0, True)])
def test_every_candidate_fails(search_of, space, bowl, make_recording, *, seconds, runs):
    """In a few tries that says nothing; in many it does: the default is what there is."""
    recording = make_recording(outcome=only_default(space, bowl))
    found, _ = search_of(recorded=recording, trials=None, seconds=seconds)
    assert not found.candidate_ran
    assert found.search["ended"] == "time"
    assert (found.choice is not None) is runs
    assert found.failures == {"compile_error": found.search["trials"] - 1}
    if runs:
        assert found.choice.is_default


def test_nothing_runs(search_of, make_recording, bowl):
    _, config_of = bowl
    broken = make_recording(outcome=lambda p: Outcome(0, "crash", config_of(p), error="dead"))
    found, _ = search_of(recorded=broken, trials=12)
    assert found.choice is None
    assert found.reason == "crash: dead"
    assert found.failures == {"crash": 12}


def test_a_default_that_fails(search_of, make_recording, space, bowl, spec):
    outcome_of, config_of = bowl

    def outcome(point):
        if config_of(point) == config_of(space.default):
            return Outcome(0, "wrong_result", config_of(point), error="result 0")
        return outcome_of(point)

    found, _ = search_of(recorded=make_recording(outcome=outcome), trials=40)
    assert found.choice.default_us is None
    why = "wrong_result: result 0"
    where = [
        " ".join(f"{k}={v}" for k, v in at.items())
        for at in (spec.buckets[0].point, *spec.buckets[0].probes)
    ]
    assert found.choice.note == "; ".join(
        f"the default config doesn't run at {at}: {why}" for at in where
    )
    assert found.candidate_ran


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf, None])
def test_a_latency_that_is_none_is_a_crash(
    search_of, journal_of, make_recording, space, bowl, *, bad
):
    outcome_of, _ = bowl

    def outcome(point):
        found = outcome_of(point)
        ok = found.status == "ok" and point != space.default
        return replace(found, latency_us=bad) if ok else found

    found, _ = search_of(recorded=make_recording(outcome=outcome), trials=20)
    assert found.choice.is_default
    crashed = [r for r in told(journal_of()) if r["status"] == "crash"]
    assert len(crashed) == found.failures["crash"] > 5
    assert crashed[0]["error"] == f"it ran, and its latency was read as {bad} us"
    assert "latency_us" not in crashed[0]


def test_a_search_of_another_seed_repeats_nothing(search_of, journal_of):
    first, _ = search_of(trials=40)
    second, steps = search_of(trials=40, seed=1)
    records = journal_of()
    assert len(told(records)) == 80
    points = [tuple(r["point"]) for r in told(records)]
    assert len(set(points)) == 80
    configs = ok_configs(records)
    assert len(configs) == len(set(configs))
    opened = [r for r in records if r["kind"] == "open"]
    assert [(r["session"], r["recalled"]) for r in opened] == [(1, 0), (2, 40)]
    # What was known counts for the choice, not for the trials of this search.
    assert second.choice.latency_us <= first.choice.latency_us
    assert second.search["trials"] == 40
    assert [*dict.fromkeys(s.trials for s in steps)] == [*range(1, 41)]
    ours = {r["status"] for r in told(records) if r["session"] == 2}
    assert set(steps[-1].failures) <= ours
    assert sum(second.failures.values()) > sum(steps[-1].failures.values())


def test_what_was_measured_otherwise_is_not_recalled(
    search_of, journal_of, spec, changed, recording
):
    search_of(trials=10)
    search_of(trials=10, spec=changed(spec, source="sha256:other"))
    search_of(trials=10, recorded=replace(recording, policy={"l2": "warm"}))
    assert [r["recalled"] for r in journal_of() if r["kind"] == "open"] == [0, 0, 0]


def test_fresh_ignores_the_journal(search_of, journal_of):
    search_of(trials=10)
    search_of(trials=10, fresh=True)
    records = journal_of()
    assert [r["recalled"] for r in records if r["kind"] == "open"] == [0, 0]
    points = [[tuple(r["point"]) for r in told(records) if r["session"] == n] for n in (1, 2)]
    assert points[0] == points[1]


def test_seeds_are_tried_first_and_kept_over_an_interruption(search_of, journal_of, tmp_path):
    search_of(trials=10, seeds=(BEST,))
    records = journal_of()
    assert told(records)[1]["config"] == BEST
    # Cut in the middle, and by now the neighbour has another winner: the start stays as it was.
    path = tmp_path / "j.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:8]))
    other = {**BEST, "warps": 4}
    search_of(trials=10, seeds=(other,))
    assert [r["kind"] for r in journal_of()].count("open") == 1
    assert [r["point"] for r in told(journal_of())] == [r["point"] for r in told(records)]
    # Another search doesn't take over what that one started with.
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:8]))
    search_of(trials=11, seeds=(other,))
    assert [r["seeds"] for r in journal_of() if r["kind"] == "open"] == [[BEST], [other]]


def test_a_session_goes_on_only_if_it_is_the_last(search_of, journal_of, tmp_path):
    search_of(trials=20, close=False)
    path = tmp_path / "j.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:15]))
    search_of(trials=20, seed=1)
    search_of(trials=20)
    records = journal_of()
    assert [r["session"] for r in records if r["kind"] == "open"] == [1, 2, 3]
    configs = ok_configs(records)
    assert len(configs) == len(set(configs))


def test_a_search_that_proposes_otherwise_starts_from_what_is_known(
    search_of, journal_of, tmp_path, monkeypatch, caplog
):
    search_of(trials=20)
    path = tmp_path / "j.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:15]))

    class Newer(RandomSearch):
        def __init__(self, space, seed, options, **words):
            super().__init__(space, seed + 1, options, **words)

    monkeypatch.setitem(bucket_module.ALGORITHMS, "random", Newer)
    found, _ = search_of(trials=20)
    assert "doesn't repeat what the journal holds" in caplog.text
    assert found.search["trials"] == 20
    records = journal_of()
    opened = [(r["session"], r["recalled"]) for r in records if r["kind"] == "open"]
    assert opened == [(1, 0), (2, 7)]
    configs = ok_configs(records)
    assert len(configs) == len(set(configs))


def test_trials_of_another_bucket_are_left_alone(search_of, journal_of, spec, changed):
    search_of(trials=10)
    other = changed(spec, buckets=spec.buckets[1:])
    search_of(trials=10, spec=other)
    opened = [r for r in journal_of() if r["kind"] == "open"]
    assert [(r["session"], r["recalled"]) for r in opened] == [(1, 0), (2, 0)]
    assert opened[0]["bucket"] != opened[1]["bucket"]


def test_the_journal_makes_a_recording(search_of, spec, tmp_path):
    found, _ = search_of(trials=50)
    recorded = read_journal(tmp_path / "j.jsonl", spec.buckets[0].key)
    assert len(recorded.outcomes) == 50
    again, _ = search_of(trials=50, recorded=recorded, journal="again.jsonl")
    assert again.choice.config == found.choice.config
    assert again.choice.latency_us == found.choice.latency_us


@pytest.mark.parametrize(("algorithm", "every"), [("random", 1), ("lfbo", 5)])
def test_an_interruption_anywhere_changes_nothing(
    search_of, journal_of, tmp_path, algorithm, every
):
    """The journal cut after each record, and gone on from, ends as the one that wasn't."""

    def plain(records):
        return [{k: v for k, v in r.items() if k != "seconds"} for r in records]

    search_of(algorithm=algorithm, trials=40, seed=3)
    whole = plain(journal_of())
    lines = (tmp_path / "j.jsonl").read_bytes().splitlines(keepends=True)
    for kept in range(0, len(lines), every):
        torn = lines[kept][: len(lines[kept]) // 2]
        (tmp_path / "cut.jsonl").write_bytes(b"".join(lines[:kept]) + torn)
        search_of(algorithm=algorithm, trials=40, seed=3, journal="cut.jsonl")
        assert plain(journal_of("cut.jsonl")) == whole, f"after {kept} records"


@pytest.mark.parametrize("kept", [2, 9, 16, 33, 50])
def test_interrupted_trials_side_by_side_repeat_nothing(
    search_of, journal_of, tmp_path, recording, kept
):
    """With several trials in flight their order may change, what is tried twice may not."""
    words = {"algorithm": "lfbo", "trials": 40, "seed": 5}
    search_of(device=ReplayDevice(recording, parallel=4), **words)
    path = tmp_path / "j.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:kept]))
    found, _ = search_of(device=ReplayDevice(recording, parallel=4), **words)
    records = journal_of()
    configs = ok_configs(records)
    assert len(configs) == len(set(configs))
    assert len({tuple(r["point"]) for r in told(records)}) == len(told(records)) == 40
    assert [r["kind"] for r in records].count("open") == 1
    assert found.search["trials"] == 40


def test_failures_of_earlier_sessions_are_tried_again(search_of, journal_of, make_recording, bowl):
    """They may have been the reference's fault, or the machine's; what doesn't compile won't."""
    outcome_of, config_of = bowl
    at_fault = ["wrong_result", "crash", "timeout", "out_of_memory"]

    def mostly(point):
        found = outcome_of(point)
        if found.status != "ok" or point == (16, 4, 1, "a"):
            return found
        status = at_fault[int(math.log2(point[1])) % 4]
        return Outcome(0, status, config_of(point), error="no")

    search_of(trials=None, recorded=make_recording(outcome=mostly))
    first = told(journal_of())
    found, _ = search_of(trials=None)
    kept = {"ok", "duplicate", "compile_error", "compile_timeout"}
    opened = [r for r in journal_of() if r["kind"] == "open"]
    assert opened[1]["recalled"] == sum(r["status"] in kept for r in first) > 30
    assert found.choice.config == BEST
    again = [r for r in told(journal_of()) if r["session"] == 2]
    assert {r["status"] for r in again} == {"ok", "duplicate", "wrong_result"}


def right(x):
    return x


def wrong(x):
    return -x


@pytest.mark.parametrize("close", [True, False])
@pytest.mark.parametrize(
    "change",
    [
        {"reference": wrong},
        {"reference": None},
        {"inputs": right},
        {"tolerance": {"float32": (0.5, 0.5)}},
    ],
)
def test_trials_under_another_reference_are_not_taken_over(
    search_of, journal_of, spec, changed, change, *, close
):
    one = changed(spec, reference=right)
    search_of(spec=one, trials=10, close=close)
    search_of(spec=one, trials=12)
    opened = [r for r in journal_of() if r["kind"] == "open"]
    assert opened[-1]["recalled"] > 5
    search_of(spec=changed(one, **change), trials=10, close=close)
    last = [r for r in journal_of() if r["kind"] == "open"][-1]
    assert (last["session"], last["recalled"]) == (3, 0)


def test_an_unfinished_session_of_another_reference_is_left(
    search_of, journal_of, spec, changed, tmp_path
):
    search_of(spec=changed(spec, reference=wrong), trials=20)
    path = tmp_path / "j.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:15]))
    search_of(spec=changed(spec, reference=right), trials=20)
    opened = [r for r in journal_of() if r["kind"] == "open"]
    assert [(r["session"], r["recalled"]) for r in opened] == [(1, 0), (2, 0)]


def test_trials_of_another_layout_are_not_taken_over(search_of, journal_of, recording):
    """`inputs=` may make other tensors now, such as transposed ones."""
    search_of(trials=10)
    item = {"order": [1, 0], "contiguous": False, "dtype": "float32"}
    search_of(trials=10, recorded=replace(recording, layout=[item]))
    search_of(trials=12, recorded=replace(recording, layout=[item]))
    opened = [r for r in journal_of() if r["kind"] == "open"]
    assert [r["session"] for r in opened] == [1, 2, 3]
    assert [r["recalled"] > 0 for r in opened] == [False, False, True]
