from __future__ import annotations

import math

import pytest
import torch

from lfbo_aot.tuning import check
from lfbo_aot.tuning.check import difference
from lfbo_aot.tuning.check import has_nan
from lfbo_aot.tuning.check import same
from lfbo_aot.tuning.check import tensors_of

INF, NAN = math.inf, math.nan
C64 = torch.complex64
TIGHT = {"float32": (0.1, 0.0)}


def t(*values, dtype=torch.float32):
    return torch.tensor(values, dtype=dtype)


def test_tensors_in_order():
    a, b, c = t(1.0), t(2.0), t(3.0)
    found = tensors_of({"z": a, "b": [b, (c, 4)], "n": None})
    assert [x.item() for x in found] == [2.0, 3.0, 1.0]
    assert tensors_of(a)[0] is a
    assert tensors_of(5) == []


@pytest.mark.parametrize(
    ("got", "want"),
    [
        (t(1.0, 2.0), t(1.09, 2.19)),
        (t(INF, -INF, NAN), t(INF, -INF, NAN)),
        (t(1, 2, dtype=torch.int32), t(1, 2, dtype=torch.int64)),
        (t(True, False, dtype=torch.bool), t(True, False, dtype=torch.bool)),
        (t(1.0, dtype=torch.bfloat16), t(1.01, dtype=torch.float64)),
        (t(1 + 2j, dtype=C64), t(1.05 + 2.1j, dtype=C64)),
        (t(), t()),
        (torch.zeros(4, 6).t(), torch.zeros(6, 4)),
        (t(1.0, 2.0).to(torch.float8_e4m3fn), t(1.1, 2.1)),
    ],
)
def test_equal(got, want):
    assert difference([got], [want], TIGHT) is None


@pytest.mark.parametrize(
    ("got", "want", "reason"),
    [
        (t(1.0, 2.0), t(1.0, 2.3), "1 of 2 values differ by more than rtol=0.1 atol=0.0; the "),
        (t(1.0, NAN), t(1.0, 2.0), "the first, at 1: nan instead of 2.0"),
        (t(2.0), t(NAN), "the first, at 0: 2.0 instead of nan"),
        # Any finite value lies within a relative tolerance of an infinity.
        (t(2.0), t(INF), "the first, at 0: 2.0 instead of inf"),
        (t(-INF), t(INF), "the first, at 0: -inf instead of inf"),
        (t(INF), t(3e38), "inf instead of"),
        (t(1, 3, dtype=torch.int32), t(1, 2, dtype=torch.int32), "at 1: 3 instead of 2"),
        (t(1.0), torch.ones(1, 1), "shape (1,), the reference has (1, 1)"),
        (t(1 + 2j, dtype=C64), t(1 + 3j, dtype=C64), "at 1: 2.0 instead of 3.0"),
        (t(1.0), t(1j, dtype=C64), "dtype torch.float32, the reference has torch.complex64"),
        (t(1.0, 2.0, dtype=torch.float64), t(1.0, 2.000001), "rtol=1e-07"),
    ],
)
def test_different(got, want, reason):
    assert reason in difference([got], [want], TIGHT)


def test_the_result_is_named_and_counts_must_agree():
    assert difference([t(1.0), t(2.0)], [t(1.0), t(3.0)], None).startswith("result 1: 1 of 1 ")
    assert difference([t(1.0)], [], None) == "1 tensors came back, the reference gives 0"


def test_a_declared_tolerance_takes_the_place_of_ours():
    got, want = [t(1.0)], [t(1.01)]
    assert difference(got, want, None) is not None
    assert difference(got, want, {"float32": (0.02, 0.0)}) is None


def test_large_results_are_compared_in_pieces(monkeypatch):
    monkeypatch.setattr(check, "_CHUNK", 4)
    want = torch.arange(10.0)
    got = want.clone()
    got[9] += 1
    assert "at 9: 10.0 instead of 9.0" in difference([got], [want], None)
    assert difference([want], [want], None) is None


def test_the_same_values(monkeypatch):
    monkeypatch.setattr(check, "_CHUNK", 2)
    assert same(t(1.0, NAN, 0.0), t(1.0, NAN, -0.0))
    assert not same(t(1.0, 2.0, 3.0), t(1.0, 2.0, 3.0000002))
    assert not same(t(1.0, NAN), t(1.0, 2.0))
    assert same(torch.zeros(4, 6).t(), torch.zeros(6, 4))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float8_e5m2, C64])
def test_nan_is_found(monkeypatch, dtype):
    monkeypatch.setattr(check, "_CHUNK", 2)
    assert has_nan(t(1.0, 2.0, NAN, dtype=torch.float32).to(dtype))
    assert not has_nan(t(1.0, 2.0, 3.0, dtype=torch.float32).to(dtype))
    assert not has_nan(t(dtype=torch.float32).to(dtype))
