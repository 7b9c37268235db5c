"""A compile worker without a compiler: speaks its protocol; what fails is told by the point."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from lfbo_aot.tuning.channel import Channel

# As JSON: importing the search would take longer than all that happens here.
BLOCK = {"kind": "power_of_two", "name": "block", "low": 1, "high": 512, "default": 2}
SPACE = {"tunables": [BLOCK | {"role": "block"}], "default": [2], "conditions": [], "seeds": []}
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # servers that have ended are gone


class Server:
    """One bucket's: answers at once, but for what hangs until it is killed."""

    def __init__(self, channel, claims):
        self.channel = channel
        self.claims = claims
        self.hanging = set()

    def open(self, request):
        (argument,) = request["arguments"]
        if argument["value"] == 17:
            return {"error": "CompileError: no such kernel"}
        seen = {key: request[key] for key in ("arguments", "processes", "inert")}
        return {
            "opened": {
                "space": SPACE | {"inert": [["block", -1]] * (argument["value"] == 18)},
                "seeds": [],
                "default": {"block": 2},
                "versions": {name: str(value) for name, value in seen.items()},
            }
        }

    def run(self):
        while (request := self.channel.receive()) is not None:
            if request["op"] == "points":
                blocks = [config["block"] for config in request["configs"]]
                self.channel.send({"points": [[block] for block in blocks if block < 512]})
            elif request["op"] == "kill":
                if request["ticket"] in self.hanging:
                    self.hanging.discard(request["ticket"])
                    self.answer(request, status="compile_timeout")
            else:
                self.compile(request)

    def answer(self, request, **words):
        self.channel.send({"ticket": request["ticket"], **words})

    def compile(self, request):
        block = request["config"]["block"] if "config" in request else request["point"][0]
        if block == 1:
            self.answer(request, status="invalid", error="ValueError: no")
            return
        if block == 256 and "config" not in request:
            os._exit(1)
        if block == 512:
            self.hanging.add(request["ticket"])
            return
        digest = str(min(block, 200))  # 256 has the code of 200
        found = {"config": {"block": block}, "codegen_s": 0.5, "digest": digest}
        found |= {"path": f"/nowhere/{digest}.py", "function": f"block{digest}"}
        claimed = self.claims / digest
        if claimed.exists():
            self.answer(request, status="same_code", **found)
            return
        claimed.touch()
        if block == 8:
            self.answer(request, status="compile_error", error="error: too much", **found)
            return
        self.answer(request, status="ok", compile_s=1.5, **found)


def serve_bucket(fd, request):
    channel = Channel.from_fd(fd)
    claims = Path(request["claims"])
    claims.mkdir(parents=True)
    server = Server(channel, claims)
    opened = server.open(request)
    channel.send(opened)
    if "opened" in opened:
        server.run()
    os._exit(0)


def main():
    if os.environ.get("FAKE_COMPILE") == "die":
        sys.exit("ImportError: no module named helion")
    channel = Channel.from_fd(int(sys.argv[1]))
    while (request := channel.receive()) is not None:
        if request["op"] == "device":
            assert request["description"]["arch"] == 90
            channel.send({"reply": {"versions": {}}})
            continue
        (fd,) = channel.take_descriptors()
        if request["arguments"][0]["value"] == 19:
            os._exit(1)  # as a module that ends the process when it is imported
        if request["arguments"][0]["value"] == 20:
            os.close(fd)
            channel.send({"error": "UnknownNameError: unknown kernel"})
            continue
        if os.fork() == 0:
            channel.forget()
            serve_bucket(fd, request)
        os.close(fd)
        channel.send({"reply": {}})
    os._exit(0)


if __name__ == "__main__":
    main()
