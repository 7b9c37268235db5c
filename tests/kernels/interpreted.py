"""Runs the shipped kernels by Triton's interpreter and prints what came out, as one JSON list.

A process of its own, because the interpreter is chosen when triton is imported. Usage:
`python interpreted.py CONFIGS SEED`; CONFIGS random ones are drawn for each kernel and shape.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile

from lfbo_aot.adapters import interpreter

EDGES = {
    "vector_add": [{"n": 1}, {"n": 37}],
    "softmax": [{"m": 1, "n": 128}, {"m": 3, "n": 7}, {"m": 2, "n": 1}],
    "layer_norm": [{"m": 1, "n": 128}, {"m": 3, "n": 7}],
    "rms_norm": [{"m": 1, "n": 128}, {"m": 3, "n": 7}],
    "matmul": [{"m": 1, "n": 16, "k": 32}, {"m": 17, "n": 33, "k": 5}],
}


def configs(bound, count):
    """The default and random configs of the bound kernel's own space, as the interpreter can run.

    Persistent kernels ask a GPU for its multiprocessors.
    """
    default = bound.config_spec.default_config()
    generation = bound.config_spec.create_config_generation()
    found = [default]
    for flat in generation.random_population_flat(count + 1)[1:]:
        config = dict(generation.unflatten(flat).config)
        config = {k: v for k, v in config.items() if k not in ("num_sm_multiplier", "maxnreg")}
        found.append(type(default)(**{**config, "pid_type": "flat"}))
    return found


def compare(spec, got, wanted):
    import torch

    rtol, atol = spec.tolerance[str(got.dtype).removeprefix("torch.")]
    close = torch.isclose(got, wanted, rtol=rtol, atol=atol)
    same = got.shape == wanted.shape and got.dtype == wanted.dtype
    return {
        "equal": bool(same and close.all()),
        "worst": float((got - wanted).abs().max()),
    }


def main(count, seed):
    interpreter.prepare()
    import torch

    from lfbo_aot.registry.discovery import load_kernels
    from lfbo_aot.runtime.serving import misfit
    from lfbo_aot.runtime.serving import unserved_bind

    random.seed(seed)
    records = []
    for spec in load_kernels(["lfbo_aot.kernels"]):
        edges = [{**edge, "dtype": "float32"} for edge in EDGES[spec.name]]
        for shape in [*spec.small, *edges]:
            args = spec.make_inputs(shape, torch.device("cpu"))
            wanted = spec.reference(*args)
            about = {"kernel": spec.name, "shape": shape}
            # As a caller does: with nothing stored, Helion's default is what runs.
            served = compare(spec, spec.kernel(*args), wanted)
            records.append({**about, "config": "served", "misfit": None, **served})
            bound = unserved_bind(spec.kernel, args)
            for config in configs(bound, count):
                result = compare(spec, bound.compile_config(config)(*args), wanted)
                plain = json.loads(json.dumps(config.config))
                wrong = misfit(bound, plain)
                records.append({**about, "config": plain, "misfit": wrong, **result})
    json.dump(records, sys.stdout)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        tempfile.tempdir = folder
        main(int(sys.argv[1]), int(sys.argv[2]))
