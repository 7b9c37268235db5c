"""Messages between the orchestrator and a worker: JSON lines over a socket pair.

JSON rather than pickle: a worker runs code under test, and nothing that it writes is executed here.
"""

from __future__ import annotations

import contextlib
import json
import select
import socket
from typing import TYPE_CHECKING
from typing import Any

if TYPE_CHECKING:
    from collections.abc import Sequence

Message = dict[str, Any]
_DESCRIPTORS = 4  # that may come at a time


class Channel:
    """One end of a conversation; one message a line."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._buffer = bytearray()
        self._descriptors: list[int] = []

    @classmethod
    def from_fd(cls, fd: int) -> Channel:
        return cls(socket.socket(fileno=fd))

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def buffered(self) -> bool:
        """Whether a whole message has been read from the socket and not been received."""
        return b"\n" in self._buffer

    def readable(self) -> bool:
        """Whether `receive` would find something at once, be it the other end's end."""
        if self.fileno() < 0:
            return False
        poll = select.poll()
        poll.register(self.fileno(), select.POLLIN)
        return self.buffered or bool(poll.poll(0))

    def send(self, message: Message, descriptors: Sequence[int] = ()) -> None:
        """Raises OSError where the other end is gone. `descriptors`: open files to hand over."""
        data = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        if descriptors:
            sent = socket.send_fds(self._socket, [data], list(descriptors))
            data = data[sent:]
        self._socket.sendall(data)

    def take_descriptors(self) -> list[int]:
        """The open files that came with what was received so far; the caller closes them."""
        found, self._descriptors = self._descriptors, []
        return found

    def receive(self) -> Message | None:
        """The next message, waiting for it; None once the other end is gone, or talks nonsense."""
        while (end := self._buffer.find(b"\n")) < 0:
            try:
                data, descriptors, _, _ = socket.recv_fds(self._socket, 1 << 20, _DESCRIPTORS)
                self._descriptors += descriptors
            except ConnectionError:
                data = b""
            if not data:
                return None
            self._buffer += data
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        try:
            message = json.loads(line)
        except ValueError:
            return None
        return message if isinstance(message, dict) else None

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def forget(self) -> None:
        """Close this process's copy and leave the conversation as it is: after a fork."""
        self._socket.close()
