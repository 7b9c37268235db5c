"""The digest of a space without the search's classes is the one that tuning records."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("torch")
pytest.importorskip("helion")
pytest.importorskip("sklearn")

from lfbo_aot.adapters import helion as seam
from lfbo_aot.adapters.fragments import space_digest
from lfbo_aot.registry.discovery import load_kernels

KERNELS = load_kernels()


@pytest.mark.parametrize("spec", KERNELS, ids=lambda spec: spec.name)
def test_it_is_the_digest_that_tuning_records(spec):
    for shape in spec.small:
        args = spec.kernel.normalize_args(*spec.make_inputs(shape, "cpu"))
        bound = seam.bind(spec.kernel, args)
        assert space_digest(bound) == seam.SpaceCodec(bound).space.digest


def test_the_modules_that_serving_uses_load_neither_numpy_nor_the_search():
    code = (
        "import lfbo_aot.adapters.fragments, lfbo_aot.adapters.launching, sys;"
        "bad = {m.split('.')[0] for m in sys.modules} & {'numpy', 'sklearn', 'torch', 'helion'};"
        "assert not bad, bad;"
        "assert not [m for m in sys.modules if m.startswith('lfbo_aot.search')]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
