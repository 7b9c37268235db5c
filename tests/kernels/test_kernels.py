"""The shipped kernels against PyTorch, over configs of their own search spaces."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("helion")

from lfbo_aot.registry.discovery import load_kernels
from lfbo_aot.registry.source import source_digest

NAMES = ["layer_norm", "matmul", "rms_norm", "softmax", "vector_add"]
CONFIGS = 4


@pytest.fixture(scope="module")
def specs():
    return {spec.name: spec for spec in load_kernels(["lfbo_aot.kernels"])}


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    folder = tmp_path_factory.mktemp("interpreted")
    environ = {
        **os.environ,
        "TRITON_INTERPRET": "1",
        "LFBO_AOT_PATH": "",
        "XDG_DATA_HOME": str(folder),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "OMP_NUM_THREADS": "1",
    }
    script = Path(__file__).with_name("interpreted.py")
    run = subprocess.run(
        [sys.executable, str(script), str(CONFIGS), "0"],
        env=environ,
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


@pytest.mark.parametrize("name", NAMES)
def test_every_config_gives_what_pytorch_gives(records, name):
    mine = [record for record in records if record["kernel"] == name]
    shapes = {json.dumps(record["shape"]) for record in mine}
    assert len(shapes) >= 4
    assert len(mine) >= len(shapes) * (CONFIGS + 1)
    wrong = [record for record in mine if not record["equal"]]
    assert wrong == []


@pytest.mark.parametrize("name", NAMES)
def test_every_config_of_the_space_may_be_served(records, name):
    mine = [record for record in records if record["kernel"] == name]
    assert {record["misfit"] for record in mine} == {None}


def test_these_kernels_ship(specs):
    assert sorted(specs) == NAMES
    assert all(spec.kernel_id == f"lfbo_aot.{name}" for name, spec in specs.items())
    assert all(spec.module == f"lfbo_aot.kernels.{name}" for name, spec in specs.items())


@pytest.mark.parametrize("name", NAMES)
def test_inputs_are_seeded_and_of_the_shape_asked_for(specs, name):
    import torch

    spec = specs[name]
    point = min(spec.buckets, key=lambda bucket: bucket.volume).probes[0]
    for shape in (*spec.small, point):
        once, again = (spec.make_inputs(shape, torch.device("cpu")) for _ in range(2))
        assert all(torch.equal(a, b) for a, b in zip(once, again, strict=True))
        assert {arg.dtype for arg in once} == {getattr(torch, shape["dtype"])}
        assert len({arg.flatten()[:64].sum().item() for arg in once}) == len(once)


@pytest.mark.parametrize("name", NAMES)
def test_the_reference_keeps_dtype_and_shape(specs, name):
    import torch

    spec = specs[name]
    args = spec.make_inputs({**spec.small[0], "dtype": "bfloat16"}, torch.device("cpu"))
    wanted = spec.reference(*args)
    assert wanted.dtype is torch.bfloat16
    assert torch.isfinite(wanted).all()


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
def test_a_config_of_the_tuning_point_holds_in_the_whole_bucket(specs, name):
    """Down to one row: it is as long as there, changed by nothing, and code can be made of it."""
    import helion
    import torch

    from lfbo_aot.runtime.serving import misfit
    from lfbo_aot.runtime.serving import unserved_bind

    spec = specs[name]
    bucket = min(spec.buckets, key=lambda bucket: bucket.volume)

    def bind(shape):
        return unserved_bind(spec.kernel, spec.make_inputs(shape, torch.device("cpu")))

    generation = bind(bucket.point).config_spec.create_config_generation()
    drawn = [generation.unflatten(flat) for flat in generation.random_population_flat(4)]
    for shape in bucket.probes:
        bound = bind(shape)
        for config in drawn:
            plain = json.loads(json.dumps(config.config))
            assert misfit(bound, plain) is None
            kept = bound.config_spec.normalized_config(plain).config
            assert {key: kept.get(key) for key in plain} == plain
            assert f"def {name}(" in bound.to_triton_code(helion.Config(**plain))


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
