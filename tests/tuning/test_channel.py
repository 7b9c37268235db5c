from __future__ import annotations

import math
import socket
import threading

import pytest

from lfbo_aot.tuning.channel import Channel


@pytest.fixture
def ends():
    ours, theirs = socket.socketpair()
    yield Channel(ours), theirs
    theirs.close()
    ours.close()


def test_messages_come_whole_and_in_order(ends):
    here, raw = ends
    there = Channel(raw)
    big = {"space": "x" * 3_000_000}
    sender = threading.Thread(target=lambda: [there.send(m) for m in ({"a": 1}, big, {"b": "ü"})])
    sender.start()
    assert [here.receive() for _ in range(3)] == [{"a": 1}, big, {"b": "ü"}]
    sender.join()


def test_pieces_are_put_together(ends):
    here, raw = ends
    raw.sendall(b'{"a": [1,')
    raw.sendall(b' 2]}\n{"b"')
    raw.sendall(b": 3}\n")
    assert here.receive() == {"a": [1, 2]}
    assert here.receive() == {"b": 3}


def test_numbers_that_are_none_get_through(ends):
    here, raw = ends
    Channel(raw).send({"nan": math.nan, "inf": math.inf})
    found = here.receive()
    assert math.isnan(found["nan"])
    assert found["inf"] == math.inf


@pytest.mark.parametrize("text", [b"", b'{"a": 1', b"nonsense\n", b"[1]\n", b"\xff\n"])
def test_an_end_in_the_middle_or_nonsense_is_an_end(ends, text):
    here, raw = ends
    raw.sendall(text)
    raw.shutdown(socket.SHUT_WR)
    assert here.receive() is None


def test_sending_to_nobody_raises_and_closing_twice_does_not(ends):
    here, raw = ends
    raw.close()
    with pytest.raises(OSError):
        here.send({"a": 1})
    here.close()
    here.close()
