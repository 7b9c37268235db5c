"""A compile worker without a compiler: speaks its protocol; what fails is told by the point."""

from __future__ import annotations

import os
import time

from lfbo_aot.search import PowerOfTwo
from lfbo_aot.search import Space
from lfbo_aot.tuning.workers.serve import serve

SPACE = Space((PowerOfTwo("block", 1, 512, 2, "block"),), (2,))
COUNT = {}


def open_(request):
    seeds = [[config["block"]] for config in request["seeds"] if config["block"] < 512]
    versions = {"arguments": str(request["arguments"])}
    space = SPACE.to_json()
    return {"space": space, "seeds": seeds, "default": {"block": 2}, "versions": versions}


def compile_(request):
    block = request["config"]["block"] if "config" in request else request["point"][0]
    found = {"config": {"block": block}}
    if block == 1:
        return {"status": "invalid", "error": "ValueError: no"}
    if block == 8:
        return found | {"status": "compile_timeout", "error": "killed after 5.0 s"}
    if block == 256 and "config" not in request:
        os._exit(1)
    if block == 512:
        time.sleep(3600)
    made = {"path": f"/nowhere/{block}.py", "function": f"block{block}", "digest": str(block)}
    COUNT[block] = COUNT.get(block, 0) + 1
    return found | made | {"status": "ok", "codegen_s": 0.5, "compile_s": float(COUNT[block])}


if __name__ == "__main__":
    serve({"open": open_, "compile": compile_})
