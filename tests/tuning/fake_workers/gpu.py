"""A GPU worker without a GPU: speaks its protocol, and times by what the code is called."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from lfbo_aot.tuning.workers.serve import serve

OPENED = {}
TOLD = os.environ.get("FAKE_TOLD", "")  # a file for what was opened and closed


def tell(line):
    if TOLD:
        with Path(TOLD).open("a") as file:
            file.write(line + "\n")


def identify(request):
    gone = os.environ.get("FAKE_GONE", "")
    if gone and Path(gone).exists():
        os._exit(1)
    assert request["device"] == f"cuda:{request['index']}"
    properties = {"name": request["device"], "pci_bus_id": request["index"]}
    target = {"backend": "cuda", "arch": 90, "warp_size": 32, "index": request["index"]}
    return {"description": target | {"properties": properties, "runtime": "13.0"}}


def open_(request):
    if request["shape"]["m"] == 13:
        msg = "inputs= of kernel 'pkg.norm' failed: RuntimeError: boom"
        raise RuntimeError(msg)
    OPENED[request["bucket"]] = request
    tell(f"open {request['bucket']} {request['device']}")
    arguments = [{"value": request["shape"]["m"]}]
    return {"arguments": arguments, "layout": [{"order": [0]}], "policy": {"clock": "fake"}}


def close(request):
    OPENED.pop(request["bucket"], None)
    tell(f"close {request['bucket']}")
    return {}


def measure(request):
    assert request["bucket"] in OPENED
    block = int(request["code"]["function"].removeprefix("block"))
    if block == 32:
        sys.stderr.write("illegal access\n")
        sys.stderr.flush()
        os._exit(1)  # as after a fault that loses the context
    if block == 64:
        time.sleep(3600)
    if block == 128:
        return {"status": "wrong_result", "error": "result 0: 1 of 1"}
    return {
        "status": "ok",
        "latency_us": 100.0 / block,
        "launches": 24,
        "cut": request["best_us"] == 1.0,
        "resources": {"shared": block, "regs": 1, "spills": 0, "threads": 32},
        "time_s": 0.01,
    }


def final(request):
    scale = OPENED[request["bucket"]]["shape"]["m"] / 64
    blocks = [int(code["function"].removeprefix("block")) for code in request["codes"]]
    if 200 in blocks:
        os._exit(1)
    return {
        "samples": [[scale * 100.0 / block] * request["rounds"] for block in blocks],
        "resources": [{"shared": block} for block in blocks],
        "errors": ["crash: dead" if block == 16 else "" for block in blocks],
    }


if __name__ == "__main__":
    handlers = {"identify": identify, "open": open_, "close": close}
    serve({**handlers, "measure": measure, "final": final})
