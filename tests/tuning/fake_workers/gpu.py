"""A GPU worker without a GPU: speaks its protocol, and times by what the code is called."""

from __future__ import annotations

import os
import time

from lfbo_aot.tuning.workers.serve import serve

BUCKET = {}


def identify(request):
    return {"versions": {"device": request["device"]}}


def open_(request):
    BUCKET.update(request)
    if request["shape"]["m"] == 13:
        msg = "inputs= of kernel 'pkg.norm' failed: RuntimeError: boom"
        raise RuntimeError(msg)
    arguments = [{"value": request["shape"]["m"]}]
    return {"arguments": arguments, "layout": [{"order": [0]}], "policy": {"clock": "fake"}}


def measure(request):
    block = int(request["code"]["function"].removeprefix("block"))
    if block == 32:
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
    blocks = [int(code["function"].removeprefix("block")) for code in request["codes"]]
    if 256 in blocks:
        os._exit(1)
    return {
        "samples": [[100.0 / block] * request["rounds"] for block in blocks],
        "resources": [{"shared": block} for block in blocks],
        "errors": ["crash: dead" if block == 16 else "" for block in blocks],
    }


if __name__ == "__main__":
    serve({"identify": identify, "open": open_, "measure": measure, "final": final})
