"""What the shipped kernels declare: shapes, inputs, references, and their sources' digests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("helion")

from lfbo_aot.registry.discovery import load_kernels
from lfbo_aot.registry.source import source_digest

from .shipped import NAMES

# What a call with bfloat16 arguments gives; one bfloat16 tensor where a kernel isn't listed.
RESULTS = {
    "cross_entropy": ["float32"],
    "layer_norm_backward": ["bfloat16"] * 3,
    "quantize_fp8": ["float8_e4m3fn", "float32"],
    "rms_norm_backward": ["bfloat16"] * 2,
    "rms_norm_fp8": ["float8_e4m3fn", "float32"],
}
# Arguments that are of another dtype than the shape says, by place.
OTHERS = {
    "cross_entropy": {1: "int64"},
    "fp8_matmul": {2: "float32", 3: "float32"},
    "rotary_embedding": {1: "float32", 2: "float32"},
}


@pytest.fixture(scope="module")
def specs():
    return {spec.name: spec for spec in load_kernels(["lfbo_aot.kernels"])}


def test_these_kernels_ship(specs):
    assert sorted(specs) == NAMES
    assert all(spec.kernel_id == f"lfbo_aot.{name}" for name, spec in specs.items())
    assert all(spec.module == f"lfbo_aot.kernels.{name}" for name, spec in specs.items())


@pytest.mark.parametrize("name", NAMES)
def test_inputs_are_seeded_and_of_the_shape_asked_for(specs, name):
    import torch

    spec = specs[name]
    for shape in (*spec.small, {**spec.small[0], "dtype": spec.buckets[0].point["dtype"]}):
        once, again = (spec.make_inputs(shape, torch.device("cpu")) for _ in range(2))
        assert all(torch.equal(a.float(), b.float()) for a, b in zip(once, again, strict=True))
        dtypes = [OTHERS.get(name, {}).get(i, shape["dtype"]) for i in range(len(once))]
        assert [str(arg.dtype) for arg in once] == [f"torch.{dtype}" for dtype in dtypes]
        assert len({arg.flatten()[:64].float().sum().item() for arg in once}) == len(once)


@pytest.mark.parametrize("name", NAMES)
def test_the_reference_gives_finite_values_of_the_kernels_dtypes(specs, name):
    import torch

    spec = specs[name]
    args = spec.make_inputs({**spec.small[0], "dtype": "bfloat16"}, torch.device("cpu"))
    wanted = spec.reference(*args)
    results = wanted if isinstance(wanted, tuple) else (wanted,)
    dtypes = RESULTS.get(name, ["bfloat16"])
    assert [str(result.dtype) for result in results] == [f"torch.{dtype}" for dtype in dtypes]
    assert all(torch.isfinite(result.float()).all() for result in results)


@pytest.mark.parametrize(
    ("name", "shape", "key"),
    [
        ("layer_norm", {"m": 4096, "n": 5120}, "m=1025..4096|n=5120|dtype=bfloat16"),
        ("rms_norm", {"m": 1, "n": 8192}, "m=1..4|n=8192|dtype=bfloat16"),
        ("softmax", {"m": 4096, "n": 2560}, "m=1025..4096|n=2560|dtype=bfloat16"),
        ("vector_add", {"n": 1 << 20}, "n=65537..1048576|dtype=bfloat16"),
        (
            "matmul",
            {"m": 2048, "n": 2048, "k": 4096},
            "m=513..2048|n=2048|k=4096|dtype=bfloat16",
        ),
        ("matmul", {"m": 512, "n": 8192, "k": 8192}, "m=129..512|n=8192|k=8192|dtype=bfloat16"),
        ("silu_and_mul", {"m": 4096, "n": 14336}, "m=257..4096|n=14336|dtype=bfloat16"),
        (
            "decode_linear",
            {"m": 16, "n": 28672, "k": 4096},
            "m=1..16|n=28672|k=4096|dtype=bfloat16",
        ),
        ("cross_entropy", {"m": 8192, "v": 128256}, "m=1025..8192|v=128256|dtype=bfloat16"),
        (
            "causal_attention",
            {"b": 4, "s": 4096, "heads": 32, "kv_heads": 8, "d": 128},
            "b=1..4|s=1025..4096|heads=32|kv_heads=8|d=128|dtype=bfloat16",
        ),
        (
            "matmul",
            {"m": 4096, "n": 4096, "k": 4096},
            "m=2049..4096|n=4096|k=4096|dtype=bfloat16",
        ),
    ],
)
def test_shapes_of_real_models_are_tuning_points(specs, name, shape, key):
    shape = {**shape, "dtype": "bfloat16"}
    bucket = specs[name].bucket_for(shape)
    assert bucket.key == key
    point = bucket.point
    assert name == "rms_norm" or point == shape


@pytest.mark.parametrize("name", NAMES)
def test_a_config_of_the_tuning_point_holds_in_the_whole_bucket(specs, name, monkeypatch):
    """At its lower end too it is as long, changed by nothing, and code can be made of it."""
    import helion
    import torch

    from lfbo_aot.runtime.serving import misfit
    from lfbo_aot.runtime.serving import unserved_bind

    spec = specs[name]
    bucket = min(spec.buckets, key=lambda bucket: bucket.volume)
    # No value is looked at, and to draw as many takes seconds.
    monkeypatch.setattr(torch, "randn", lambda size, **more: torch.empty(size, dtype=more["dtype"]))

    def bind(shape):
        return unserved_bind(spec.kernel, spec.make_inputs(shape, torch.device("cpu")))

    generation = bind(bucket.point).config_spec.create_config_generation()
    drawn = [generation.unflatten(flat) for flat in generation.random_population_flat(4)]
    plain = [json.loads(json.dumps(config.config)) for config in drawn]
    bound = bind(bucket.probes[0])
    for config in plain:
        assert misfit(bound, config) is None
        kept = bound.config_spec.normalized_config(config).config
        assert {key: kept.get(key) for key in config} == config
    # The first is the default, the last a random one.
    assert f"def {name}(" in bound.to_triton_code(helion.Config(**plain[-1]))


def test_pairs_that_no_layer_has_are_no_bucket(specs):
    shape = {"m": 2048, "n": 2048, "k": 28672, "dtype": "bfloat16"}
    assert specs["matmul"].bucket_for(shape) is None


@pytest.mark.parametrize("name", NAMES)
def test_the_digest_is_that_of_the_file_alone(specs, name, tmp_path):
    """As installed and as checked out, and whether or not the module's name is known."""
    spec = specs[name]
    assert source_digest(spec.file, name) == spec.source
    installed = tmp_path / "lfbo_aot" / "kernels"
    installed.mkdir(parents=True)
    (installed.parent / "__init__.py").touch()
    for file in Path(spec.file).parent.glob("*.py"):
        (installed / file.name).write_bytes(file.read_bytes())
    assert source_digest(installed / f"{name}.py", name) == spec.source
    assert source_digest(installed / f"{name}.py", name, module=spec.module) == spec.source
