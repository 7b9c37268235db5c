"""A kernel call's arguments as text, so that another process can stand in for them."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING
from typing import Any

from lfbo_aot.errors import TuningError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

Described = dict[str, Any]


def describe_arguments(args: Sequence[Any]) -> list[Described]:
    """Each argument's kind and, for tensors, size, stride and dtype; JSON-able.

    Raises TuningError for an argument of a kind that can't be written down.
    """
    return [_describe(i, arg) for i, arg in enumerate(args)]


def _describe(index: int, arg: Any) -> Described:
    import torch

    if isinstance(arg, torch.Tensor):
        return {
            "size": list(arg.shape),
            "stride": list(arg.stride()),
            "dtype": _name(arg.dtype),
            "device": str(arg.device),
        }
    if arg is None or isinstance(arg, bool | int | float | str):
        return {"value": arg}
    if isinstance(arg, torch.dtype):
        return {"torch_dtype": _name(arg)}
    if isinstance(arg, tuple | list):
        kind = "tuple" if isinstance(arg, tuple) else "list"
        return {kind: [_describe(index, item) for item in arg]}
    msg = (
        f"argument {index} is a {type(arg).__name__}; kernels are tuned with tensors, numbers, "
        "strings, dtypes, None, and tuples or lists of these"
    )
    raise TuningError(msg)


def fake_arguments(described: Sequence[Mapping[str, Any]]) -> tuple[Any, ...]:
    """Arguments like the described ones whose tensors hold no memory.

    Their pointers read as 0, which is aligned, as those of freshly allocated tensors are: Triton
    specialises on that, and what is compiled with them must be found for the real ones.
    """
    from torch._subclasses.fake_tensor import FakeTensor
    from torch._subclasses.fake_tensor import FakeTensorMode

    FakeTensor.data_ptr = lambda _: 0  # type: ignore[method-assign,assignment]
    with FakeTensorMode():
        return tuple(_fake(item) for item in described)


def among(args: Sequence[Any]) -> AbstractContextManager[Any]:
    """While inside, tensors that are made are fake like those of `args`, and hold no memory either.

    A host function that allocates its result would otherwise do so on the device.
    """
    from torch._subclasses.fake_tensor import FakeTensor

    for arg in args:
        if isinstance(arg, FakeTensor):
            return arg.fake_mode
        if isinstance(arg, list | tuple):
            found = among(arg)
            if not isinstance(found, contextlib.nullcontext):
                return found
    return contextlib.nullcontext()


def _fake(item: Mapping[str, Any]) -> Any:
    import torch

    if "size" in item:
        dtype = getattr(torch, item["dtype"])
        return torch.empty_strided(item["size"], item["stride"], dtype=dtype, device=item["device"])
    if "torch_dtype" in item:
        return getattr(torch, item["torch_dtype"])
    if "tuple" in item:
        return tuple(_fake(i) for i in item["tuple"])
    if "list" in item:
        return [_fake(i) for i in item["list"]]
    return item["value"]


def _name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")
