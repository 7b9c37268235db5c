from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from lfbo_aot.tuning import judged
from lfbo_aot.tuning.judged import judged_by


def reference(x):
    return x


def other(x):
    return -x


@pytest.fixture
def told(make_spec_of, changed):
    """What is told of a reference, for a kernel of this module."""

    def tell(function, **words):
        place = {"module": __name__, "file": __file__, **words}
        return judged_by(changed(make_spec_of(), reference=function, **place)).get("reference")

    return tell


def test_own_functions_are_told_by_their_source(told):
    assert told(reference).startswith("sha256:")
    assert told(reference) == told(reference) != told(other)
    assert told(reference, module="elsewhere") == told(reference)  # the same folder
    assert told(None) == "none"


def test_functions_of_libraries_are_told_by_name(told, monkeypatch):
    """Their package may be as large as PyTorch, and is not read."""
    monkeypatch.setattr(judged, "source_digest", None)
    assert told(torch.nn.functional.softmax) == "torch.nn.functional.softmax"
    assert told(torch.softmax).endswith("softmax")
    far = {"module": "elsewhere", "file": "/elsewhere.py"}
    assert told(reference, **far) == f"{__name__}.reference"


@pytest.mark.parametrize("function", [lambda x: x, SimpleNamespace()])
def test_what_has_no_name_is_left_out(told, function):
    assert told(function) is None


def test_what_can_not_be_read_is_left_out(told):
    code = compile("def made(x):\n    return x\n", "<nowhere>", "exec")
    names = {"__name__": __name__}
    exec(code, names)
    assert told(names["made"]) is None


def test_tolerance_counts(make_spec_of):
    loose = judged_by(make_spec_of(tolerance={"float32": (0.5, 0.25)}))
    assert loose["tolerance"]["float32"] == [0.5, 0.25]
    assert loose != judged_by(make_spec_of())
