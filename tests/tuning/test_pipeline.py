"""Who compiles, who is measured, and when: with a simulated clock."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

SECONDS = (1.0, 2.5, 0.7, 1.6, 3.1)


@pytest.fixture
def simulation(simulated):
    return simulated.Simulation


@pytest.fixture
def candidates(simulated):
    """So many candidates, each with a code of its own, of uneven length."""

    def make(count, name="c", **words):
        found = []
        for n in range(count):
            each = {"compile_s": SECONDS[n % len(SECONDS)], **words}
            found.append(simulated.Candidate(f"{name}{n}", **each))
        return found

    return make


def busy_share(run, seconds):
    usage = run.pipeline.usage.to_json()
    return usage[seconds] / usage["span_s"]


def test_the_first_binary_is_measured_while_others_compile(simulation, candidates):
    run = simulation(slots=4)
    search = run.open(candidates(40))
    run.run()
    ready = {code: at for at, code in run.compilers.compiled}
    began = [start for start, _, _ in run.gpus[0].measured]
    assert began[0] == min(ready.values()) < max(ready.values())
    # Each began when it was ready, or when the one before it was over.
    for (before, _, _), (start, _, code) in pairwise(run.gpus[0].measured):
        assert start == pytest.approx(max(ready[code], before + 0.1))
    assert {o.status for _, o in search.outcomes.values()} == {"ok"}
    assert sorted(search.outcomes) == list(range(40))
    assert run.pipeline.usage.ready_wait_s == 0.0
    assert busy_share(run, "either_busy_s") >= 0.95
    assert busy_share(run, "compile_busy_s") >= 0.95


def test_compilers_are_full_while_there_is_something_to_compile(simulation, candidates):
    run = simulation(slots=4)
    run.open(candidates(40))
    run.run(until=15.0)
    usage = run.pipeline.usage.to_json()
    assert usage["compile_slots_s"] == pytest.approx(4 * usage["span_s"], abs=1e-6)


def test_where_the_gpu_is_slower_it_never_idles_and_few_binaries_wait(simulation, candidates):
    run = simulation(slots=4)
    run.open(candidates(30, compile_s=0.2, measure_s=1.0))
    most = 0
    for second in range(60):
        run.run(until=float(second))
        most = max(most, run.gpus[0].queue.pending("measure"))
    assert most <= 4 + 4 + 2
    assert busy_share(run.run(), "gpu_busy_s") >= 0.95
    assert run.pipeline.usage.ready_wait_s == 0.0
    starts = [start for start, _, _ in run.gpus[0].measured]
    assert {round(b - a, 6) for a, b in pairwise(starts)} == {1.0}


def test_a_hopeless_compilation_holds_one_compiler_until_the_learnt_deadline(
    simulation, simulated, candidates
):
    hopeless = simulated.Candidate("hopeless", codegen_s=0.0, compile_s=1000.0)
    plain = candidates(40, codegen_s=0.0, compile_s=1.0)
    run = simulation(slots=3, compile_s=60.0)
    search = run.open([*plain[:20], hopeless, *plain[20:]])
    run.run()
    ended, outcome = search.outcomes[20]
    # Three times what the slow ones took.
    assert (outcome.status, outcome.error) == ("compile_timeout", "killed after 3.0 s")
    began = next(at for at, _, ticket in run.compilers.started if ticket == 20)
    assert ended - began == pytest.approx(3.0, abs=0.02)
    # Forty seconds of others at two or three compilers: nobody waited for it.
    assert run.compilers.started[-1][0] == pytest.approx(began + (3 + 38 - 20) / 3, abs=1.01)
    assert run.pipeline.usage.ready_wait_s == 0.0
    assert sum(o.status == "ok" for _, o in search.outcomes.values()) == 40


@pytest.mark.parametrize(
    ("plain_s", "limit_s"),
    [(0.01, 1.0), (1.0, 3.0), (4.0, 8.0)],
    ids=["no less than a second", "learnt", "no more than was given"],
)
def test_deadlines_are_learnt_within_bounds(simulation, simulated, candidates, plain_s, limit_s):
    plain = candidates(12, codegen_s=0.0, compile_s=plain_s)
    run = simulation(slots=1, compile_s=8.0)
    hopeless = simulated.Candidate("hopeless", codegen_s=0.0, compile_s=1000.0)
    search = run.open([*plain, hopeless]).outcomes
    run.run()
    assert search[12][1].error == f"killed after {limit_s:.1f} s"


def test_deadlines_are_not_learnt_from_eleven_nor_from_the_killed(
    simulation, simulated, candidates
):
    plain = candidates(12, codegen_s=0.0, compile_s=1.0)
    hopeless = [
        simulated.Candidate(f"hopeless{n}", codegen_s=0.0, compile_s=1000.0) for n in range(14)
    ]
    failing = [
        simulated.Candidate(f"bad{n}", compile_s=0.1, compiles="compile_error") for n in range(9)
    ]
    run = simulation(slots=1, compile_s=8.0)
    search = run.open([*plain[:11], *failing, *hopeless[:13], plain[11], hopeless[13]])
    run.run()
    errors = [o.error for _, o in search.outcomes.values() if o.status == "compile_timeout"]
    assert errors == ["killed after 8.0 s"] * 13 + ["killed after 3.0 s"]


def test_deadlines_are_learnt_by_kernel(simulation, simulated, candidates):
    run = simulation(slots=1, compile_s=8.0)
    run.open(candidates(12, codegen_s=0.0, compile_s=1.0))
    run.run()
    hopeless = simulated.Candidate("hopeless", codegen_s=0.0, compile_s=1000.0)
    same, other = run.open([hopeless]), run.open([hopeless], kernel="pkg.other")
    run.run()
    assert same.outcomes[0][1].error == "killed after 3.0 s"
    assert other.outcomes[0][1].error == "killed after 8.0 s"


def test_equal_code_is_compiled_and_measured_once(simulation, simulated):
    same = simulated.Candidate("same", latency_us=7.0)
    run = simulation(slots=3)
    search = run.open([same] * 5 + [simulated.Candidate("other", compile_s=4.0)] + [same])
    run.run()
    assert [code for _, code in run.compilers.compiled].count("same") == 1
    assert [code for _, _, code in run.gpus[0].measured].count("same") == 1
    found = [search.outcomes[n][1] for n in (0, 1, 2, 3, 4, 6)]
    assert sorted(o.status for o in found) == ["duplicate"] * 5 + ["ok"]
    assert {o.latency_us for o in found} == {7.0}
    assert [o.config for o in found] == [{"ticket": n} for n in (0, 1, 2, 3, 4, 6)]
    # They held no compiler meanwhile.
    assert run.compilers.started[-1][0] <= 0.1 * 3 + 1.0 + 1.5


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ({"compiles": "compile_error"}, "compile_error"),
        ({"compile_s": 99.0}, "compile_timeout"),
        ({"measures": "wrong_result"}, "wrong_result"),
        ({"measures": "dies"}, "crash"),
        ({"measures": "hangs"}, "timeout"),
    ],
    ids=["compile error", "compile timeout", "wrong", "crash", "hang"],
)
def test_equal_code_fails_once_for_all(simulation, simulated, words, status):
    run = simulation(slots=4)
    search = run.open([simulated.Candidate("same", **words)] * 6)
    run.run()
    assert [o.status for _, o in search.outcomes.values()] == [status] * 6
    assert len({o.error for _, o in search.outcomes.values()}) == 1
    assert len(run.gpus[0].measured) == (not words.keys() & {"compiles", "compile_s"})


def test_one_that_is_killed_while_it_learns_that_its_code_is_known(simulation, simulated):
    """It may not spoil what the first one with the code comes to."""
    first = simulated.Candidate("same", codegen_s=0.1, compile_s=3.0)
    slow = simulated.Candidate("same", codegen_s=5.5, compile_s=1.0, deaf=True)
    late = simulated.Candidate("same", codegen_s=6.0)
    run = simulation(slots=2, compile_s=5.0)
    search = run.open([first, slow, late])
    run.run()
    assert run.compilers.kills != []
    assert search.status(0) == "ok"
    assert search.status(1) == "duplicate"


def test_one_that_finishes_although_it_was_killed(simulation, simulated):
    run = simulation(slots=1, compile_s=5.0)
    deaf = simulated.Candidate("deaf", codegen_s=0.0, compile_s=6.0, deaf=True)
    search = run.open([deaf, simulated.Candidate("other"), deaf])
    run.run()
    assert len(run.compilers.kills) == 1
    outcome = search.outcomes[0][1]
    assert (outcome.status, outcome.error) == ("compile_timeout", "killed after 6.0 s")
    assert (search.status(1), search.status(2)) == ("ok", "compile_timeout")
    assert [code for _, _, code in run.gpus[0].measured] == ["other"]


def test_the_bucket_that_was_opened_first_goes_first(simulation, candidates):
    run = simulation(slots=2)
    first = run.open(candidates(9, name="a", compile_s=1.0))
    second = run.open(candidates(9, name="b", compile_s=1.0))
    run.run()
    buckets = [bucket for _, bucket, _ in run.compilers.started]
    assert buckets == [first.bucket] * 9 + [second.bucket] * 9
    assert max(at for at, _ in first.outcomes.values()) < max(
        at for at, _ in second.outcomes.values()
    )


def test_two_gpus_share_the_compilers(simulation, candidates):
    run = simulation(gpus=2, slots=4)
    one = run.open(candidates(12, name="a", compile_s=1.0), gpu=0)
    two = run.open(candidates(12, name="b", compile_s=1.0), gpu=1)
    run.run()
    assert {bucket for _, bucket, _ in run.gpus[0].measured} == {one.bucket}
    assert {bucket for _, bucket, _ in run.gpus[1].measured} == {two.bucket}
    assert len(one.outcomes) == len(two.outcomes) == 12
    # 24 seconds of compiling at four compilers.
    assert run.compilers.started[-1][0] < 24 * 1.1 / 4 + 1.0 + 0.5
    assert run.pipeline.usage.ready_wait_s == 0.0


def test_what_is_compiled_only_is_not_measured(simulation, simulated):
    run = simulation()
    search = run.open([])
    run.run()
    for ticket, code in [(-2, "a"), (-3, "b"), (-4, "a")]:
        what = {"config": simulated.Candidate(code)}
        run.pipeline.submit(search.bucket, ticket, what, None, run.now)
    run.run()
    assert {t: o.status for t, (_, o) in search.outcomes.items()} == {-2: "ok", -3: "ok", -4: "ok"}
    wanted = {"path": "/p", "function": "f", "digest": "a"}
    assert run.pipeline.code(search.bucket, -2) == run.pipeline.code(search.bucket, -4) == wanted
    assert run.gpus[0].measured == []


def test_ending_the_trials_of_a_bucket(simulation, candidates):
    """The final measurement waits for the trial at hand only; compilers are free at once."""
    run = simulation(slots=4)
    search = run.open(candidates(30, compile_s=0.2, measure_s=1.0))
    run.run(until=8.2)
    search.candidates = []
    measured = len(run.gpus[0].measured)
    run.pipeline.abandon(search.bucket)
    run.ask("final", search.bucket)
    run.run()
    assert run.answers[-1][1].reply == {"samples": []}
    assert run.answers[-1][0] < 8.2 + 2 * 1.0 + 2.0
    assert len(run.gpus[0].measured) <= measured + 1
    assert run.left == []


@pytest.mark.parametrize("at", [0.2, 1.2, 1.6, 2.0, 3.3, 4.9, 7.0])
def test_closing_a_bucket_leaves_nothing_behind(simulation, simulated, candidates, at):
    """Wherever its candidates are; what compiles is taken from it at once, answers or not."""
    run = simulation(slots=3)
    mixed = [
        *candidates(5, measure_s=0.7),
        simulated.Candidate("c0"),
        simulated.Candidate("deaf", compile_s=9.0, deaf=True),
        *candidates(20, name="d", measure_s=0.7),
    ]
    doomed = run.open(mixed)
    run.run(until=at)
    other = run.open(candidates(6, name="o"))
    run.close(doomed)
    assert [key for key in run.pipeline._running if key[0] == doomed.bucket] == []
    started = len(run.compilers.started)
    run.run()
    assert {bucket for _, bucket, _ in run.compilers.started[started:]} <= {other.bucket}
    assert {o.status for _, o in other.outcomes.values()} == {"ok"}
    assert run.left == []
    # The worker has given its memory back.
    assert run.gpus[0].opened == {other.bucket}
    assert list(run.pipeline._buckets) == [other.bucket]


def test_compilers_of_a_closed_bucket_go_to_the_next_at_once(simulation, candidates):
    run = simulation(slots=2)
    doomed = run.open(candidates(8, compile_s=4.0))
    other = run.open(candidates(2, name="o"))
    run.run(until=3.0)
    run.close(doomed)
    run.run(until=3.0)
    assert [s for s in run.compilers.started if s[1] == other.bucket] == [
        (3.0, other.bucket, 0),
        (3.0, other.bucket, 1),
    ]


ODD = st.sampled_from(
    [
        *[{}] * 6,
        {"compiles": "compile_error"},
        {"compiles": "invalid"},
        {"compile_s": 500.0},
        {"compile_s": 7.0, "deaf": True},
        {"measures": "wrong_result"},
        {"measures": "dies"},
        {"measures": "hangs"},
    ]
)
PLANS = st.lists(
    st.tuples(st.integers(0, 9), st.sampled_from(SECONDS), st.sampled_from(SECONDS), ODD),
    min_size=1,
    max_size=14,
)


@settings(max_examples=120, deadline=None)
@given(
    plans=st.lists(PLANS, min_size=1, max_size=3),
    gpus=st.integers(1, 2),
    slots=st.integers(1, 5),
    losses=st.lists(st.tuples(st.floats(1.6, 30.0), st.integers(0, 2)), max_size=2),
    closing=st.none() | st.floats(0.5, 25.0),
)
def test_every_candidate_has_one_outcome_whatever_goes_wrong(  # noqa: PLR0917
    simulated, plans, gpus, slots, losses, closing
):
    run = simulated.Simulation(gpus=gpus, slots=slots)
    searches = []
    for number, plan in enumerate(plans):
        made = [
            simulated.Candidate(
                f"{number}-{code}", **{"compile_s": compile_s, "measure_s": measure_s, **odd}
            )
            for code, compile_s, measure_s, odd in plan
        ]
        searches.append(run.open(made, gpu=number % gpus))
    ends = [(at, "lose", which) for at, which in losses]
    ends += [] if closing is None else [(closing, "close", 0)]
    for at, what, which in sorted(ends):
        run.run(until=at)
        search = searches[which % len(searches)]
        if search not in run.searches:
            continue
        if what == "close":
            run.close(search)
        else:
            run.compilers.lose(search.bucket)
    run.run()
    assert run.left == []
    for search in run.searches:
        assert sorted(search.outcomes) == list(range(len(search.candidates)))
    faults = {odd.get("measures") for plan in plans for *_, odd in plan} & {"dies", "hangs"}
    if not faults:
        assert run.pipeline.usage.ready_wait_s == pytest.approx(0.0)
        # Each code is measured once, but where a server was lost with what it knew.
        measured = [code for gpu in run.gpus for _, _, code in gpu.measured]
        assert len(measured) == len(set(measured))
