"""That a run beats; what `status` makes of it is in tests/cli/test_status.py."""

from __future__ import annotations

import json

import pytest

from lfbo_aot.database.database import Database
from lfbo_aot.registry.devices import DeviceId
from lfbo_aot.tuning.devices.replay import ReplayDevice
from lfbo_aot.tuning.plan import make_plan
from lfbo_aot.tuning.run import Options
from lfbo_aot.tuning.run import tune
from lfbo_aot.tuning.standing import read_standing

H200 = DeviceId("sm90", "NVIDIA H200")


class Onlooker:
    """Reads where things stand at every step, as another process would."""

    def __init__(self, state):
        self._state = state
        self.seen = []

    def begins(self, _item, _number, _total):
        self._look("begins")

    def steps(self, _step):
        self._look("steps")

    def ends(self, _result):
        self._look("ends")

    def _look(self, when):
        found = read_standing(self._state)
        self.seen.append((when, found))


@pytest.fixture
def watched(tmp_path, recording, spec):
    into, state = tmp_path / "tuned", tmp_path / "state"
    device = ReplayDevice(recording, device_id=H200)
    onlooker = Onlooker(state)
    plan = make_plan([spec], device.id, Database(into))
    options = Options(budget_s=1000.0, trials=8, rounds=3)
    tune(plan, device, into=into, state=state, options=options, watcher=onlooker)
    return state, plan, onlooker.seen


def test_a_run_tells_where_it_is(watched):
    _, plan, seen = watched
    assert all(len(found.runs) == 1 and found.runs[0].alive for _, found in seen)
    ends = [found.runs[0] for when, found in seen if when == "ends"]
    assert [(run.done, run.total) for run in ends] == [
        (number, len(plan)) for number in range(1, len(plan) + 1)
    ]
    for when, found in seen:
        states = [bucket.status for bucket in found.buckets]
        assert states.count("running") == (0 if when == "ends" else 1)
    last = seen[-1][1]
    assert {bucket.status for bucket in last.buckets} == {"tuned"}
    assert all(bucket.trials == 8 and bucket.latency_us for bucket in last.buckets)


def test_it_leaves_nothing_behind(watched):
    state, plan, _ = watched
    assert list((state / "runs").iterdir()) == []
    after = read_standing(state)
    assert after.runs == ()
    assert [bucket.status for bucket in after.buckets] == ["tuned"] * len(plan)


def test_what_a_run_says_is_json(tmp_path, recording, spec):
    class Reader(Onlooker):
        def _look(self, when):
            (file,) = (self._state / "runs").iterdir()
            self.seen.append(json.loads(file.read_text()))

    into, state = tmp_path / "tuned", tmp_path / "state"
    device, reader = ReplayDevice(recording, device_id=H200), Reader(tmp_path / "state")
    plan = make_plan([spec], device.id, Database(into))[:1]
    tune(plan, device, into=into, state=state, options=Options(trials=3, rounds=3), watcher=reader)
    first = reader.seen[0]
    assert first["schema"] == 1
    assert (first["budget_s"], first["budget_ends"]) == (None, None)
    assert [row["status"] for row in first["buckets"]] == ["running"]
