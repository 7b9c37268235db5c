"""A run at several stations at once. Each has recorded trials, and a simulated clock of its own."""

from __future__ import annotations

import threading

import pytest

from lfbo_aot.database.database import Database
from lfbo_aot.database.journal import Journal
from lfbo_aot.database.verify import verify
from lfbo_aot.errors import DeviceLostError
from lfbo_aot.errors import TuningError
from lfbo_aot.registry.devices import DeviceId
from lfbo_aot.tuning.devices.replay import ReplayDevice
from lfbo_aot.tuning.folders import journal_path
from lfbo_aot.tuning.plan import make_plan
from lfbo_aot.tuning.run import Options
from lfbo_aot.tuning.run import Silence
from lfbo_aot.tuning.run import tune

H200 = DeviceId("sm90", "NVIDIA H200")
LOST = "no GPU worker can be made ready: crash, exit 1"


class Station(ReplayDevice):
    """Final measurements take `final_s`; it is lost after `lives` waits."""

    def __init__(self, device, recording, *, final_s=0.0, lives=None):
        super().__init__(recording, device_id=H200)
        self.device = device
        self.final_s = final_s
        self.lives = lives
        self.holder = None
        self.buckets = []

    def open(self, spec, shape):
        assert self.holder is None
        self.holder = threading.get_ident()
        if not self.buckets:
            self.device.all_there.wait(timeout=60)
        self.buckets.append((spec.kernel_id, tuple(shape.values())))
        # It begins when both the station and whoever tunes at it are free.
        self._now_s = max(self._now_s, self.device.thread.now)
        if shape["m"] == self.device.refused:
            msg = "inputs= failed"
            raise TuningError(msg)
        return super().open(spec, shape)

    def leave(self):
        self.holder = None
        super().leave()

    def wait(self, timeout_s):
        assert self.holder == threading.get_ident()
        if self.lives is not None:
            self.lives -= 1
            if self.lives < 0:
                raise DeviceLostError(LOST)
        found = super().wait(timeout_s)
        self.device.thread.now = self._now_s
        return found

    def final(self, configs, rounds, seconds=None):
        assert self.holder == threading.get_ident()
        found = super().final(configs, rounds, seconds)
        self._now_s += self.final_s if seconds is None else min(self.final_s, seconds)
        self.device.thread.now = self._now_s
        return found


class Thread(threading.local):
    now = 0.0


class Several:
    """As many stations as `lives` has numbers; its clock is that of the station at hand."""

    id = H200

    def __init__(self, recording, lives, *, refused=None, final_s=0.0):
        self.thread = Thread()
        self.all_there = threading.Barrier(len(lives))
        self.refused = refused
        self.main = threading.get_ident()
        self.stations = [Station(self, recording, lives=n, final_s=final_s) for n in lives]

    @property
    def usage(self):
        return {"gpus": len(self.stations)}

    def clock(self):
        if threading.get_ident() == self.main:
            return max(station.clock() for station in self.stations)
        return self.thread.now

    def close(self):
        """Nothing was started."""


class Watcher(Silence):
    def __init__(self):
        self.begun, self.ended = [], []

    def begins(self, item, number, total):
        self.begun.append((item.spec.kernel_id, item.bucket.key))

    def ends(self, result):
        self.ended.append((result.item.spec.kernel_id, result.item.bucket.key))


@pytest.fixture
def folders(tmp_path):
    return {"into": tmp_path / "tuned", "state": tmp_path / "state"}


@pytest.fixture
def kernels(make_spec_of):
    return [make_spec_of("pkg.norm"), make_spec_of("pkg.other")]


@pytest.fixture
def tune_at(folders, recording, kernels):
    """Tune the eight buckets of two kernels; gives the summary, the device, the watcher."""

    def run(*lives, refused=None, final_s=0.0, where=None, **options):
        device = Several(recording, lives, refused=refused, final_s=final_s)
        plan = make_plan(kernels, H200, Database(folders["into"]), where=where)
        watcher = Watcher()
        options = Options(**{"trials": 20, "rounds": 3, "algorithm": "random", **options})
        return tune(plan, device, **folders, options=options, watcher=watcher), device, watcher

    return run


def records(folders, kernel):
    return list(Journal(journal_path(folders["state"], H200, kernel)).records())


def statuses(summary):
    return sorted(r.status for r in summary.results)


def test_every_bucket_once_and_all_stations(tune_at, folders, kernels):
    summary, device, watcher = tune_at(None, None, None)
    assert statuses(summary) == ["tuned"] * 8
    assert summary.complete
    wanted = sorted((k.kernel_id, bucket.key) for k in kernels for bucket in k.buckets)
    assert sorted(watcher.begun) == sorted(watcher.ended) == wanted
    opened = [bucket for station in device.stations for bucket in station.buckets]
    assert len(opened) == len(set(opened)) == 8
    assert all(station.buckets for station in device.stations)
    assert all(station.holder is None for station in device.stations)
    assert verify(folders["into"]) == ()
    for kernel in kernels:
        held = Database(folders["into"]).shard(kernel.kernel_id, "sm90")
        assert sorted(held.keys) == sorted(f"NVIDIA H200|{b.key}" for b in kernel.buckets)
        results = [r for r in summary.results if r.item.spec is kernel]
        for result in results:
            assert held.entry(f"NVIDIA H200|{result.item.bucket.key}") == result.entry
    assert summary.profile["gpus"] == 3


def test_the_buckets_of_a_kernel_in_one_journal(tune_at, folders, kernels):
    """Their records are mixed; each bucket's are whole and in order."""
    tune_at(None, None, None, None)
    for kernel in kernels:
        found = records(folders, kernel.kernel_id)
        assert len({r["session"] for r in found}) == 4
        for bucket in kernel.buckets:
            own = [r for r in found if r["bucket"] == bucket.key]
            assert len({r["session"] for r in own}) == 1
            kinds = [r["kind"] for r in own]
            assert (kinds[0], kinds[-1]) == ("open", "final")
            assert kinds.count("trial") == 20
            tickets = [r["ticket"] for r in own if r["kind"] == "trial"]
            assert tickets == list(range(1, 21))


def test_a_bucket_that_fails_takes_no_other_along(tune_at):
    summary, device, _ = tune_at(None, None, None, refused=64)
    assert statuses(summary) == ["failed"] * 4 + ["tuned"] * 4
    assert {r.reason for r in summary.results if r.status == "failed"} == {"inputs= failed"}
    assert all(station.holder is None for station in device.stations)


def test_what_a_lost_station_had_in_hand_goes_on_at_another(tune_at, folders):
    summary, device, watcher = tune_at(None, 8, None)
    assert statuses(summary) == ["tuned"] * 8
    assert summary.complete
    assert len(device.stations[1].buckets) == 1
    # What had been measured there was not measured again.
    twice = [key for key in set(watcher.begun) if watcher.begun.count(key) == 2]
    assert len(twice) == 1
    for item in {r.item.bucket.key: r.item for r in summary.results}.values():
        every = records(folders, item.spec.kernel_id)
        own = [r for r in every if r["bucket"] == item.bucket.key]
        assert sum(r["kind"] == "trial" for r in own) == 20
        assert len({r["session"] for r in own}) == 1


def test_all_stations_are_lost(tune_at, folders):
    """The run ends with what it has, says why, and can go on later."""
    summary, _, watcher = tune_at(25, 5, 5)
    assert statuses(summary) == ["tuned"] + ["unfinished"] * 7
    assert {r.reason for r in summary.results if r.status == "unfinished"} == {LOST}
    assert not summary.complete
    # Whoever watches hears of those that began, which may have been at one station and another.
    assert len(set(watcher.begun)) >= 3
    assert set(watcher.begun) <= set(watcher.ended)
    assert verify(folders["into"]) == ()
    again, _, _ = tune_at(None, None)
    assert statuses(again) == ["held"] + ["tuned"] * 7
    assert again.complete


LEAST = {"m": [1], "dtype": ["float32"]}


@pytest.mark.parametrize("final_s", [0.5, 4.0], ids=["quick finals", "slow finals"])
@pytest.mark.parametrize("budget_s", [60.0, 240.0])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_a_run_ends_with_its_budget(tune_at, count, budget_s, final_s):
    summary, _, _ = tune_at(*[None] * count, budget_s=budget_s, trials=None, final_s=final_s)
    allowed_s = max(5.0, 0.05 * budget_s)
    assert summary.seconds <= budget_s + allowed_s
    assert statuses(summary) == ["tuned"] * 8
    if count == 1:  # one after the other they take all of it
        assert summary.seconds >= budget_s - allowed_s


@pytest.mark.parametrize("final_s", [0.2, 1.0], ids=["quick finals", "slow finals"])
@pytest.mark.parametrize("own_s", [10.0, 40.0])
def test_a_bucket_ends_with_its_own(tune_at, own_s, final_s):
    summary, _, _ = tune_at(None, None, per_bucket_s=own_s, trials=None, final_s=final_s)
    assert statuses(summary) == ["tuned"] * 8
    for result in summary.results:
        assert abs(result.entry.search["seconds"] - own_s) <= 5.0
        assert result.seconds <= own_s + 5.0


def test_the_shorter_one_holds(tune_at):
    summary, _, _ = tune_at(None, budget_s=400.0, per_bucket_s=6.0, trials=None)
    assert summary.seconds <= 8 * (6.0 + 1.0)
    summary, _, _ = tune_at(None, budget_s=4.0, per_bucket_s=600.0, trials=None, where=LEAST)
    assert summary.seconds <= 4.0 + 5.0


def test_what_the_budget_does_not_reach_is_unfinished(tune_at):
    summary, _, _ = tune_at(None, None, budget_s=2.0, trials=None, final_s=1.0)
    reasons = {r.reason for r in summary.results if r.status == "unfinished"}
    assert reasons <= {
        "the budget is spent",
        "the time was up before any candidate was measured",
    }
    assert reasons != set()
    assert summary.seconds <= 2.0 + 5.0
    again, _, _ = tune_at(None, None)
    assert again.complete
