from __future__ import annotations

import threading

import pytest

from lfbo_aot.database.journal import Journal
from lfbo_aot.errors import TuningError
from lfbo_aot.tuning.book import Book


@pytest.fixture
def opened(tmp_path):
    """A journal and the book of it, to be made anew at will."""
    path = tmp_path / "pkg.norm.jsonl"
    with Journal(path) as journal:
        yield journal


def record(bucket, session, ticket=0):
    return {
        "kind": "trial",
        "bucket": bucket,
        "session": session,
        "ticket": ticket,
        "point": (1, "a"),
        "status": "ok",
        "latency_us": 10.0,
    }


def test_records_by_bucket_as_they_read_back(opened):
    with Book(opened) as book:
        assert book.buckets() == ()
        assert book.of("m=1") == ()
        for bucket, session in [("m=1", 1), ("m=2", 2), ("m=1", 1)]:
            book.append(record(bucket, session))
        assert book.buckets() == ("m=1", "m=2")
        assert [r["session"] for r in book.of("m=1")] == [1, 1]
        assert book.of("m=2")[0]["point"] == [1, "a"]
    assert [r["bucket"] for r in opened.records()] == ["m=1", "m=2", "m=1"]
    with Book(opened) as again:
        assert again.of("m=1") == book.of("m=1")
        assert again.of("m=2") == book.of("m=2")


def test_sessions_have_numbers_of_their_own(opened):
    with Book(opened) as book:
        assert [book.next_number() for _ in range(3)] == [1, 2, 3]
        book.append(record("m=1", 7))
        assert book.next_number() == 8
    with Book(opened) as again:
        assert again.next_number() == 8


def test_a_view_does_not_grow(opened):
    with Book(opened) as book:
        book.append(record("m=1", 1))
        before = book.of("m=1")
        book.append(record("m=1", 1))
        assert (len(before), len(book.of("m=1"))) == (1, 2)


def test_threads_that_append(opened):
    """Every record whole, those of one thread in its order; no number twice."""
    threads, each, numbers = 6, 60, []
    begin = threading.Barrier(threads)

    def work(bucket):
        begin.wait()
        session = book.next_number()
        numbers.append(session)
        for ticket in range(each):
            book.append(record(bucket, session, ticket))
            assert book.of(bucket)[-1]["ticket"] == ticket

    with Book(opened) as book:
        workers = [threading.Thread(target=work, args=(f"m={n}",)) for n in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(timeout=60)
    assert sorted(numbers) == list(range(1, threads + 1))
    written = list(opened.records())
    assert len(written) == threads * each
    for n in range(threads):
        own = [r for r in written if r["bucket"] == f"m={n}"]
        assert [r["ticket"] for r in own] == list(range(each))
        assert len({r["session"] for r in own}) == 1
        assert list(book.of(f"m={n}")) == own


def test_a_damaged_journal(opened):
    opened.append(record("m=1", 1))
    with opened.path.open("ab") as file:
        file.write(b"[1]\n")
    opened.append(record("m=1", 1))
    with pytest.raises(TuningError, match=r"pkg\.norm\.jsonl:2: "):
        Book(opened)


def append_on(book):
    """The thread that saves has its turn at some time."""
    for ticket in range(100_000):
        book.append(record("m=1", 1, ticket))


def test_a_disk_that_fails_is_told_to_whoever_appends_next(opened, monkeypatch):
    def fails():
        raise OSError(28, "No space left on device")

    with Book(opened) as book:
        monkeypatch.setattr(opened, "sync", fails)
        with pytest.raises(OSError, match="No space left"):
            append_on(book)
        monkeypatch.undo()
