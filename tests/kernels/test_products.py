"""The kernels that multiply matrices against PyTorch, over configs of their own search spaces."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("torch")
pytest.importorskip("helion")

NAMES = [
    "attention",
    "batched_matmul",
    "causal_attention",
    "decode_linear",
    "fp8_matmul",
    "matmul_split_k",
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
