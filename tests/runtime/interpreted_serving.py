"""Calls of declared kernels by Triton's interpreter; prints what came out, as JSON.

A process of its own, because the interpreter is chosen when triton is imported. Usage:
`python interpreted_serving.py CASE`.
"""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import sys
import warnings
from types import MappingProxyType
from types import SimpleNamespace

from lfbo_aot.adapters import interpreter

interpreter.prepare()

import helion.language as hl  # noqa: E402
import torch  # noqa: E402
from helion.runtime.kernel import BoundKernel  # noqa: E402

import lfbo_aot  # noqa: E402
from lfbo_aot import Exact  # noqa: E402
from lfbo_aot import Range  # noqa: E402
from lfbo_aot.adapters import launching  # noqa: E402

DIMS = {"n": Range(1, 4096, factor=4), "dtype": Exact("float32")}


def scale(x: torch.Tensor, factor: float = 2.0) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] * factor
    return out


def bump(x: torch.Tensor, calls: torch.Tensor) -> torch.Tensor:
    calls.add_(1)
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] + 1
    return out


def by_size(x, _):
    return {"n": x.size(0), "dtype": x.dtype}


def declare(function=scale, **more):
    return lfbo_aot.kernel(dims=DIMS, shape=by_size, package="mine", **more)(function)


def answer_with(*configs):
    """Have look-ups answer with a config and its alternates, whatever the shape."""
    from lfbo_aot.runtime import resolve
    from lfbo_aot.runtime.resolution import Resolution

    entry = SimpleNamespace(alternates=configs[1:], space="")
    found = Resolution(MappingProxyType(configs[0]), "exact", entry=entry, layer="a", key="key")
    resolve.resolve = lambda *_, **__: found


def right(call, *sizes):
    return [bool((call(torch.ones(n)) == 3).all()) for n in sizes]


def compiled():
    """Each way of torch.compile: whether results are right, and how often Helion tuned."""
    warnings.simplefilter("ignore")
    tuned = []
    BoundKernel.autotune = lambda bound, args, **_: tuned.append(bound.kernel.name)
    found = {}
    for static in (True, False):
        for fullgraph in (True, False):
            for dynamic in (None, True, False):
                for warm in (True, False):
                    torch._dynamo.reset()
                    made = declare(static_shapes=static)
                    if warm:
                        right(lambda x, made=made: made(x, 3.0), 64)
                    call = torch.compile(
                        lambda x, made=made: made(x, 2.0) + 1,
                        fullgraph=fullgraph,
                        dynamic=dynamic,
                        backend="aot_eager",
                    )
                    name = f"static={static} full={fullgraph} dynamic={dynamic} warm={warm}"
                    found[name] = right(call, 64, 64, 128, 16)
    return {"right": found, "tuned": tuned}


def traced():
    """As torch 2.11 has it: Dynamo traces into the call, of a shape that was called before."""
    import helion._compiler._dynamo.variables as captured

    warnings.simplefilter("ignore")
    captured.supports_torch_compile_fusion = lambda: False
    captured.supports_torch_compile_template_lowering = lambda: False
    found = {}
    factor = 3.0  # with dynamic=True a symbol as well
    # In place of Triton code, which can't be traced in the interpreter.
    BoundKernel.compile_config = lambda bound, config=None, **_: lambda x, factor=2.0: x * factor
    for name, more in (("static", {}), ("dynamic", {"static_shapes": False})):
        for fullgraph in (True, False):
            for symbolic in (None, True):
                torch._dynamo.reset()
                made = declare(**more)
                for n in (64, 128):
                    made(torch.ones(n), 3.0)
                call = torch.compile(
                    lambda x, made=made: made(x, factor),
                    fullgraph=fullgraph,
                    dynamic=symbolic,
                    backend="aot_eager",
                )
                found[f"{name} full={fullgraph} dynamic={symbolic}"] = right(call, 64, 128, 64)
    return found


def lowered():
    """What Inductor does: it binds with examples, and asks for a config; symbolic and not."""
    from torch._inductor.virtualized import V

    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    BoundKernel.autotune = lambda *_, **__: sys.exit("Helion's tuner was reached")
    made = declare(static_shapes=False)
    known, unknown = torch.ones(64), torch.ones(64)
    known._helion_static_dims = frozenset({0})
    found = {}
    with V.set_graph_handler(object()):
        for name, x in (("known", known), ("unknown", unknown)):
            for bind in ("_bind", "_bind_isolated"):
                bound = getattr(made, bind)((x, 2.0))
                bound.ensure_config_exists((x, 2.0))
                shared = any(bound is other for other in made._bound_kernels.values())
                default = bound._config == bound.config_spec.default_config()
                found[f"{name} {bind}"] = [shared, default]
    return found


def forked():
    """Children of a fork, after a first call, call a shape known and a shape new."""
    made = declare()
    made(torch.ones(64))
    codes = []
    for size in (64, 128):
        child = os.fork()
        if child == 0:
            os._exit(0 if bool((made(torch.ones(size), 2.0) == 2).all()) else 3)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    return [*codes, bool((made(torch.ones(128)) == 2).all())]


def in_child(queue):
    made = declare()
    queue.put(bool((made(torch.ones(64)) == 2).all()))


def spawned():
    made = declare()
    made(torch.ones(64))
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    children = [context.Process(target=in_child, args=(queue,)) for _ in range(2)]
    for child in children:
        child.start()
    found = [queue.get(timeout=300) for _ in children]
    for child in children:
        child.join()
    return found


def written():
    """How often host code that counts its calls has run, after each call; one config is tried."""
    tried = []
    real = launching.compile_and_load
    launching.compile_and_load = lambda *args: tried.append(real(*args))
    answer_with({"block_sizes": [16], "num_warps": 2, "pid_type": "flat"})
    made = declare(bump, mutates=("calls",))
    calls = torch.zeros(1)
    found = []
    for n in (64, 64, 128):
        made(torch.ones(n), calls)
        found.append(int(calls))
    bound = made.bind((torch.ones(64), calls))
    return {"written": found, "tried": tried, "warps": bound._config["num_warps"]}


CASES = {case.__name__: case for case in (compiled, traced, lowered, forked, spawned, written)}

if __name__ == "__main__":
    sys.stdout.write("\n" + json.dumps(CASES[sys.argv[1]]()) + "\n")
