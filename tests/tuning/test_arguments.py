from __future__ import annotations

import json

import pytest
import torch

from lfbo_aot.errors import TuningError
from lfbo_aot.tuning.arguments import describe_arguments
from lfbo_aot.tuning.arguments import fake_arguments


def test_arguments_come_back_without_memory(monkeypatch):
    from torch._subclasses.fake_tensor import FakeTensor

    monkeypatch.setattr(FakeTensor, "data_ptr", FakeTensor.data_ptr)
    x = torch.zeros(4, 6, dtype=torch.bfloat16).t()
    args = (x, 3, 0.5, True, None, "relu", torch.float16, (x, [1, 2]))
    described = json.loads(json.dumps(describe_arguments(args)))
    fakes = fake_arguments(described)
    assert fakes[1:7] == args[1:7]
    assert fakes[3] is True
    assert fakes[7][1] == [1, 2]
    for fake in (fakes[0], fakes[7][0]):
        assert isinstance(fake, FakeTensor)
        assert (fake.shape, fake.stride(), fake.dtype) == (x.shape, x.stride(), x.dtype)
        assert fake.data_ptr() == 0
        assert str(fake.device) == "cpu"


def test_an_argument_that_can_not_be_written_down():
    with pytest.raises(TuningError, match=r"^argument 1 is a function; kernels are tuned with "):
        describe_arguments([1, lambda: 0])
