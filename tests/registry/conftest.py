from __future__ import annotations

import inspect

import pytest

from lfbo_aot.registry import catalog
from lfbo_aot.registry.dims import Exact
from lfbo_aot.registry.dims import Range
from lfbo_aot.registry.spec import make_spec


def scale_add(x, y, factor=2): ...


def make(kernel_id="mine.scale_add", file="/somewhere/ops.py", line=7, **changed):
    """A spec of a kernel that is never run; `changed` are declared fields."""
    declared = {
        "dims": {"m": Range(1, 16, factor=4), "dtype": Exact("float16")},
        "shape": lambda x, y, factor: {"m": x * factor, "dtype": "float16"},
        **changed,
    }
    return make_spec(
        kernel=object(),
        kernel_id=kernel_id,
        signature=inspect.signature(scale_add),
        place=("mine.ops", file, line),
        source="sha256:00",
        settings={"static_shapes": True},
        **declared,
    )


@pytest.fixture
def spec_of():
    return make


@pytest.fixture
def empty_catalog(monkeypatch):
    """The catalog with nothing in it; what it held before comes back afterwards."""
    monkeypatch.setattr(catalog, "_specs", {})
    return catalog
