"""What a fault costs: with a simulated clock."""

from __future__ import annotations

import pytest


@pytest.fixture
def simulation(simulated):
    return simulated.Simulation


@pytest.fixture
def plain(simulated):
    def make(count, name="c", **words):
        return [simulated.Candidate(f"{name}{n}", **words) for n in range(count)]

    return make


def statuses(search):
    return {ticket: outcome.status for ticket, (_, outcome) in sorted(search.outcomes.items())}


def test_a_candidate_that_kills_the_gpu_worker_costs_itself_only(simulation, simulated, plain):
    fatal = simulated.Candidate("fatal", measures="dies")
    run = simulation(slots=4)
    search = run.open([*plain(3), fatal, *plain(6, name="d")])
    run.run()
    assert statuses(search) == {n: "crash" if n == 3 else "ok" for n in range(10)}
    assert search.outcomes[3][1].error == "exit 1"
    assert run.gpus[0].starts == 2
    # Each was measured once, those that had been sent behind it by the next worker.
    measured = [code for _, _, code in run.gpus[0].measured]
    assert sorted(measured) == sorted({*measured})
    assert run.gpus[0].opened == {search.bucket}


def test_what_waits_while_a_worker_starts_counts_as_waiting(simulation, simulated):
    fatal = simulated.Candidate("fatal", measures="dies")
    run = simulation(slots=2)
    run.open([fatal, simulated.Candidate("other")])
    run.run()
    assert run.pipeline.usage.ready_wait_s == pytest.approx(simulated.START_S)


@pytest.mark.parametrize(
    ("goods", "limit_s"), [(3, 20.0), (12, 6.0)], ids=["not learnt yet", "learnt"]
)
def test_a_candidate_that_hangs_on_the_gpu(simulation, simulated, plain, goods, limit_s):
    """Learnt: thirty times what the slowest good one took."""
    run = simulation(slots=1)
    hang = simulated.Candidate("hang", measures="hangs")
    search = run.open([*plain(goods, measure_s=0.2), hang, *plain(2, name="d")])
    run.run()
    found = search.outcomes[goods][1]
    assert (found.status, found.error) == ("timeout", f"killed after {limit_s:.1f} s")
    assert {s for t, s in statuses(search).items() if t != goods} == {"ok"}
    began = next(at for at, _, code in run.gpus[0].measured if code == "hang")
    assert search.outcomes[goods][0] - began == pytest.approx(limit_s)


def test_a_worker_dies_while_it_opens_a_bucket(simulation, plain):
    run = simulation()
    first = run.open(plain(3))
    run.run(until=1.2)  # in the middle of opening
    run.pipeline.gpu_died(0, "exit 1", run.now)
    (done,) = run.pipeline.answers
    assert (done.job.kind, done.failure, done.error) == ("open", "crash", "exit 1")
    run.close(first)
    second = run.open(plain(3))
    run.run()
    assert statuses(second) == dict.fromkeys(range(3), "ok")


def test_a_gpu_that_is_lost_takes_its_own_buckets_only(simulation, simulated, plain):
    run = simulation(gpus=2)
    dies = simulated.Candidate("fatal", compile_s=2.0, measures="dies")
    lost = run.open([*plain(2, name="a"), dies, *plain(20, name="b")], gpu=0)
    other = run.open(plain(30), gpu=1)
    run.run(until=3.0)
    run.gpus[0].breaks = True
    run.run()
    words = "no GPU worker can be made ready: crash, exit 1"
    assert run.pipeline.trouble(lost.bucket) == words
    assert run.gpus[0].starts == 2 + 2  # two more attempts after the first
    assert run.pipeline.trouble(other.bucket) == ""
    assert statuses(other) == dict.fromkeys(range(30), "ok")
    # Whatever is asked of it is answered at once.
    run.answers.clear()
    run.ask("final", lost.bucket)
    run.close(lost)
    run.run()
    assert [(d.job.kind, d.failure, d.error) for _, d in run.answers] == [
        ("final", "lost", words),
        ("close", "lost", words),
    ]
    assert run.left == []


def test_a_bucket_that_can_not_be_opened_again_is_in_trouble_alone(simulation, simulated, plain):
    run = simulation()
    fatal = simulated.Candidate("fatal", compile_s=3.0, measures="dies")
    doomed = run.open([*plain(2, name="a"), fatal, *plain(20, name="b", compile_s=2.0)])
    other = run.open(plain(8))
    run.run(until=3.0)
    run.gpus[0].refuses.add(doomed.bucket)
    run.run()
    assert run.pipeline.trouble(doomed.bucket) == (
        "the bucket can't be opened again after a fault: out of memory"
    )
    assert statuses(other) == dict.fromkeys(range(8), "ok")
    run.close(doomed)
    run.run()
    assert run.left == []


def test_a_lost_compile_server_is_tried_once_more(simulation, plain):
    run = simulation(slots=4, compile_s=2.0)
    search = run.open(plain(10, compile_s=1.0))
    run.run(until=2.0)
    flying = {ticket for _, ticket in run.pipeline._running}
    assert len(flying) == 4
    run.compilers.lose(search.bucket)
    assert run.pipeline._running == {}
    # The time until the next server is there counts for none of them.
    run.run()
    assert statuses(search) == dict.fromkeys(range(10), "ok")
    again = [t for at, _, t in run.compilers.started if at >= 6.0]
    assert flying <= set(again)
    assert run.compilers.kills == []


def test_a_compile_server_that_is_lost_twice(simulation, plain):
    run = simulation(slots=3)
    search = run.open(plain(9, compile_s=2.0))
    run.run(until=2.0)
    first = {ticket for _, ticket in run.pipeline._running}
    run.compilers.lose(search.bucket)
    run.run(until=7.0)
    second = {ticket for _, ticket in run.pipeline._running}
    run.compilers.lose(search.bucket)
    run.run()
    assert (len(first), len(second)) == (3, 3)
    both = first & second
    found = statuses(search)
    assert {t for t, status in found.items() if status == "crash"} == both != set()
    assert {search.outcomes[t][1].error for t in both} == {"ended from outside"}
    assert {status for t, status in found.items() if t not in both} == {"ok"}


def test_other_buckets_compile_while_a_server_is_made(simulation, plain):
    run = simulation(slots=2)
    lost = run.open(plain(8, name="a"))
    other = run.open(plain(6, name="b"))
    run.run(until=3.0)
    run.compilers.lose(lost.bucket)
    run.run(until=3.0 + 3.9)
    assert {b for at, b, _ in run.compilers.started if at >= 3.0} == {other.bucket}
    run.run()
    assert len(lost.outcomes) == 8
    assert len(other.outcomes) == 6


def test_followers_of_code_whose_compiler_was_lost(simulation, simulated):
    """One compiles it again, the others follow that one; none waits for ever."""
    same = simulated.Candidate("same", compile_s=4.0)
    run = simulation(slots=3)
    search = run.open([same] * 5)
    run.run(until=2.5)
    assert len(search.outcomes) == 0
    run.compilers.lose(search.bucket)
    run.run()
    assert sorted(statuses(search).values()) == ["duplicate"] * 4 + ["ok"]
    assert len(run.gpus[0].measured) == 1


def test_code_that_was_measured_before_a_server_was_lost(simulation, simulated):
    """The next server compiles it again, not knowing; it isn't measured again."""
    run = simulation(slots=1)
    same = simulated.Candidate("same", latency_us=3.0)
    search = run.open([same, simulated.Candidate("other", compile_s=4.0), same])
    run.run(until=4.0)
    run.compilers.lose(search.bucket)
    run.run()
    assert statuses(search) == {0: "ok", 1: "ok", 2: "duplicate"}
    assert search.outcomes[2][1].latency_us == 3.0
    assert [code for _, _, code in run.gpus[0].measured] == ["same", "other"]


def test_one_that_was_killed_when_its_server_was_lost(simulation, simulated):
    run = simulation(slots=1, compile_s=2.0)
    deaf = simulated.Candidate("deaf", compile_s=9.0, deaf=True)
    search = run.open([deaf, simulated.Candidate("other")])
    run.run(until=5.0)
    assert len(run.compilers.kills) == 1
    run.compilers.lose(search.bucket)
    run.run()
    assert statuses(search) == {0: "compile_timeout", 1: "ok"}


def test_a_compile_server_that_is_lost_for_good(simulation, plain):
    run = simulation(slots=2)
    doomed = run.open(plain(8, name="a"))
    other = run.open(plain(4, name="b"))
    run.run(until=3.0)
    run.compilers.lose(doomed.bucket, for_good=True)
    assert run.pipeline.trouble(doomed.bucket) == "lost each time"
    run.run()
    assert statuses(other) == dict.fromkeys(range(4), "ok")
    assert run.left == []


def test_what_is_told_of_buckets_that_are_closed(simulation, plain):
    run = simulation()
    search = run.open(plain(3))
    run.run(until=2.0)
    run.close(search)
    for tell in (run.pipeline.server_lost, run.pipeline.server_gone):
        tell(search.bucket, "late", run.now)
    run.pipeline.server_back(search.bucket, run.now)
    run.pipeline.compiled(search.bucket, {"ticket": 0, "status": "ok", "digest": "c0"}, run.now)
    run.run()
    assert run.left == []
    assert run.pipeline._buckets == {}
