from __future__ import annotations

import math
import os
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


def test_open_files_go_along_with_a_message(ends, tmp_path):
    here, raw = ends
    there = Channel(raw)
    path = tmp_path / "file"
    path.write_text("handed over")
    with path.open() as one, path.open() as two:
        there.send({"op": "fork"}, [one.fileno(), two.fileno()])
    there.send({"op": "next"})
    assert here.take_descriptors() == []
    assert here.receive() == {"op": "fork"}
    first, second = here.take_descriptors()
    assert os.read(first, 99) == b"handed over"
    os.close(first)
    os.close(second)
    assert here.take_descriptors() == []
    assert here.receive() == {"op": "next"}


def test_a_message_that_goes_in_pieces_hands_its_files_over_once(ends):
    here, raw = ends
    there = Channel(raw)
    read, write = os.pipe()
    big = {"arguments": "x" * 3_000_000}
    sender = threading.Thread(target=there.send, args=(big, [write]))
    sender.start()
    assert here.receive() == big
    sender.join()
    (fd,) = here.take_descriptors()
    os.close(write)
    os.write(fd, b"hello")
    os.close(fd)
    assert os.read(read, 99) == b"hello"
    assert os.read(read, 99) == b""
    os.close(read)


def test_whether_something_is_there(ends):
    here, raw = ends
    assert not here.readable()
    raw.sendall(b'{"a": 1}\n{"b": 2}\n{"c"')
    assert here.readable()
    assert here.receive() == {"a": 1}
    # The second one has been read from the socket already.
    assert here.buffered
    assert here.readable()
    assert here.receive() == {"b": 2}
    assert not here.buffered
    assert not here.readable()
    raw.shutdown(socket.SHUT_WR)
    assert here.readable()
    assert here.receive() is None
    here.close()
    assert not here.readable()


def test_a_copy_that_is_forgotten_leaves_the_conversation_as_it_is(ends):
    here, raw = ends
    copy = Channel.from_fd(os.dup(here.fileno()))
    copy.forget()
    there = Channel(raw)
    there.send({"a": 1})
    assert here.receive() == {"a": 1}
    here.send({"b": 2})
    assert there.receive() == {"b": 2}
