"""Few configs for a kernel's buckets: measured in each, chosen, and written into the database."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from lfbo_aot.database.database import Database
from lfbo_aot.database.declaration import Declaration
from lfbo_aot.database.frozen import thaw
from lfbo_aot.database.merge import merge
from lfbo_aot.database.verify import verify
from lfbo_aot.errors import DatabaseError
from lfbo_aot.errors import DeviceLostError
from lfbo_aot.errors import JournalBusyError
from lfbo_aot.errors import TuningError
from lfbo_aot.registry.buckets import Bucket
from lfbo_aot.registry.devices import DeviceId
from lfbo_aot.registry.dims import Exact
from lfbo_aot.registry.dims import Range
from lfbo_aot.search import Choice
from lfbo_aot.search import Space
from lfbo_aot.tuning.devices.device import Outcome
from lfbo_aot.tuning.devices.replay import Recording
from lfbo_aot.tuning.devices.replay import ReplayDevice
from lfbo_aot.tuning.parts import Wanted
from lfbo_aot.tuning.plan import make_plan
from lfbo_aot.tuning.run import Options
from lfbo_aot.tuning.run import tune

H200 = DeviceId("sm90", "NVIDIA H200")
NAMES = ("d", "a", "b", "c")
SPACE = Space((Choice("kind", NAMES, "d"),), default=("d",))
LOW, MIDDLE, HIGH = (f"m={box}|dtype=float32" for box in ("1..64", "65..512", "513..4096"))
# By bucket (the upper end of `m`), what each config takes. Over the best, in per cent:
TABLE = {
    64: {"d": 20.0, "a": 10.0, "b": 10.1, "c": 13.0},  # .   100   0  1 30
    512: {"d": 20.0, "a": 10.4, "b": 10.0, "c": 12.0},  # .  100   4  0 20
    4096: {"d": 20.0, "a": 14.0, "b": 10.3, "c": 10.0},  # . 100  40  3  0
}
DIMS = {"m": Range(1, 4096, edges=[64, 512]), "dtype": Exact("float32")}


def config(name):
    return {"kind": name}


def recordings(table=TABLE, points=None, defaults=None):
    """One for each shape: by its very `m` in `points`, else as its bucket in the table.

    `defaults` names Helion's default by `m`, where it isn't `d`.
    """

    def find(_spec, shape):
        box = next(hi for hi in (64, 512, 4096) if shape["m"] <= hi)
        row = {**table[box], **(points or {}).get(shape["m"], {})}
        outcomes = {}
        for name in NAMES:
            us = row[name]
            failed = Outcome(0, "wrong_result", config(name), error="3 of 4")
            uses = {"shared": ord(name), "regs": 1, "spills": 0, "threads": 32}
            ran = Outcome(0, "ok", config(name), us, resources=uses)
            outcomes[name,] = failed if us is None else ran
        default = (defaults or {}).get(shape["m"], "d")
        space = replace(SPACE, default=(default,))
        return Recording(space, config(default), outcomes, versions={"helion": "1.5.0"})

    return find


class Device(ReplayDevice):
    """Tells what was measured, as (m, configs); `trouble` may raise before a measurement."""

    def __init__(self, found=None, *, trouble=lambda m: None, device_id=H200):
        super().__init__(found or recordings(), device_id=device_id)
        self.trouble = trouble
        self.measured = []

    def open(self, spec, shape):
        self.shape = shape
        return super().open(spec, shape)

    def final(self, configs, rounds, seconds=None):
        self.trouble(self.shape["m"])
        self.measured.append((self.shape["m"], [c["kind"] for c in configs]))
        return super().final(configs, rounds, seconds)

    def final_at(self, spec, shape, configs, rounds, seconds=None):
        before, self.shape = self.shape, shape
        try:
            return super().final_at(spec, shape, configs, rounds, seconds)
        finally:
            self.shape = before


@pytest.fixture
def folders(tmp_path):
    return {"into": tmp_path / "tuned", "state": tmp_path / "state"}


@pytest.fixture
def spec(make_spec_of):
    return make_spec_of(dims=DIMS)


@pytest.fixture
def run(folders, spec):
    """Tune what isn't held, then as few configs as asked for; gives the summary."""

    def go(most=None, regret=None, device=None, where=None, specs=None, **options):
        device = device or Device()
        plan = make_plan(specs or [spec], device.id, Database(folders["into"]), where=where)
        few = None if most is None and regret is None else Wanted(most, regret)
        made = Options(**{"rounds": 5, "algorithm": "random", "few": few, **options})
        return tune(plan, device, **folders, options=made)

    return go


@pytest.fixture
def held(folders):
    """The entries by bucket."""

    def read(kernel="pkg.norm"):
        shard = Database(folders["into"]).shard(kernel, "sm90")
        return {key.partition("|")[2]: shard.entry(key) for key in shard.keys}

    return read


def kinds(entries):
    return [entries[key].config["kind"] for key in (LOW, MIDDLE, HIGH)]


def told(one):
    return one.before, one.after, one.changed.keys(), one.reached, one.reason


def buckets(*keys):
    return {Bucket.parse(key) for key in keys}


def shard_bytes(folders):
    return (folders["into"] / "sm90" / "pkg.norm.jsonl").read_bytes()


def test_each_bucket_has_its_own_best_where_few_were_not_asked_for(run, held):
    assert run().few == []
    assert kinds(held()) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("asked", "served", "worst", "reached"),
    [
        ({"regret": 0.05}, ["b", "b", "b"], 0.03, True),
        ({"regret": 0.02}, ["b", "b", "c"], 0.01, True),
        ({"regret": 0.0}, ["a", "b", "c"], 0.0, True),
        ({"most": 1}, ["b", "b", "b"], 0.03, True),
        ({"most": 2}, ["b", "b", "c"], 0.01, True),
        ({"most": 3}, ["a", "b", "c"], 0.0, True),
        ({"most": 1, "regret": 0.02}, ["b", "b", "b"], 0.03, False),
        ({"most": 3, "regret": 0.02}, ["b", "b", "c"], 0.01, True),
    ],
)
def test_the_smallest_set_serves(  # noqa: PLR0917
    run, held, asked, served, worst, reached
):
    (found,) = run(**asked).few
    assert kinds(held()) == served
    assert (found.kernel_id, found.buckets, found.before) == ("pkg.norm", 3, 3)
    assert found.after == len(set(served))
    assert found.worst_regret == pytest.approx(worst)
    assert (found.reached, found.reason, found.failed) == (reached, "", {})
    own = {LOW: "a", MIDDLE: "b", HIGH: "c"}
    moved = [k for k, now in zip(own, served, strict=True) if now != own[k]]
    assert found.changed.keys() == buckets(*moved)


def test_what_the_entries_say(run, held, folders):
    run()
    before, whole = held(), shard_bytes(folders)
    device = Device()
    summary = run(regret=0.05, device=device)
    after = held()
    entry, old = after[HIGH], before[HIGH]
    assert (entry.config, entry.default) == (config("b"), False)
    assert (entry.latency_us, entry.default_us, entry.spread) == (10.3, 20.0, 0.0)
    assert entry.resources["shared"] == ord("b")
    assert list(entry.alternates) == [config("c"), config("a"), config("d")]
    assert entry.note == "one of 1 config for 3 buckets: at most 3.0 % over its own best"
    few = {"configs": 1, "buckets": 3, "own": config("c")}
    assert thaw(entry.search) == {**thaw(old.search), "few": few}
    assert (entry.source, entry.space, entry.layout) == (old.source, old.space, old.layout)
    assert not entry.near_tie
    assert [thaw(row) for row in entry.probes] == [
        {"shape": {**row["shape"]}, "latency_us": 10.3, "default_us": 20.0, "regret": 0.03}
        for row in map(thaw, old.probes)
    ]
    # The entry of the bucket whose own best serves is as it was, byte for byte.
    kept = [line for line in whole.splitlines() if MIDDLE.encode() in line[:80]]
    assert kept == [line for line in shard_bytes(folders).splitlines() if b"65..512|" in line[:80]]
    assert verify(folders["into"]) == ()
    # The results of the run, in which all were held, show the new ones.
    shown = {r.item.bucket.key: (r.status, r.entry) for r in summary.results}
    assert shown == {key: ("held", after[key]) for key in after}
    # One race for each point, the default first.
    points = [64, 1, 8, 512, 65, 182, 4096, 513, 1449]
    assert device.measured == [(m, ["d", "a", "b", "c"]) for m in points]


def test_a_later_choice_starts_from_the_buckets_own_best(run, held):
    run()
    first = held()
    run(most=1)
    assert kinds(held()) == ["b"] * 3
    (found,) = run(most=2).few
    assert kinds(held()) == ["b", "b", "c"]
    assert found.changed.keys() == buckets(HIGH, LOW) - buckets(LOW)
    (found,) = run(most=5).few
    assert told(found) == (2, 3, buckets(LOW), True, "")
    again = held()
    assert kinds(again) == ["a", "b", "c"]
    for key, entry in again.items():
        assert (entry.note, entry.search) == (None, first[key].search)
        assert (entry.latency_us, entry.resources) == (
            first[key].latency_us,
            first[key].resources,
        )


def test_where_nothing_can_be_gained_nothing_is_measured(run, folders):
    run()
    device, before = Device(), shard_bytes(folders)
    (found,) = run(most=3, device=device).few
    assert told(found) == (3, 3, set(), True, "")
    assert found.worst_regret == 0.0
    assert (device.measured, shard_bytes(folders)) == ([], before)


def test_the_default_is_a_config_like_any_other(run, held):
    """Where it is as good as what won in two buckets, one bucket's winner being it."""
    table = {
        64: {"d": 10.0, "a": 11.0, "b": 30.0, "c": 30.0},
        512: {"d": 10.1, "a": 10.0, "b": 30.0, "c": 30.0},
        4096: {"d": 10.2, "a": 12.0, "b": 10.0, "c": 30.0},
    }
    run(device=Device(recordings(table)))
    assert [held()[key].default for key in (LOW, MIDDLE, HIGH)] == [True, False, False]
    (found,) = run(most=1, device=Device(recordings(table))).few
    assert told(found) == (3, 1, buckets(MIDDLE, HIGH), True, "")
    entry = held()[HIGH]
    assert (entry.config, entry.default) == (config("d"), True)
    assert entry.latency_us == entry.default_us == 10.2
    assert entry.alternates[0] == config("b")
    # And back.
    run(most=3, device=Device(recordings(table)))
    assert kinds(held()) == ["d", "a", "b"]
    assert [held()[key].default for key in (LOW, MIDDLE, HIGH)] == [True, False, False]


def test_the_default_is_each_shapes_own(run, held):
    """`b` is the default at the middle bucket only: there it is one column with the default."""
    table = {m: {**row, "d": 10.05} for m, row in TABLE.items()}
    defaults = {512: "b", 65: "b", 182: "b"}
    device = lambda: Device(recordings(table, defaults=defaults))
    run(device=device())
    assert [e.default for e in map(held().get, (LOW, MIDDLE, HIGH))] == [False, True, False]
    (found,) = run(most=1, device=device()).few
    assert found.worst_regret == pytest.approx(0.005)
    entries = held()
    assert kinds(entries) == ["d", "b", "d"]
    assert all(entry.default for entry in entries.values())


def test_a_bucket_whose_own_best_is_the_default(run, held):
    """It isn't lost: an alternate where it is one config, and `search.few` says so anyway."""
    table = {
        64: {"d": 10.0, "a": 10.1, "b": 30.0, "c": 30.0},
        512: {"d": 20.0, "a": 10.0, "b": 30.0, "c": 30.0},
        4096: {"d": 10.0, "a": 10.1, "b": 30.0, "c": 30.0},
    }
    device = lambda: Device(recordings(table, {513: {"c": 9.0}}, defaults={513: "c"}))
    run(device=device())
    assert kinds(held()) == ["d", "a", "d"]
    run(most=1, device=device())
    entries = held()
    assert kinds(entries) == ["a"] * 3
    assert entries[LOW].alternates[0] == config("d")
    assert entries[LOW].search["few"]["own"] is entries[HIGH].search["few"]["own"] is None
    assert config("d") not in entries[HIGH].alternates
    assert entries[LOW].note.endswith(
        "at most 1.0 % over its own best, 1.0 % slower than Helion's default at worst"
    )
    run(most=2, device=device())
    assert [e.default for e in map(held().get, (LOW, MIDDLE, HIGH))] == [True, False, True]


def test_a_config_costs_what_it_costs_at_the_worst_point(run, held):
    """`b` is 1 % over the best at the low bucket's tuning point, and 10 % at a probe."""
    device = lambda: Device(recordings(points={8: {"b": 11.0}}))
    run(device=device())
    (found,) = run(regret=0.05, device=device()).few
    assert kinds(held()) == ["a", "b", "b"]
    assert told(found) == (3, 2, buckets(HIGH), True, "")
    assert found.worst_regret == pytest.approx(0.03)


def test_a_config_that_fails_at_a_probe_serves_nothing_there(run, held):
    device = lambda: Device(recordings(points={1: {"b": None}}))
    run(device=device())
    (found,) = run(regret=0.9, device=device()).few
    assert kinds(held()) == ["c", "c", "c"]
    assert found.worst_regret == pytest.approx(0.3)


def raising(error, at):
    def trouble(m):
        if m == at:
            raise error

    return trouble


def test_a_bucket_that_can_not_be_measured_stays_as_it_is(run, held, caplog):
    run()
    before = held()
    broken = Device(trouble=raising(TuningError("inputs= failed: boom"), 4096))
    with caplog.at_level(logging.WARNING, "lfbo_aot"):
        (found,) = run(most=1, device=broken).few
    assert found.failed == {Bucket.parse(HIGH): "inputs= failed: boom"}
    assert told(found) == (3, 2, buckets(LOW), False, "")
    assert kinds(held()) == ["b", "b", "c"]
    assert held()[HIGH] == before[HIGH]
    assert f"pkg.norm {HIGH}: not measured with other buckets' configs" in caplog.text
    assert "inputs= failed: boom" in caplog.text


def test_a_bucket_whose_own_best_fails_now_stays_as_it_is(run, held):
    run()
    now = recordings(points={1449: {"c": None}})
    (found,) = run(regret=0.05, device=Device(now)).few
    assert found.failed == {
        Bucket.parse(HIGH): "its own best doesn't run at m=1449 dtype=float32: wrong_result: 3 of 4"
    }
    assert found.reached  # the two others are within it, and this one has its own best
    assert kinds(held()) == ["b", "b", "c"]


def test_with_one_bucket_left_there_is_no_choice(run, folders):
    run()
    before = shard_bytes(folders)

    def trouble(m):
        if m != 64 and m > 8:
            msg = "boom"
            raise TuningError(msg)

    (found,) = run(most=1, device=Device(trouble=trouble)).few
    assert told(found) == (3, 3, set(), False, "fewer than two buckets could be measured")
    assert found.worst_regret is None
    assert len(found.failed) == 2
    assert shard_bytes(folders) == before


def test_without_time_nothing_changes_and_all_is_held(run, folders):
    run()
    before = shard_bytes(folders)
    device = Device()
    summary = run(most=1, device=device, budget_s=0.0)
    (found,) = summary.few
    assert told(found) == (3, 3, set(), False, "the budget is spent")
    assert (summary.complete, device.measured) == (True, [])
    assert shard_bytes(folders) == before


def test_time_that_is_up_in_between(run, folders):
    run()
    before = shard_bytes(folders)
    device = Device()
    device.trouble = lambda m: m == 512 and setattr(device, "_now_s", 1e9)
    summary = run(most=1, device=device, budget_s=60.0)
    assert told(summary.few[0]) == (3, 3, set(), False, "the budget is spent")
    assert [m for m, _ in device.measured] == [64, 1, 8, 512]
    assert shard_bytes(folders) == before


def test_a_searched_budget_leaves_time_for_the_choice(run, held):
    """A search that would go on to the budget's end is ended before it."""
    summary = run(most=1, budget_s=30.0, per_bucket_s=None, trials=None)
    assert summary.complete
    assert told(summary.few[0])[1:] == (1, buckets(LOW, HIGH), True, "")
    assert kinds(held()) == ["b"] * 3


def test_a_kill_loses_nothing(run, folders, held):
    run()
    before = shard_bytes(folders)
    with pytest.raises(KeyboardInterrupt):
        run(most=1, device=Device(trouble=raising(KeyboardInterrupt(), 513)))
    assert shard_bytes(folders) == before
    run(most=1)
    assert kinds(held()) == ["b"] * 3


def change(folders, spec, key, entry):
    changed = {"pkg.norm": {(H200, Bucket.parse(key)): entry}}
    merge(folders["into"], changed, [Declaration.of(spec)])


def test_a_pinned_entry_takes_no_part(run, held, folders, spec):
    run()
    pinned = replace(held()[MIDDLE], pinned=True)
    change(folders, spec, MIDDLE, pinned)
    device = Device()
    (found,) = run(most=1, device=device).few
    assert (found.buckets, found.before, found.after) == (2, 2, 1)
    assert {m for m, _ in device.measured}.isdisjoint({512, 65, 182})
    assert held()[MIDDLE] == pinned
    # With the winners of these two alone, `c` is the one of least worst regret.
    assert kinds(held()) == ["c", "b", "c"]


@pytest.mark.parametrize("changed", [{"status": "imported"}, {"source": "sha256:01d"}])
def test_what_does_not_hold_takes_no_part(run, held, folders, spec, changed):
    """It is tuned again by a run that has the time; this one hasn't."""
    run()
    stale = replace(held()[MIDDLE], **changed)
    change(folders, spec, MIDDLE, stale)
    broken = Device(trouble=lambda m: None)
    broken.open = lambda s, shape: (
        Device.open(broken, s, shape) if shape["m"] != 512 else raising(TuningError("no"), 512)(512)
    )
    summary = run(most=1, device=broken)
    assert [r.status for r in summary.results] == ["held", "held", "failed"]
    assert summary.few[0].buckets == 2
    assert held()[MIDDLE] == stale
    assert kinds(held()) == ["c", "b", "c"]


def test_an_entry_that_was_changed_meanwhile_is_left_alone(run, held, folders, spec, caplog):
    run()
    pinned = replace(held()[LOW], pinned=True)
    pin = lambda m: m == 4096 and change(folders, spec, LOW, pinned)
    with caplog.at_level(logging.WARNING, "lfbo_aot"):
        (found,) = run(most=1, device=Device(trouble=pin)).few
    assert told(found) == (3, 2, buckets(HIGH), False, "")
    assert held()[LOW] == pinned
    assert kinds(held()) == ["a", "b", "b"]
    assert f"NVIDIA H200|{LOW}: changed meanwhile" in caplog.text


def test_only_the_buckets_of_the_plan_take_part(run, held):
    run()
    device = Device()
    (found,) = run(most=1, device=device, where={"m": [1, 512]}).few
    assert (found.buckets, found.before, found.after) == (2, 2, 1)
    assert kinds(held()) == ["b", "b", "c"]


def test_a_kernel_with_one_bucket_has_no_part_in_it(run):
    assert run(most=1, where={"m": [1]}).few == []


def test_kernels_are_chosen_for_one_by_one(run, held, make_spec_of):
    other = make_spec_of("pkg.other", dims=DIMS)
    specs = [make_spec_of(dims=DIMS), other]
    summary = run(most=1, specs=specs)
    assert [one.kernel_id for one in summary.few] == ["pkg.norm", "pkg.other"]
    assert kinds(held("pkg.other")) == ["b"] * 3


class Two(Device):
    """Two stations on one clock."""

    def __init__(self, **options):
        super().__init__(**options)
        self.second = Device(device_id=self.id)
        self.second.clock = self.clock

    @property
    def stations(self):
        return (self, self.second)


def test_a_station_that_is_lost_costs_its_bucket_only(run, held):
    run()
    device = Two(trouble=lambda m: (_ for _ in ()).throw(DeviceLostError("the GPU is gone")))
    (found,) = run(most=1, device=device).few
    assert list(found.failed.values()) == ["the GPU is gone"]
    assert len(found.changed) == 1
    assert device.measured == []
    assert len(set(kinds(held()))) == 2


def test_without_a_station_nothing_changes(run, folders):
    run()
    before = shard_bytes(folders)
    lost = Device(trouble=raising(DeviceLostError("the GPU is gone"), 64))
    (found,) = run(most=1, device=lost).few
    assert told(found) == (3, 3, set(), False, "no station is left")
    assert shard_bytes(folders) == before


def test_another_run_of_a_kernel_that_is_held(run, folders):
    run()

    def nested(m):
        if m != 64:
            return
        with pytest.raises(JournalBusyError):
            run(most=1)

    (found,) = run(most=1, device=Device(trouble=nested)).few
    assert found.after == 1


def test_damage_is_found_before_anything_is_measured(run, folders):
    run()
    shard = folders["into"] / "sm90" / "pkg.norm.jsonl"
    shard.write_bytes(shard.read_bytes()[:-9])
    device = Device()
    with pytest.raises(DatabaseError, match=r"pkg\.norm\.jsonl:3: "):
        run(most=1, device=device, where={"m": [1, 65]})
    assert device.measured == []
