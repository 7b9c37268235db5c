"""The kernels that go over rows against PyTorch, over configs of their own search spaces."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("torch")
pytest.importorskip("helion")

NAMES = [
    "cross_entropy",
    "gelu_and_mul",
    "layer_norm_backward",
    "quantize_fp8",
    "rms_norm_backward",
    "rms_norm_fp8",
    "rotary_embedding",
    "silu_and_mul",
]
CONFIGS = 1


@pytest.fixture(scope="module")
def records(interpreted):
    return interpreted(CONFIGS, NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_config_gives_what_pytorch_gives(records, name):
    mine = [record for record in records if record["kernel"] == name]
    shapes = {json.dumps(record["shape"]) for record in mine}
    assert len(shapes) == 5
    assert len(mine) >= 2 * (CONFIGS + 1) + 3
    wrong = [record for record in mine if not record["equal"]]
    assert wrong == []


@pytest.mark.parametrize("name", NAMES)
def test_every_config_of_the_space_may_be_served(records, name):
    mine = [record for record in records if record["kernel"] == name]
    assert {record["misfit"] for record in mine} == {None}
