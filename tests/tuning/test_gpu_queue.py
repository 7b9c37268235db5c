"""One GPU's jobs without any process: what is sent, and which job an answer belongs to."""

from __future__ import annotations

import pytest

from lfbo_aot.tuning.devices.gpu_queue import GpuJob
from lfbo_aot.tuning.devices.gpu_queue import GpuQueue


class Worker:
    """Remembers what it was sent since it was started."""

    def __init__(self):
        self.starts = []
        self.restart()
        self.queue = GpuQueue(self.send, self.restart, {"op": "identify"})

    def restart(self):
        self.sent = []
        self.starts.append(self.sent)

    def send(self, message):
        self.sent.append(message["op"])


def job(kind, bucket=1, ticket=0, limit_s=10.0):
    return GpuJob(kind, bucket, ticket, {"op": f"{kind} {bucket}.{ticket}"}, limit_s)


def fine(queue, now_s, times=1):
    found = []
    for _ in range(times):
        found += queue.answered({"reply": {"at": now_s}}, now_s)
    return found


@pytest.fixture
def worker():
    return Worker()


@pytest.fixture
def ready(worker):
    """A worker that is known and has bucket 1 open."""
    worker.queue.begin(0.0)
    fine(worker.queue, 1.0)
    worker.queue.submit(job("open"), 1.0)
    fine(worker.queue, 2.0)
    worker.sent.clear()
    return worker


def told(dones):
    return [(d.job.kind, d.job.bucket, d.job.ticket, d.failure) for d in dones]


def test_nothing_is_sent_before_the_worker_is_known(worker):
    queue = worker.queue
    queue.begin(0.0)
    queue.submit(job("open"), 0.0)
    queue.submit(job("measure"), 0.0)
    assert worker.sent == ["identify"]
    assert (queue.busy, queue.identity) == (False, None)
    assert queue.answered({"reply": {"description": {"arch": 90}}}, 3.0) == []
    assert queue.identity == {"description": {"arch": 90}}
    # What comes after the opening depends on it.
    assert worker.sent == ["identify", "open 1.0"]
    assert queue.busy
    (opened,) = fine(queue, 4.0)
    assert (opened.job.kind, opened.reply, opened.seconds) == ("open", {"at": 4.0}, 1.0)
    assert worker.sent[2:] == ["measure 1.0"]


def test_the_worker_has_the_next_job_while_it_carries_one_out(ready):
    queue = ready.queue
    for ticket in range(4):
        queue.submit(job("measure", ticket=ticket), 2.0 + ticket / 10)
    assert ready.sent == ["measure 1.0", "measure 1.1"]
    assert (queue.pending("measure"), queue.pending("measure", 2)) == (4, 0)
    (first,) = fine(queue, 5.0)
    (second,) = fine(queue, 5.5)
    # Counted from when it was the worker's next, however long it lay there before.
    assert (first.job.ticket, first.seconds) == (0, 3.0)
    assert (second.job.ticket, second.seconds) == (1, 0.5)
    assert len(ready.sent) == 4


def test_an_error_is_an_answer(ready):
    ready.queue.submit(job("final"), 2.0)
    (done,) = ready.queue.answered({"error": "boom"}, 3.0)
    assert (done.failure, done.error, done.reply) == ("error", "boom", None)


def test_a_death_costs_the_job_at_hand_and_the_next_worker_opens_before_it_goes_on(ready):
    queue = ready.queue
    for ticket in range(3):
        queue.submit(job("measure", ticket=ticket), 2.0)
    (done,) = queue.died("exit 1", 2.5)
    assert (done.job.ticket, done.failure, done.error, done.seconds) == (0, "crash", "exit 1", 0.5)
    assert ready.sent == ["identify"]
    assert not queue.busy
    assert fine(queue, 3.0) == []
    assert ready.sent[1:] == ["open 1.0"]
    assert fine(queue, 4.0) == []
    assert ready.sent[2:] == ["measure 1.1", "measure 1.2"]
    assert told(fine(queue, 5.0, 2)) == [("measure", 1, 1, ""), ("measure", 1, 2, "")]


def test_buckets_are_opened_again_only_as_they_are_needed(ready):
    queue = ready.queue
    queue.submit(job("open", 2), 2.0)
    fine(queue, 2.1)
    queue.died("exit 1", 2.5)  # with nothing at hand
    fine(queue, 3.0)
    assert ready.sent == ["identify"]
    queue.submit(job("measure", 2), 3.0)
    queue.submit(job("measure", 1), 3.0)
    assert ready.sent[1:] == ["open 2.0"]
    fine(queue, 4.0)
    # The other one is opened behind the measurement, and nothing goes behind that.
    assert ready.sent[2:] == ["measure 2.0", "open 1.0"]
    fine(queue, 5.0, 2)
    assert ready.sent[4:] == ["measure 1.0"]


def test_a_job_that_takes_too_long(ready):
    queue = ready.queue
    queue.submit(job("measure", ticket=1, limit_s=3.0), 2.0)
    queue.submit(job("measure", ticket=2, limit_s=5.0), 2.0)
    assert queue.ends_s == 5.0
    assert queue.tick(4.999) == []
    (done,) = queue.tick(5.0)
    assert (done.job.ticket, done.failure, done.error) == (1, "timeout", "killed after 3.0 s")
    fine(queue, 6.0, 2)
    assert queue.ends_s == 6.0 + 5.0
    assert told(fine(queue, 7.0)) == [("measure", 1, 2, "")]
    assert queue.ends_s == float("inf")


@pytest.mark.parametrize("how", ["dies", "hangs"])
def test_three_starts_that_fail_are_enough(worker, how):
    queue = worker.queue
    queue.begin(0.0)
    queue.submit(job("open"), 0.0)
    queue.submit(job("close", 7), 0.0)
    done = []
    for start in range(1, 4):
        assert done == []
        done = queue.died(f"exit {start}", 0.0) if how == "dies" else queue.tick(300.0 * start)
    assert told(done) == [("open", 1, 0, "lost"), ("close", 7, 0, "lost")]
    why = {"dies": "crash, exit 1", "hangs": "timeout, killed after 300.0 s"}[how]
    assert queue.lost == f"no GPU worker can be made ready: {why}"
    assert len(worker.starts) == 3
    (late,) = queue.submit(job("measure"), 900.0)
    assert (late.failure, late.error) == ("lost", queue.lost)
    assert queue.tick(9999.0) == []


def test_starts_that_fail_are_forgotten_once_one_has_answered(ready):
    queue = ready.queue
    for _ in range(2):
        queue.died("exit 1", 3.0)
        assert queue.died("exit 2", 4.0) == []
        fine(queue, 5.0)
        queue.submit(job("open", 2), 5.0)
        fine(queue, 6.0)
    assert queue.lost == ""
    queue.died("at work", 7.0)
    queue.died("exit 3", 7.0)
    queue.died("exit 4", 7.0)
    queue.died("exit 5", 7.0)
    assert queue.lost.endswith("crash, exit 3")


def test_a_device_that_says_it_is_none(worker):
    worker.queue.begin(0.0)
    worker.queue.submit(job("open"), 0.0)
    assert told(worker.queue.answered({"error": "no such device"}, 1.0)) == [("open", 1, 0, "lost")]
    assert worker.queue.lost.endswith("no such device")


@pytest.mark.parametrize("how", ["refuses", "dies", "hangs"])
def test_a_bucket_that_can_not_be_opened_again(ready, how):
    queue = ready.queue
    queue.submit(job("open", 2), 2.0)
    fine(queue, 2.0)
    for bucket in (1, 1, 2):
        queue.submit(job("measure", bucket), 2.0)
    queue.died("exit 1", 3.0)
    fine(queue, 4.0)
    done = {
        "refuses": lambda: queue.answered({"error": "no memory"}, 5.0),
        "dies": lambda: queue.died("no memory", 5.0),
        "hangs": lambda: queue.tick(14.0),
    }[how]()
    assert told(done) == [("measure", 1, 0, "gone")]
    assert done[0].error.startswith("the bucket can't be opened again after a fault: ")
    # The other bucket's job is carried out.
    found = fine(queue, 15.0, 3)
    assert told(found) == [("measure", 2, 0, "")]


def test_what_is_dropped_and_what_is_not(ready):
    """A bucket that is closed is so on the device, too."""
    queue = ready.queue
    queue.submit(job("open", 2), 2.0)
    fine(queue, 2.0)
    for ticket in range(4):
        queue.submit(job("measure", ticket=ticket), 2.0)
    queue.submit(job("measure", 2), 2.0)
    queue.drop(1, "measure")
    queue.submit(job("final"), 2.0)
    assert [j.kind for j in queue.waiting] == ["measure", "final"]
    queue.submit(job("close"), 2.0)
    queue.drop(1)
    assert [(j.kind, j.bucket) for j in queue.waiting] == [("measure", 2), ("close", 1)]
    assert told(fine(queue, 3.0, 4))[2:] == [("measure", 2, 0, ""), ("close", 1, 0, "")]
    assert ready.sent[-1] == "close 1.0"


def test_a_bucket_that_was_closed_is_not_opened_again(ready):
    queue = ready.queue
    queue.submit(job("close"), 2.0)
    fine(queue, 3.0)
    queue.died("exit 1", 4.0)
    fine(queue, 5.0)
    queue.submit(job("measure"), 5.0)
    assert ready.sent == ["identify", "measure 1.0"]


def test_an_answer_that_nobody_asked_for(ready):
    assert fine(ready.queue, 3.0) == []
