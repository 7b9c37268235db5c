"""The shipped kernels called by Triton's interpreter, and what came of each call; see serving.py."""

from __future__ import annotations

import json
import math
from pathlib import Path

from lfbo_aot.adapters import interpreter

interpreter.prepare()

import helion  # noqa: E402
import helion.runtime  # noqa: E402
import torch  # noqa: E402

launched: list[dict[str, object]] = []
launch = helion.runtime.default_launcher


def recording(kernel, grid, *args, **options):
    launched.append({"grid": math.prod(grid), **options})
    return launch(kernel, grid, *args, **options)


helion.runtime.default_launcher = recording  # what generated code launches with

import lfbo_aot  # noqa: E402
from lfbo_aot.database.declaration import Declaration  # noqa: E402
from lfbo_aot.database.entry import Entry  # noqa: E402
from lfbo_aot.database.merge import merge  # noqa: E402
from lfbo_aot.registry.buckets import Bucket  # noqa: E402
from lfbo_aot.registry.devices import INTERPRETER  # noqa: E402
from lfbo_aot.registry.dims import Interval  # noqa: E402
from lfbo_aot.registry.discovery import load_kernels  # noqa: E402
from lfbo_aot.runtime import resolve as resolving  # noqa: E402
from lfbo_aot.runtime.serving import unserved_bind  # noqa: E402
from lfbo_aot.runtime.versions import loaded_versions  # noqa: E402

BLOCKS = {
    "matmul": ([16, 32, 16], [16, 16, 32], [32, 16, 16]),
    "vector_add": ([64], [128], [256]),
}
ROWS = ([2], [4], [8])


def boxes(shape):
    """Below that of the small shape, its own, and above: of the first dim; the rest is exact."""
    name, size = next(iter(shape.items()))
    for lo, hi in ((size // 4, size // 2), (size // 2, size), (size, 2 * size)):
        yield Bucket(((name, Interval(lo + 1, hi)), *list(shape.items())[1:]))


def plain(config):
    return json.loads(json.dumps(dict(getattr(config, "config", config)), default=list))


def tune(spec, called):
    """Configs as tuning might have found them, one for each box, all of them different.

    Those that no call is to run are left incomplete, which takes no code generation.
    """
    blocks = BLOCKS.get(spec.name, ROWS)
    args = spec.make_inputs(spec.small[0], "cpu")
    default = {}
    if spec in called:
        default = unserved_bind(spec.kernel, args).config_spec.default_config().config
        spec.kernel.reset()
    for at, bucket in enumerate(boxes(spec.small[0])):
        chosen = {"block_sizes": blocks[at], "num_warps": (1, 2, 8)[at], "num_stages": at + 2}
        yield bucket, plain({**default, **chosen}), spec.layout_of(*args)


def store(specs, called, path, like):
    """A database of entries that are like `like` but for what is each kernel's own."""
    found = {}
    for spec in specs:
        own = {"source": spec.source, "settings": plain(spec.settings)}
        own["versions"] = loaded_versions()
        found[spec.name] = list(tune(spec, called))
        entries = {
            (INTERPRETER, bucket): Entry.from_json(
                {**like, **own, "config": config, "layout": list(layout)}
            )
            for bucket, config, layout in found[spec.name]
        }
        merge(path, {spec.kernel_id: entries}, [Declaration.of(spec)])
    lfbo_aot.use_database(path)
    return found


def sizes(spec):
    """Of the first dim: in the box below, two in that of the small shape, above, and beyond."""
    size = next(iter(spec.small[0].values()))
    return size // 2, size // 2 + 1, size, size + 1, 2 * size + 1


def arguments(spec, size):
    (first, _), *rest = spec.small[0].items()
    shape = {first: size, **dict(rest)}
    return shape, spec.kernel.normalize_args(*spec.make_inputs(shape, "cpu"))


def answer(spec, size):
    found = lfbo_aot.resolve(spec.kernel, arguments(spec, size)[1])
    return [found.status, found.key, plain(found.config)]


def call(spec, size, tuned):
    """One call of a kernel by a user, and what came of it."""
    shape, args = arguments(spec, size)
    launched.clear()
    result = spec.kernel(*args)
    count, seen = len(launched), launched[-1]
    bound = spec.kernel.bind(args)
    box = next((at for at, (bucket, *_) in enumerate(tuned) if bucket.contains(shape)), None)
    at_point = box is not None and shape == tuned[box][0].point
    rtol, atol = spec.tolerance[str(shape["dtype"])]
    set_here = plain(bound._config)
    ran = Path(bound._run.__code__.co_filename).read_text()
    spans = (size, shape["n"]) if spec.name == "matmul" else (size,)
    blocks = zip(spans, set_here["block_sizes"], strict=False)
    return {
        "box": box,
        "at_point": at_point,
        "right": bool(torch.isclose(result, spec.reference(*args), rtol=rtol, atol=atol).all()),
        "launches": count,
        "launched": seen,
        "programs": math.prod(math.ceil(n / block) for n, block in blocks),
        "set": set_here,
        "default": set_here == plain(bound.config_spec.default_config()),
        # That Helion's code for the stored config is the text of the function that ran.
        "generated": at_point
        and bound.to_triton_code(helion.Config(**tuned[box][1])).strip() in ran,
    }


def repeated(specs, opened):
    """What calls of shapes that were called before look up, and which files they open."""
    work = {"look_ups": 0, "resolved": 0}

    def counted(name, real):
        def function(*args, **more):
            work[name] += 1
            return real(*args, **more)

        return function

    resolving.look_up = counted("look_ups", resolving.look_up)
    resolving.resolve = counted("resolved", resolving.resolve)
    known = [(spec, spec.make_inputs(spec.small[0], "cpu")) for spec in specs]
    opened.clear()
    for spec, args in known:
        spec.kernel(*args)
    return {**work, "files": list(opened)}


def serve(path, like, opened, number):
    """Look all kernels up, and call a half of them: calls by the interpreter take their time."""
    specs = load_kernels(["lfbo_aot.kernels"])
    called = specs[number::2]
    tuned = store(specs, called, path, like)
    return {
        "file": lfbo_aot.__file__,
        "sources": {spec.name: spec.source for spec in specs},
        "stored": {name: [config for _, config, _ in held] for name, held in tuned.items()},
        "answers": {spec.name: [answer(spec, size) for size in sizes(spec)] for spec in specs},
        "calls": {s.name: [call(s, size, tuned[s.name]) for size in sizes(s)] for s in called},
        "repeated": repeated(called, opened),
    }
