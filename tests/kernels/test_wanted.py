"""The list of what is tuned for a release: short, in order, and nothing but declared buckets."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("helion")

from lfbo_aot.cli.wanted import read_wanted
from lfbo_aot.registry.discovery import load_kernels

LIST = Path(__file__).parents[2] / "kernels" / "wanted.txt"
MOST = 150


@pytest.fixture(scope="module")
def wanted():
    lines, remarks = read_wanted(str(LIST))
    assert remarks == []
    return lines


@pytest.fixture(scope="module")
def specs():
    return {spec.name: spec for spec in load_kernels(["lfbo_aot.kernels"])}


def test_each_line_is_the_tuning_point_of_a_bucket_of_its_own(wanted, specs):
    shapes = [(line.kernel, specs[line.kernel].normalize_shape(line.shape)) for line in wanted]
    buckets = [(name, specs[name].bucket_for(shape)) for name, shape in shapes]
    assert [bucket.point for _, bucket in buckets] == [shape for _, shape in shapes]
    assert len({(name, bucket.key) for name, bucket in buckets}) == len(wanted) <= MOST


def test_every_kernel_is_on_it_and_the_newer_ones_whole(wanted, specs):
    counts = {name: sum(line.kernel == name for line in wanted) for name in specs}
    assert min(counts.values()) > 0
    products = {"layer_norm", "matmul", "rms_norm", "softmax", "vector_add"}
    assert {n: c for n, c in counts.items() if n not in products} == {
        n: len(spec.buckets) for n, spec in specs.items() if n not in products
    }
