"""Messages between the orchestrator and a worker: JSON lines over a socket pair.

JSON rather than pickle: a worker runs code under test, and nothing that it writes is executed here.
"""

from __future__ import annotations

import contextlib
import json
import socket
from typing import Any

Message = dict[str, Any]


class Channel:
    """One end of a conversation; one message a line."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._buffer = bytearray()

    @classmethod
    def from_fd(cls, fd: int) -> Channel:
        return cls(socket.socket(fileno=fd))

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, message: Message) -> None:
        """Raises OSError where the other end is gone."""
        text = json.dumps(message, separators=(",", ":"))
        self._socket.sendall(text.encode() + b"\n")

    def receive(self) -> Message | None:
        """The next message, waiting for it; None once the other end is gone, or talks nonsense."""
        while (end := self._buffer.find(b"\n")) < 0:
            try:
                data = self._socket.recv(1 << 20)
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
