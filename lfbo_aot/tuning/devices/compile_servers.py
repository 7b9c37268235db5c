"""The compile worker's process and the servers forked from it, one for each open bucket."""

from __future__ import annotations

import contextlib
import logging
import socket
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass
from dataclasses import field
from typing import TYPE_CHECKING

from lfbo_aot.adapters.standin import disagreement
from lfbo_aot.errors import DeviceLostError
from lfbo_aot.errors import TuningError
from lfbo_aot.tuning.channel import Channel

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Sequence
    from pathlib import Path

    from lfbo_aot.tuning.channel import Message
    from lfbo_aot.tuning.process import WorkerProcess

_START_LIMIT = 3

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Server:
    """A bucket's server: what it was asked to open, and the channel once it has been forked."""

    request: Message
    opening: Future[Message] = field(default_factory=Future)
    channel: Channel | None = None
    ready: bool = False
    failed: str = ""
    """Why there is none any more."""
    asked: deque[tuple[Future[Message], Message]] = field(default_factory=deque)
    """What has no answer yet, candidates aside: of those the owner knows."""
    losses: int = 0


class CompileServers:
    """Starts servers, passes requests on, and starts those that were lost anew.

    Not for several threads at once: the owner holds its lock. From `read` are called
    `compiled(bucket, reply)`, `lost(bucket, error)` when a server has gone with what it compiled,
    `back(bucket)` when the next one is there, `gone(bucket, error)` when there will be none.
    """

    def __init__(
        self,
        start: Callable[[], WorkerProcess],
        claims: Path,
        *,
        preload: Sequence[str] = (),
        compiled: Callable[[int, Message], None],
        lost: Callable[[int, str], None],
        back: Callable[[int], None],
        gone: Callable[[int, str], None],
    ) -> None:
        self._start = start
        self._claims = claims
        self._preload = list(preload)
        self._compiled = compiled
        self._lost = lost
        self._back = back
        self._gone = gone
        self.lost = ""
        """Why nothing can be compiled any more; empty while there is hope."""
        self._servers: dict[int, _Server] = {}
        self._description: Message | None = None
        self._asked: deque[int] = deque()  # buckets whose fork has no answer yet; -1: the device
        self._failed_starts = 0
        self._forks = 0
        self._worker = start()

    def describe(self, description: Message) -> None:
        """Tell what device to compile for; servers are forked from then on.

        A description that was a guess is replaced by one that says otherwise, and all begins anew.
        """
        known = self._description
        if known is not None and known["index"] != description["index"]:
            return  # another GPU of the same kind: one stands for all
        different = "" if known is None else disagreement(known, description)
        if known is not None and not different:
            return
        self._description = description
        if known is None:
            self._set_up()
        else:
            self._worker.kill()
            self._asked.clear()
            self._begin_anew(f"torch knows the device otherwise than its driver: {different}")

    def _set_up(self) -> None:
        if self._description is not None:
            self._asked.append(-1)
            request = {"op": "device", "description": self._description, "preload": self._preload}
            self._worker.send(request)
        for bucket, server in self._servers.items():
            if server.channel is None and not server.failed:
                self._fork(bucket, server)

    def open(self, bucket: int, request: Message) -> Future[Message]:
        """Start a bucket's server; what it answers once the kernel is bound."""
        server = self._servers[bucket] = _Server(request)
        if self.lost:
            self._fail(bucket, server, self.lost)
        elif self._description is not None:
            self._fork(bucket, server)
        return server.opening

    def _fork(self, bucket: int, server: _Server) -> None:
        ours, theirs = socket.socketpair()
        server.channel = Channel(ours)
        self._forks += 1
        claims = self._claims / str(self._forks)  # of an earlier server none is finished any more
        request = {"op": "fork", "claims": str(claims), **server.request}
        self._asked.append(bucket)
        with theirs:
            self._worker.send(request, [theirs.fileno()])

    def close(self, bucket: int) -> None:
        """End a bucket's server, and what it compiles."""
        server = self._servers.pop(bucket, None)
        if server is not None and server.channel is not None:
            server.channel.close()
        if server is not None:
            server.opening.cancel()

    def start(self, bucket: int, request: Message) -> None:
        """Compile a candidate; not while the bucket's server is lost."""
        self._send(self._servers[bucket], request)

    def kill(self, bucket: int, ticket: int) -> None:
        server = self._servers.get(bucket)
        if server is not None:
            self._send(server, {"op": "kill", "ticket": ticket})

    def points(self, bucket: int, configs: list[Message]) -> Future[Message]:
        """The points of those configs that fit the bucket's space."""
        server = self._servers[bucket]
        found: Future[Message] = Future()
        if server.failed:
            found.set_exception(self._error(server.failed))
            return found
        request = {"op": "points", "configs": configs}
        server.asked.append((found, request))
        self._send(server, request)
        return found

    def _send(self, server: _Server, request: Message) -> None:
        if server.ready and server.channel is not None:
            with contextlib.suppress(OSError):  # gone: `read` will see that, and begin anew
                server.channel.send(request)

    @property
    def opening(self) -> int:
        """How many servers are binding their bucket's kernel."""
        servers = self._servers.values()
        return sum(s.channel is not None and not s.ready and not s.failed for s in servers)

    def filenos(self) -> list[int]:
        """The descriptors to wait on."""
        found = [self._worker.channel.fileno()]
        found += [s.channel.fileno() for s in self._servers.values() if s.channel is not None]
        return found

    def read(self, ready: set[int]) -> None:
        """Take in what these descriptors have."""
        if self._worker.channel.fileno() in ready and self._worker.channel.readable():
            self._read_worker()
        for bucket, server in list(self._servers.items()):
            channel = server.channel
            # A number in `ready` may be that of a channel closed since, given to a new one.
            if channel is not None and channel.fileno() in ready and channel.readable():
                self._read_server(bucket, server)

    def _read_worker(self) -> None:
        while True:
            reply = self._worker.receive()
            if reply is None:
                self._restart()
                return
            bucket = self._asked.popleft() if self._asked else -1
            if "error" in reply:
                self._refuse(bucket, str(reply["error"]))
            elif bucket < 0:
                self._failed_starts = 0
            if not self._worker.channel.buffered:
                return

    def _refuse(self, bucket: int, error: str) -> None:
        """A fork failed, as where the module can't be imported; or the device can't be described."""
        if bucket < 0:
            self.lost = error
        for name in [bucket] if bucket >= 0 else list(self._servers):
            server = self._servers.get(name)
            if server is not None:
                self._fail(name, server, error)

    def _fail(self, bucket: int, server: _Server, error: str) -> None:
        server.failed = error
        _disconnect(server)
        waiting = [server.opening, *(future for future, _ in server.asked)]
        server.asked.clear()
        for future in waiting:
            if not future.done():
                future.set_exception(self._error(error))
        self._gone(bucket, error)

    def _error(self, words: str) -> TuningError:
        return DeviceLostError(words) if self.lost else TuningError(words)

    def _restart(self) -> None:
        """The process that everything is forked from is gone, and the servers go with it."""
        words = self._worker.obituary()
        self._worker.kill()
        self._failed_starts += 1
        at_hand = self._servers.get(self._asked[0]) if self._asked else None
        self._asked.clear()
        if self._failed_starts >= _START_LIMIT:
            self._refuse(-1, f"no compile worker can be made ready: {words}")
            return
        self._begin_anew(words, at_hand)

    def _begin_anew(self, words: str, at_hand: _Server | None = None) -> None:
        logger.warning("the compile worker is started anew: %s", words)
        self._worker = self._start()
        for bucket, server in list(self._servers.items()):
            if server.channel is not None:
                self._lose(bucket, server, words, blamed=server is at_hand)
        self._set_up()

    def _read_server(self, bucket: int, server: _Server) -> None:
        channel = server.channel
        while channel is not None and channel is server.channel:
            message = channel.receive()
            if message is None:
                self._lose(bucket, server, "the compile server was ended from outside", blamed=True)
                if not server.failed:
                    self._fork(bucket, server)
                return
            self._hear(bucket, server, message)
            if not channel.buffered:
                return

    def _hear(self, bucket: int, server: _Server, message: Message) -> None:
        if "ticket" in message:
            self._compiled(bucket, message)
        elif "points" in message:
            server.asked.popleft()[0].set_result(message)
        elif "opened" in message:
            server.ready = True
            if not server.opening.done():
                server.opening.set_result(message["opened"])
            for _, request in server.asked:
                self._send(server, request)
            self._back(bucket)
        else:
            self._fail(bucket, server, str(message.get("error", message)))

    def _lose(self, bucket: int, server: _Server, words: str, *, blamed: bool) -> None:
        """A server has gone; `blamed`: not because of another one, nor of their common process."""
        _disconnect(server)
        server.losses += blamed
        if server.losses >= _START_LIMIT:
            self._fail(bucket, server, f"the bucket's compile server is lost each time: {words}")
            return
        logger.warning("a bucket's compile server was lost, and is started anew: %s", words)
        self._lost(bucket, words)

    def kill_all(self) -> None:
        """End everything."""
        for bucket in list(self._servers):
            self.close(bucket)
        self._worker.kill()


def _disconnect(server: _Server) -> None:
    if server.channel is not None:
        server.channel.close()
    server.channel, server.ready = None, False
