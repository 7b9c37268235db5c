"""The shipped kernels against PyTorch, over configs of their own search spaces."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("torch")
pytest.importorskip("helion")

from .shipped import NAMES

CONFIGS = 2


@pytest.fixture(scope="module")
def records(interpreted):
    """Of all kernels by one process: to import torch and Helion takes as long as some kernels."""
    return interpreted(CONFIGS, NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_config_gives_what_pytorch_gives(records, name):
    mine = [record for record in records if record["kernel"] == name]
    shapes = {json.dumps(record["shape"]) for record in mine}
    assert len(shapes) >= 3
    assert len(mine) >= len(shapes) + CONFIGS
    wrong = [record for record in mine if not record["equal"]]
    assert wrong == []


@pytest.mark.parametrize("name", NAMES)
def test_every_config_of_the_space_may_be_served(records, name):
    mine = [record for record in records if record["kernel"] == name]
    assert {record["misfit"] for record in mine} == {None}
