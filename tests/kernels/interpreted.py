"""Runs shipped kernels by Triton's interpreter and prints what came out, as one JSON list.

A process of its own, because the interpreter is chosen when triton is imported. Usage:
`python interpreted.py CONFIGS SEED KERNEL...`; CONFIGS random ones are drawn for the last shape that a
kernel declares as small, of no power of two; none for its edges, large shapes and special values.
All but the 8-bit floats are tested as float32: the interpreter rounds bfloat16 in its own way.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile

from lfbo_aot.adapters import interpreter

FP8 = "float8_e4m3fn"
# One row where that makes a difference, and sizes that are no power of two: more than one block with
# a remainder, of columns or of all dims.
EDGES = {
    "vector_add": [{"n": 1}, {"n": 37}],
    "softmax": [{"m": 1, "n": 7}, {"m": 2, "n": 1}],
    "layer_norm": [{"m": 1, "n": 7}],
    "rms_norm": [{"m": 1, "n": 7}],
    "matmul": [{"m": 1, "n": 16, "k": 70}, {"m": 17, "n": 33, "k": 5}],
    "silu_and_mul": [{"m": 3, "n": 7}],
    "gelu_and_mul": [{"m": 3, "n": 7}],
    "cross_entropy": [{"m": 1, "v": 7}],
    "rotary_embedding": [{"m": 1, "heads": 5, "d": 6}],
    "decode_linear": [{"m": 1, "n": 16, "k": 70}, {"m": 17, "n": 33, "k": 5}],
    "matmul_split_k": [{"m": 1, "n": 16, "k": 70}, {"m": 17, "n": 33, "k": 70}],
    "batched_matmul": [{"b": 2, "m": 1, "n": 16, "k": 40}, {"b": 1, "m": 17, "n": 33, "k": 5}],
    "quantize_fp8": [{"m": 1, "n": 7}],
    "rms_norm_fp8": [{"m": 1, "n": 7}],
    "fp8_matmul": [{"m": 1, "n": 16, "k": 80, "dtype": FP8}, {"m": 17, "n": 33, "k": 40}],
    "attention": [{"b": 1, "s": 5, "t": 37, "heads": 3, "kv_heads": 1, "d": 16}],
    "causal_attention": [{"b": 1, "s": 1, "heads": 2, "kv_heads": 2, "d": 16}],
    "rms_norm_backward": [{"m": 1, "n": 7}],
    "layer_norm_backward": [{"m": 1, "n": 7}],
}
# As near to models' sizes as the interpreter comes in half a second: several blocks of each loop.
LARGE = {
    "layer_norm": [{"m": 2, "n": 2039}],
    "rms_norm": [{"m": 2, "n": 2039}],
    "matmul": [{"m": 2, "n": 16, "k": 700}],
    "silu_and_mul": [{"m": 1, "n": 1100}],
    "gelu_and_mul": [{"m": 1, "n": 1100}],
    "cross_entropy": [{"m": 2, "v": 1019}],
    "rotary_embedding": [{"m": 2, "heads": 72, "d": 128}],
    "decode_linear": [{"m": 2, "n": 16, "k": 1100}],
    "matmul_split_k": [{"m": 2, "n": 16, "k": 1100}],
    "batched_matmul": [{"b": 2, "m": 2, "n": 16, "k": 300}],
    "quantize_fp8": [{"m": 2, "n": 4500}],
    "rms_norm_fp8": [{"m": 2, "n": 4500}],
    "fp8_matmul": [{"m": 2, "n": 16, "k": 1104, "dtype": FP8}],
    "attention": [{"b": 1, "s": 1, "t": 150, "heads": 4, "kv_heads": 1, "d": 128}],
    "causal_attention": [{"b": 1, "s": 70, "heads": 1, "kv_heads": 1, "d": 128}],
    "rms_norm_backward": [{"m": 2, "n": 8192}],
    "layer_norm_backward": [{"m": 2, "n": 8192}],
}


def impossible_tokens(logits, labels):
    """As where a vocabulary is masked: the first logits are those that can't be."""
    logits[:, : logits.size(1) // 2] = float("-inf")
    labels.fill_(logits.size(1) - 1)


def zero_row(x, *rest):
    x[0] = 0.0


def far_below_zero(q, k, v):
    """All scores so low that e to them would be nothing, and e to their negative infinite."""
    q.fill_(30.0)
    k.mul_(0.01).sub_(30.0)


SPECIAL = {
    "cross_entropy": impossible_tokens,
    "quantize_fp8": zero_row,
    "rms_norm_fp8": zero_row,
    "attention": far_below_zero,
    "causal_attention": far_below_zero,
}


def configs(bound, count):
    """The default config, then random ones, of the bound kernel's own space, as the interpreter can run.

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

    results = list(zip(*(as_tuple(one) for one in (got, wanted)), strict=True))
    equal = []
    for ours, theirs in results:
        rtol, atol = spec.tolerance[str(ours.dtype).removeprefix("torch.")]
        same = ours.shape == theirs.shape and ours.dtype == theirs.dtype
        close = torch.isclose(ours.float(), theirs.float(), rtol=rtol, atol=atol)
        equal.append(bool(same and close.all()))
    return {
        "equal": all(equal),
        "worst": [float((ours.float() - theirs.float()).abs().max()) for ours, theirs in results],
    }


def as_tuple(result):
    return result if isinstance(result, tuple) else (result,)


def trials(spec, shape, count, alter=None):
    """A record of the kernel as it is called, which is with the default, and of each random config."""
    import torch

    from lfbo_aot.runtime.serving import misfit

    args = spec.make_inputs(shape, torch.device("cpu"))
    if alter is not None:
        alter(*args)
    wanted = spec.reference(*args)
    about = {"kernel": spec.name, "shape": shape}
    # As a caller does: with nothing stored, Helion's default is what runs.
    yield {**about, "config": "served", "misfit": None, **compare(spec, spec.kernel(*args), wanted)}
    if count is None:
        return
    bound = spec.kernel.bind(args)  # made by that call
    for config in configs(bound, count)[1:]:
        result = compare(spec, bound.compile_config(config)(*args), wanted)
        plain = json.loads(json.dumps(config.config))
        yield {**about, "config": plain, "misfit": misfit(bound, plain), **result}


def main(count, seed, names):
    interpreter.prepare()
    from lfbo_aot.registry.discovery import load_kernels

    records = []
    for spec in load_kernels(["lfbo_aot.kernels"]):
        if spec.name not in names:
            continue
        random.seed(f"{seed} {spec.name}")  # the same configs whichever kernels are asked for
        records += trials(spec, spec.small[-1], count)
        for edge in EDGES[spec.name]:
            records += trials(spec, {"dtype": "float32", **edge}, None)
        for large in LARGE.get(spec.name, []):
            records += trials(spec, {"dtype": "float32", **large}, None)
        if spec.name in SPECIAL:
            records += trials(spec, spec.small[-1], None, SPECIAL[spec.name])
    json.dump(records, sys.stdout)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        tempfile.tempdir = folder
        main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
