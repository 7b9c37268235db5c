"""Is a candidate's result right? Compared with the reference, in float32 or wider."""

from __future__ import annotations

from typing import TYPE_CHECKING
from typing import Any

from lfbo_aot.registry.spec import TOLERANCE as DECLARED

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Sequence

# (rtol, atol) where a kernel declares none; a float8 holds two or three bits after the first.
TOLERANCE: dict[str, tuple[float, float]] = {
    **DECLARED,
    "float8_e4m3fn": (1.3e-1, 1.3e-1),
    "float8_e5m2": (2.6e-1, 2.6e-1),
}
_REAL_OF = {"complex32": "float16", "complex64": "float32", "complex128": "float64"}
_CHUNK = 1 << 26  # elements compared at once: bounds the memory that a check needs


def tensors_of(value: Any) -> list[Any]:
    """The tensors in a kernel's result: itself, or those in a tuple, list or dict, in order."""
    import torch

    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        return [t for key in sorted(value) for t in tensors_of(value[key])]
    if isinstance(value, list | tuple):
        return [t for item in value for t in tensors_of(item)]
    return []


def difference(
    got: Sequence[Any], want: Sequence[Any], tolerance: Mapping[str, tuple[float, float]] | None
) -> str | None:
    """None where all tensors agree, else a sentence that says which one doesn't and by how much.

    A NaN or an infinity agrees with the same one only.
    """
    if len(got) != len(want):
        return f"{len(got)} tensors came back, the reference gives {len(want)}"
    for i, (ours, theirs) in enumerate(zip(got, want, strict=True)):
        reason = _tensor_difference(ours, theirs, {**TOLERANCE, **(tolerance or {})})
        if reason:
            return f"result {i}: {reason}"
    return None


def same(one: Any, other: Any) -> bool:
    """Whether two tensors hold the same values; a NaN is the same as any other."""
    return _tensor_difference(one, other, {}) is None


def has_nan(tensor: Any) -> bool:
    """Whether a NaN is among the values of a tensor."""
    import torch

    flat = _flat(tensor)
    for start in range(0, flat.numel(), _CHUNK):
        piece = flat[start : start + _CHUNK]
        # The narrowest floats have no isnan.
        piece = piece.to(torch.float32) if piece.element_size() == 1 else piece
        if piece.isnan().any():
            return True
    return False


def _tensor_difference(
    got: Any, want: Any, tolerance: Mapping[str, tuple[float, float]]
) -> str | None:
    if got.shape != want.shape:
        return f"shape {tuple(got.shape)}, the reference has {tuple(want.shape)}"
    if got.is_complex() != want.is_complex():
        return f"dtype {got.dtype}, the reference has {want.dtype}"
    kind = str(got.dtype).removeprefix("torch.")
    rtol, atol = tolerance.get(_REAL_OF.get(kind, kind), (0.0, 0.0))
    ours, theirs = _flat(got), _flat(want.to(got.device))
    for start in range(0, ours.numel(), _CHUNK):
        a, b = ours[start : start + _CHUNK], theirs[start : start + _CHUNK]
        wrong, a, b = _wrong(a, b, rtol, atol)
        count = int(wrong.sum())
        if count:
            at = int(wrong.nonzero()[0])
            return (
                f"{count} of {a.numel()} values differ by more than rtol={rtol} atol={atol}; "
                f"the first, at {start + at}: {a[at].item()!r} instead of {b[at].item()!r}"
            )
    return None


def _flat(tensor: Any) -> Any:
    """One dim; a complex number as two real ones."""
    import torch

    flat = tensor.reshape(-1)
    return torch.view_as_real(flat.resolve_conj()).reshape(-1) if flat.is_complex() else flat


def _wrong(a: Any, b: Any, rtol: float, atol: float) -> tuple[Any, Any, Any]:
    """Where `a` is wrong, and both as they were compared."""
    import torch

    if not a.is_floating_point():
        return a != b, a, b
    wide = torch.float64 if a.dtype == torch.float64 else torch.float32
    a, b = a.to(wide), b.to(wide)
    # Against an infinity any finite value would be within the relative tolerance.
    within = b.isfinite() & ((a - b).abs() <= atol + rtol * b.abs())
    return ~(within | (a == b) | (a.isnan() & b.isnan())), a, b
