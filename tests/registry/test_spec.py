from __future__ import annotations

import functools
import inspect

import pytest

from lfbo_aot.errors import DeclarationError
from lfbo_aot.errors import ShapeError
from lfbo_aot.errors import TuningError
from lfbo_aot.registry.dims import Exact
from lfbo_aot.registry.dims import Range
from lfbo_aot.registry.spec import make_spec


def test_what_is_declared_is_kept(spec_of):
    spec = spec_of(small=[{"dtype": "float32", "m": 100}], mutates="x")
    assert spec.name == "scale_add"
    assert spec.place == "/somewhere/ops.py:7"
    assert [b.key for b in spec.buckets] == ["m=1..4|dtype=float16", "m=5..16|dtype=float16"]
    assert spec.small == ({"m": 100, "dtype": "float32"},)
    assert [b.key for b in spec.small_buckets] == ["m=100|dtype=float32"]
    assert spec.mutates == ("x",)


def test_shape_of_applies_defaults_and_keywords(spec_of):
    spec = spec_of()
    assert spec.shape_of(3, 1) == {"m": 6, "dtype": "float16"}
    assert spec.shape_of(3, 1, 4) == {"m": 12, "dtype": "float16"}
    assert spec.shape_of(y=1, x=3, factor=1) == {"m": 3, "dtype": "float16"}
    with pytest.raises(TypeError):
        spec.shape_of(3)


def test_bucket_for(spec_of):
    spec = spec_of()
    assert spec.bucket_for({"m": 5, "dtype": "float16"}) == spec.buckets[1]
    assert spec.bucket_for({"m": 17, "dtype": "float16"}) is None
    assert spec.bucket_for({"m": 5, "dtype": "float32"}) is None
    assert spec.bucket_for({"m": 5}) is None


@pytest.mark.parametrize(
    ("returned", "dim", "said"),
    [
        pytest.param({"m": 1}, "dtype", "declared, but not among", id="missing"),
        pytest.param({"m": 1, "dtype": "a", "k": 1}, "k", "not a declared dim", id="more"),
        pytest.param({"m": 1.5, "dtype": "float16"}, "m", "can't be the value", id="float"),
        pytest.param({"m": 1, "dtype": "a|b"}, "dtype", "separate", id="separator"),
        pytest.param([1, 2], None, "list", id="not a mapping"),
    ],
)
def test_a_wrong_shape_names_kernel_and_dim(spec_of, returned, dim, said):
    spec = spec_of(shape=lambda x, y, factor: returned)
    with pytest.raises(ShapeError, match=said) as caught:
        spec.shape_of(1, 2)
    assert caught.value.kernel == "mine.scale_add"
    assert caught.value.dim == dim


def test_a_shape_function_that_fails_is_named(spec_of):
    spec = spec_of(shape=lambda x, y, factor: {"m": x.size(0)})
    with pytest.raises(ShapeError, match=r"mine\.scale_add.*AttributeError"):
        spec.shape_of(1, 2)


BAD = {
    "empty interval": ({"dims": {"m": Range(4, 1)}}, "m", "empty"),
    "overlap": ({"dims": {"m": Range(1, 9, edges=[5, 3])}}, "m", "overlap"),
    "dtype": ({"dims": {"dtype": Exact("float61")}}, "dtype", "torch dtype"),
    "no dims": ({"dims": {}}, None, "no dims"),
    "shape takes too little": ({"shape": lambda x, y: {}}, None, "shape.*x, y, factor"),
    "shape takes too much": ({"shape": lambda x, y, f, g: {}}, None, "shape.*missing"),
    "shape is none": ({"shape": None}, None, "must be a function"),
    "no shape": ({"shape": None}, None, "shape= is missing"),
    "dims is none": ({"dims": None}, None, "dims= is missing"),
    "dims is a list": ({"dims": [("m", Range(1, 4))]}, None, r"dims= is \[.*a mapping"),
    "a dim that isn't ASCII": ({"dims": {"größe": Range(1, 4)}}, None, "'größe' isn't ASCII"),
    "a dim that is no name": ({"dims": {"m n": Range(1, 4)}}, None, "isn't a Python identifier"),
    "inputs": ({"inputs": lambda shape: ()}, None, "inputs"),
    "reference": ({"reference": lambda x: x}, None, "reference"),
    "small misses a dim": ({"small": [{"m": 1}]}, "dtype", r"small\[0\]"),
    "small has another dim": ({"small": [{"m": 1, "dtype": "int8", "k": 1}]}, None, "'k'"),
    "small's dtype": ({"small": [{"m": 1, "dtype": "half"}]}, "dtype", "float16"),
    "small's value": ({"small": [{"m": 0.5, "dtype": "int8"}]}, "m", "can't be"),
    "mutates": ({"mutates": ["z"]}, None, "x, y, factor"),
    "tolerance": ({"tolerance": {"float32": 1e-3}}, None, "relative, absolute"),
    "tolerance's dtype": ({"tolerance": {"f32": (0, 0)}}, "dtype", "torch dtype"),
    "negative tolerance": ({"tolerance": {"float32": (-1, 0)}}, None, "0 or more"),
    "buckets overlap": (
        {"buckets": [{"m": (1, 4), "dtype": "float16"}, {"m": 4, "dtype": "float16"}]},
        None,
        "overlap",
    ),
}


@pytest.mark.parametrize(("changed", "dim", "said"), BAD.values(), ids=BAD)
def test_declaration_errors_name_kernel_dim_and_line(spec_of, changed, dim, said):
    with pytest.raises(DeclarationError, match=said) as caught:
        spec_of(**changed)
    assert caught.value.kernel == "mine.scale_add"
    assert caught.value.dim == dim
    assert caught.value.place == "/somewhere/ops.py:7"
    assert "/somewhere/ops.py:7" in str(caught.value)


def test_tolerance_is_laid_over_the_usual_one(spec_of):
    spec = spec_of(tolerance={"float32": (0, 1)})
    assert spec.tolerance["float32"] == (0.0, 1.0)
    assert spec.tolerance["bfloat16"][0] > 0


def test_inputs_are_checked_against_the_shape_asked_for(spec_of):
    shape = {"m": 6, "dtype": "float16"}
    assert spec_of(inputs=lambda s, d: [s["m"] // 2, d]).make_inputs(shape, "cpu") == (3, "cpu")
    with pytest.raises(TuningError, match="'m': 8"):
        spec_of(inputs=lambda s, d: (4, d)).make_inputs(shape, "cpu")
    with pytest.raises(TuningError, match="must return a tuple"):
        spec_of(inputs=lambda s, d: 4).make_inputs(shape, "cpu")
    with pytest.raises(TuningError, match="no inputs="):
        spec_of().make_inputs(shape, "cpu")


@pytest.mark.parametrize("kernel_id", ["mine.größe", "mine.a/b", "mine." + "x" * 200, ".mine.a"])
def test_an_id_that_no_file_can_have_is_refused(spec_of, kernel_id):
    with pytest.raises(DeclarationError, match="can't be the name of a file") as caught:
        spec_of(kernel_id=kernel_id)
    assert (caught.value.kernel, caught.value.place) == (kernel_id, "/somewhere/ops.py:7")


@pytest.mark.parametrize(
    "shape", [lambda *args: {"m": args[1]}, functools.partial(lambda x, m: {"m": m}, m=1)]
)
def test_a_shape_function_that_cannot_be_seen_through_is_refused_where_it_matters(shape):
    """Else an entry tuned with one value of `flag` would answer for another one."""
    made = {
        "kernel": None,
        "kernel_id": "mine.k",
        "place": ("mine", "mine.py", 3),
        "source": "sha256:0",
        "settings": {},
        "dims": {"m": Exact(1)},
        "shape": shape,
    }

    def flagged(x, flag: bool = False): ...

    def tensors(x): ...

    if not isinstance(shape, functools.partial):
        with pytest.raises(DeclarationError, match=r"shape= reads 'flag'.*without \*args"):
            make_spec(signature=inspect.signature(flagged), **made)
    assert make_spec(signature=inspect.signature(tensors), **made).places_read is None
