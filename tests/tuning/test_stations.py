from __future__ import annotations

import threading

import pytest

from lfbo_aot.tuning.stations import Stations


def test_each_is_given_to_one_at_a_time_and_comes_back():
    stations = Stations(["a", "b"])
    with stations.one() as first, stations.one() as second:
        assert {first, second} == {"a", "b"}
    with stations.one() as third:
        assert third in {"a", "b"}
    assert stations.lost == ""


def test_one_comes_back_whatever_happens_with_it():
    stations = Stations(["a"])
    with pytest.raises(ZeroDivisionError), stations.one():
        1 / 0  # noqa: B018
    with stations.one() as again:
        assert again == "a"


def test_a_lost_one_is_not_handed_out_again():
    stations = Stations(["a", "b"])
    with stations.one() as first:
        stations.lose(first, "no GPU")
        stations.lose(first, "said twice")
    seen = []
    for _ in range(3):
        with stations.one() as other:
            seen.append(other)
    assert seen == ["b"] * 3
    assert stations.lost == "no GPU"


def carried_out(stations, tasks, lose=()):
    """What each of so many threads was given; those in `lose` lose what they have."""
    seen, held, doubled = [], set(), []
    lock, all_there = threading.Lock(), threading.Barrier(tasks)

    def work():
        all_there.wait()
        with stations.one() as station:
            with lock:
                if station is not None and station in held:
                    doubled.append(station)
                held.add(station)
                seen.append(station)
            if station in lose:
                stations.lose(station, f"{station} is gone")
            with lock:
                held.discard(station)

    threads = [threading.Thread(target=work) for _ in range(tasks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
        assert not thread.is_alive()
    assert doubled == []
    return seen


def test_more_threads_than_stations():
    seen = carried_out(Stations(["a", "b", "c"]), 24)
    assert len(seen) == 24
    assert set(seen) <= {"a", "b", "c"}


def test_threads_that_lose_one():
    seen = carried_out(Stations(["a", "b"]), 12, lose=("a",))
    assert sorted(seen) == ["a"] + ["b"] * 11


def test_threads_that_lose_all_are_all_told():
    """Those that wait, too."""
    stations = Stations(["a", "b"])
    seen = carried_out(stations, 12, lose=("a", "b"))
    assert sorted(seen, key=str) == [None] * 10 + ["a", "b"]
    assert stations.lost in {"a is gone", "b is gone"}
