from __future__ import annotations

from dataclasses import replace

import pytest

from lfbo_aot.database.journal import Journal
from lfbo_aot.errors import TuningError
from lfbo_aot.tuning.devices.device import Outcome
from lfbo_aot.tuning.devices.replay import ReplayDevice
from lfbo_aot.tuning.devices.replay import read_journal
from lfbo_aot.tuning.devices.replay import read_records

SHAPE = {"m": 64, "dtype": "float32"}
BEST = (64, 8, 3, "b")


def opened(recording, spec, **words):
    device = ReplayDevice(recording, **words)
    device.open(spec, SHAPE)
    return device


def test_it_answers_with_what_was_recorded(recording, spec, bowl):
    _outcome_of, config_of = bowl
    device = ReplayDevice(recording)
    found = device.open(spec, SHAPE)
    assert found.space == recording.space
    assert found.default == config_of(recording.space.default)
    assert (found.policy, found.versions) == (recording.policy, recording.versions)
    device.submit(7, BEST, None)
    assert device.free() == 0
    (outcome,) = device.wait(1.0)
    assert (outcome.ticket, outcome.latency_us) == (7, 10.0)
    assert outcome.config == config_of(BEST)
    assert device.clock() == 0.5
    assert device.wait(2.0) == []
    assert device.clock() == 2.5


def test_trials_run_side_by_side_and_end_in_their_own_time(recording, spec):
    device = opened(recording, spec, parallel=2)
    slow, quick = (256, 1, 1, "a"), (1, 1, 1, "a")  # 5 s and 0.5 s
    for ticket, point in enumerate([slow, quick, (2, 1, 1, "a")]):
        device.submit(ticket, point, None)
    assert device.free() == 0
    assert [o.ticket for o in device.wait(1.0)] == [1]
    assert [o.ticket for o in device.wait(1.0)] == [2]
    assert device.clock() == 1.0
    assert device.wait(1.5) == []
    assert device.clock() == 2.5
    (last,) = device.wait(10.0)
    assert (last.ticket, last.status, device.clock()) == (0, "compile_timeout", 5.0)


def test_it_is_its_own_and_only_station(recording, spec):
    device = opened(recording, spec)
    assert device.stations == (device,)
    assert device.usage == {}
    with device.turn():
        device.submit(1, BEST, None)
    device.leave()
    assert [o.ticket for o in device.wait(1.0)] == [1]


def test_points_of_configs_that_fit(recording, spec, bowl):
    _, config_of = bowl
    device = opened(recording, spec)
    other = (32, 8, 2, "a")
    configs = [config_of(other), {"block": 3}, dict(reversed(config_of(BEST).items()))]
    assert device.points(configs) == (other, BEST)
    assert device.points([]) == ()


def test_measuring_at_another_shape_leaves_the_open_one_alone(make_recording, spec, bowl):
    outcome_of, config_of = bowl
    here = make_recording()
    there = make_recording(outcome=lambda p: replace(outcome_of(p), latency_us=p[0] * 1.0))
    device = ReplayDevice(lambda _, shape: here if shape["m"] == 64 else there)
    device.open(spec, SHAPE)
    configs = [config_of(BEST), config_of((16, 4, 1, "a")), {"block": 3}]
    default, readings = device.final_at(spec, {**SHAPE, "m": 1}, configs, 2)
    assert default == config_of((16, 4, 1, "a"))
    # The default there comes first, and once.
    assert [(r.config["block"], r.samples_us, r.error) for r in readings] == [
        (16, (16.0, 16.0), ""),
        (64, (64.0, 64.0), ""),
        (3, (), "never recorded"),
    ]
    assert device.final([config_of(BEST)], 1)[0].samples_us == (10.0,)


@pytest.mark.parametrize(("unknown", "status"), [("invalid", "invalid"), ("nearest", "ok")])
def test_points_that_were_not_recorded(spec, space, bowl, unknown, status):
    outcome_of, config_of = bowl
    rows = [space.default, (64, 8, 2, "b"), (1, 16, 1, "a")]
    recording = read_records(space, None, rows, lambda p: (p, outcome_of(p)))
    device = opened(recording, spec, unknown=unknown)
    device.submit(1, BEST, None)
    (outcome,) = device.wait(9.0)
    assert outcome.status == status
    assert outcome.config == (config_of((64, 8, 2, "b")) if status == "ok" else None)


def test_the_final_measurement(recording, spec, bowl):
    _, config_of = bowl
    device = opened(recording, spec)
    configs = [config_of(p) for p in (space_default(recording), BEST, (256, 1, 1, "a"))]
    default, best, failed, unknown = device.final([*configs, {"block": 3}], 3)
    assert best.samples_us == (10.0,) * 3
    assert best.resources["threads"] == 256
    assert default.samples_us[0] > 10.0
    assert (failed.samples_us, failed.error) == ((), "compile_timeout: killed")
    assert (unknown.samples_us, unknown.error) == ((), "never recorded")


def space_default(recording):
    return recording.space.default


def test_noise_is_the_same_each_time(recording, spec, bowl):
    _, config_of = bowl
    first, second = (
        opened(recording, spec, noise=0.1).final([config_of(BEST)], 20)[0].samples_us
        for _ in range(2)
    )
    assert first == second
    assert len(set(first)) == 20


def test_recordings_by_shape(recording, spec):
    device = ReplayDevice(lambda spec, shape: {("pkg.norm", 64): recording}[spec.kernel_id, 64])
    assert device.open(spec, SHAPE).space.default == recording.space.default
    with pytest.raises(TuningError, match="no bucket is open"):
        ReplayDevice(recording).final([], 1)


def test_records_of_any_kind(space, bowl):
    _, config_of = bowl
    rows = ["16,4,1,a,20.5", "64,8,3,b,10", "3,8,3,b,1", "64,8,3,b,99"]

    def read(row):
        *values, order, us = row.split(",")
        point = (*map(int, values), order)
        return point, Outcome(0, "ok", config_of(point), latency_us=float(us))

    found = read_records(space, None, rows, read)
    assert {p: o.latency_us for p, o in found.outcomes.items()} == {
        (16, 4, 1, "a"): 20.5,
        BEST: 10.0,
    }
    assert found.default == config_of(space.default)
    with pytest.raises(TuningError, match="no trial of the default point"):
        read_records(space, None, rows[1:], read)
    assert read_records(space, {"block": 16}, rows[1:], read).default == {"block": 16}


def test_a_journal_that_is_none(tmp_path, space):
    path = tmp_path / "j.jsonl"
    with pytest.raises(TuningError, match="no trial of the bucket 'm=1'"):
        read_journal(path, "m=1")
    with Journal(path) as journal:
        journal.append({"kind": "open", "bucket": "m=1", "space": space.to_json()})
    with pytest.raises(TuningError, match="no trial of the default point"):
        read_journal(path, "m=1")
