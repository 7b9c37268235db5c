"""A worker that does what it is asked to: answer, fail, die, hang."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from lfbo_aot.tuning.workers.serve import serve

STATE = {"setup": None, "count": 0}


def setup(request):
    STATE["setup"] = request["bucket"]
    act(request)
    return {"ready": request["bucket"], "pid": os.getpid()}


def work(request):
    STATE["count"] += 1
    act(request)
    return {**STATE, "pid": os.getpid(), "number": request["number"]}


def act(request):
    how = request.get("how", "")
    if how == "raise":
        msg = "no such\nkernel"
        raise RuntimeError(msg)
    if how == "exit":
        sys.stderr.write("my last words\n")
        sys.stderr.flush()
        os._exit(3)
    if how == "segfault":
        os.kill(os.getpid(), signal.SIGSEGV)
    if how == "nonsense":
        os.write(int(sys.argv[1]), b"nonsense\n")
    if how == "hang":
        time.sleep(3600)
    if how == "until":
        while not Path(request["file"]).exists():
            time.sleep(0.01)


if __name__ == "__main__":
    if os.environ.get("FAKE_START") == "die":
        sys.exit("ImportError: no module named helion")
    serve({"setup": setup, "work": work})
