"""A config tried before it is set: its kernels are compiled and loaded, and nothing is launched."""

from __future__ import annotations

import ast
import contextlib
import logging
from pathlib import Path
from typing import TYPE_CHECKING
from typing import Any

from lfbo_aot.registry.layout import tensors_in

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Iterator
    from collections.abc import Sequence

    from lfbo_aot.registry.spec import KernelSpec

logger = logging.getLogger(__name__)

_ALIGNMENT = 16  # bytes; Triton makes other code for pointers that are no multiple of it


def why_not_run(spec: KernelSpec, function: Callable[..., Any], args: Sequence[Any]) -> str | None:
    """Why the kernels that `function(*args)` would launch can't be; None where they can.

    `function` is the host function of one config. It is run with a launcher that compiles and
    loads; the arguments that the kernel writes are copies. None too where nothing can be said: no
    Triton backend, tensors that no GPU holds, a host function that fails by itself. Such a call
    goes on as it would without us, and fails there if it must.
    """
    from lfbo_aot.adapters.launching import CompileFailedError
    from lfbo_aot.adapters.launching import compile_and_load

    if spec.settings.get("backend") != "triton" or not _runs_here(args):
        return None
    try:
        with _random_state_kept(args):
            compile_and_load(function, _copied(spec, function, args))
    except CompileFailedError as error:
        return str(error)
    except Exception:
        logger.debug("kernel %s: not tried before its call", spec.kernel_id, exc_info=True)
    return None


def _runs_here(args: Sequence[Any]) -> bool:
    """Whether these are tensors that a kernel could be launched on: neither fake nor traced."""
    import torch

    from lfbo_aot.runtime import hardware

    tensors = list(tensors_in(args))
    if any(type(tensor) not in (torch.Tensor, torch.nn.Parameter) for tensor in tensors):
        return False
    kinds = {str(tensor.device.type) for tensor in tensors}
    return bool(kinds - {"cpu", "meta"}) or (kinds == {"cpu"} and hardware.interpreted())


def capturing() -> bool:
    """Whether this thread's CUDA stream records a graph."""
    import torch

    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()


@contextlib.contextmanager
def _random_state_kept(args: Sequence[Any]) -> Iterator[None]:
    """Host code may draw a seed; the call that follows must draw the same one."""
    import torch

    devices = {tensor.device.index for tensor in tensors_in(args) if tensor.device.type == "cuda"}
    if capturing():
        yield  # the generator belongs to the graph
        return
    with torch.random.fork_rng(devices=sorted(devices - {None})):
        yield


def _copied(spec: KernelSpec, function: Callable[..., Any], args: Sequence[Any]) -> tuple[Any, ...]:
    """The arguments, as copies where host code may write them.

    Those that `mutates=` names, and all of them where the host function has anything in it that
    writes: what is written twice is wrong, and a copy costs only time.
    """
    every = may_write(function)
    pairs = zip(spec.signature.parameters, args, strict=False)
    return tuple(_copy(arg) if every or name in spec.mutates else arg for name, arg in pairs)


def may_write(function: Callable[..., Any]) -> bool:
    """Whether a host function has operations in place: `x.add_(1)`, `x[0] = 1`, `x += 1`, `out=`."""
    code = getattr(function, "__code__", None)
    try:
        tree = ast.parse(Path(code.co_filename).read_bytes())  # type: ignore[union-attr]
        named = {n.name: n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}
        host = named[function.__name__]
    except (OSError, ValueError, SyntaxError, AttributeError, KeyError):
        return True  # it can't be told
    return any(_writes(node) for node in ast.walk(host))


def _writes(node: ast.AST) -> bool:
    if isinstance(node, ast.AugAssign):
        return True
    if isinstance(node, ast.Assign):
        return any(isinstance(target, (ast.Subscript, ast.Attribute)) for target in node.targets)
    if isinstance(node, ast.Call):
        called = node.func
        name = called.attr if isinstance(called, ast.Attribute) else ""
        in_place = name.endswith("_") and not name.endswith("__")
        return in_place or any(keyword.arg == "out" for keyword in node.keywords)
    return False


def _copy(value: Any) -> Any:
    if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
        return type(value)(map(_copy, value))
    return _copy_tensor(value) if hasattr(value, "untyped_storage") else value


def _copy_tensor(tensor: Any) -> Any:
    """A tensor with the same sizes, strides, contents, and alignment of its pointer."""
    import torch

    places = list(zip(tensor.size(), tensor.stride(), strict=True))
    if any(size == 0 or (stride == 0 and size > 1) for size, stride in places):
        return tensor.clone()  # nothing in it, or the same element many times
    shift = int(tensor.data_ptr()) % _ALIGNMENT // tensor.element_size()
    span = 1 + sum((size - 1) * stride for size, stride in places)
    memory = torch.empty(shift + span, dtype=tensor.dtype, device=tensor.device)
    copy = memory.as_strided(tensor.size(), tensor.stride(), shift)
    # A graph would copy at each replay, and host code under capture can't read values.
    if not capturing():
        with torch.no_grad():
            copy.copy_(tensor)
    return copy
