"""Look-ups with a declared kernel: its own source and settings are checked, and tensors' layout."""

from __future__ import annotations

import inspect
from types import SimpleNamespace

import pytest
import torch

import lfbo_aot
from lfbo_aot.errors import ShapeError
from lfbo_aot.registry import catalog
from lfbo_aot.registry.devices import INTERPRETER
from lfbo_aot.registry.layout import describe_layout
from lfbo_aot.registry.spec import make_spec
from lfbo_aot.runtime import hardware
from lfbo_aot.runtime.environment import Environment
from lfbo_aot.runtime.resolve import get_config
from lfbo_aot.runtime.resolve import resolve

pytestmark = pytest.mark.usefixtures("isolated")

KERNEL = "mykern.norm"
ARCH = "sm90/NVIDIA H200"
BUCKET = "m=17..256|n=2048|dtype=bfloat16"
SHAPE = {"m": 100, "n": 2048, "dtype": "bfloat16"}
SETTINGS = {"static_shapes": True, "fast_math": False}


def norm(x, eps=1e-5):
    return x


@pytest.fixture
def kernel(make_declaration):
    spec = make_spec(
        kernel=norm,
        kernel_id=KERNEL,
        signature=inspect.signature(norm),
        place=("mykern.ops", "ops.py", 3),
        source="sha256:50ce",
        settings=SETTINGS,
        dims=make_declaration(KERNEL).dims,
        shape=lambda x, eps: {"m": x.size(0), "n": x.size(1), "dtype": x.dtype},
    )
    return SimpleNamespace(lfbo_aot_spec=spec)


@pytest.fixture
def x():
    return torch.empty(100, 2048, dtype=torch.bfloat16)


@pytest.fixture
def serve(tmp_path, write_database, make_entry):
    def lay(**fields):
        entry = make_entry(8, **fields)
        held = {BUCKET: entry, (INTERPRETER, BUCKET): make_entry(2, **fields)}
        lfbo_aot.use_database(write_database(tmp_path / "tuned", {KERNEL: held}))

    return lay


def test_dims_and_live_arguments_agree(serve, kernel, x):
    serve(layout=describe_layout([x]))
    for shape in (SHAPE, tuple(SHAPE.values()), (x,), [x], x, (x, 1e-6)):
        found = resolve(kernel, shape, ARCH)
        assert (found.status, found.config["num_warps"]) == ("exact", 8)
        assert found.reasons == ("not checked: versions",)


def test_the_arch_is_the_tensors_device(serve, kernel, x, monkeypatch):
    serve()
    monkeypatch.setattr(hardware, "interpreted", lambda: True)
    assert get_config(kernel, (x,))["num_warps"] == 2
    monkeypatch.setattr(hardware, "interpreted", lambda: False)
    assert get_config(kernel, (x,)) == {}


def test_another_layout_gets_the_default(serve, kernel, x):
    serve(layout=describe_layout([x]))
    turned = torch.empty(2048, 100, dtype=torch.bfloat16).t()
    found = resolve(kernel, (turned,), ARCH)
    assert (found.status, found.config) == ("default", {})
    assert found.reasons[0].startswith("layout: entry=0,1:bfloat16 here=1,0*:bfloat16")
    assert resolve(kernel, SHAPE, ARCH).status == "exact"


def test_a_tensor_of_another_dtype_than_was_measured_gets_the_default(serve, kernel, x):
    """Also one whose dtype is no dim, such as a weight's."""
    serve(layout=describe_layout([x.float()]))
    found = resolve(kernel, (x,), ARCH)
    assert (found.status, found.config) == ("default", {})
    assert found.reasons[0].startswith("layout: entry=0,1:float32 here=0,1:bfloat16")
    serve(layout=[{"order": [0, 1], "contiguous": True}])
    assert resolve(kernel, (x,), ARCH).status == "exact"


def test_the_kernels_own_source_and_settings_are_checked(serve, kernel, x):
    serve(source="sha256:older", settings={**SETTINGS, "fast_math": True})
    found = resolve(kernel, (x,), ARCH)
    assert found.status == "default"
    assert found.reasons[0].startswith("source: entry=sha256:older here=sha256:50ce")
    assert found.reasons[1].startswith("settings: fast_math: entry=True here=False")
    assert resolve(KERNEL, SHAPE, ARCH).status == "exact"
    given = Environment(source="sha256:older", settings={**SETTINGS, "fast_math": True})
    assert resolve(kernel, (x,), ARCH, environment=given).status == "exact"


def test_wrong_arguments_name_the_kernel(serve, kernel):
    serve()
    with pytest.raises(ShapeError, match=KERNEL):
        resolve(kernel, (torch.empty(3),), ARCH)


def test_a_kernel_that_only_this_process_declares_has_the_default(kernel):
    catalog.add(kernel.lfbo_aot_spec)
    found = resolve("norm", tuple(SHAPE.values()), ARCH)
    assert found.status == "default"
    assert "nearest held: none, this kernel has no entries" in found.reasons[0]
