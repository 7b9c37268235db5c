"""Is a candidate's result right? Compared with the reference in float32, NaN never passes."""

from __future__ import annotations

from typing import TYPE_CHECKING
from typing import Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Sequence

# (rtol, atol) where a kernel declares none: a few units in the last place of a result that was
# accumulated in float32 and rounded once, with room for another order of summation.
TOLERANCE: dict[str, tuple[float, float]] = {
    "float64": (1e-7, 1e-7),
    "float32": (1e-4, 1e-5),
    "float16": (2e-3, 2e-3),
    "bfloat16": (1.6e-2, 1.6e-2),
    "float8_e4m3fn": (1.3e-1, 1.3e-1),
    "float8_e5m2": (2.6e-1, 2.6e-1),
}
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
    """None where all tensors agree, else a sentence that says which one doesn't and by how much."""
    if len(got) != len(want):
        return f"{len(got)} tensors came back, the reference gives {len(want)}"
    for i, (ours, theirs) in enumerate(zip(got, want, strict=True)):
        reason = _tensor_difference(ours, theirs, {**TOLERANCE, **(tolerance or {})})
        if reason:
            return f"result {i}: {reason}"
    return None


def _tensor_difference(
    got: Any, want: Any, tolerance: Mapping[str, tuple[float, float]]
) -> str | None:
    import torch

    if got.shape != want.shape:
        return f"shape {tuple(got.shape)}, the reference has {tuple(want.shape)}"
    kind = str(got.dtype).removeprefix("torch.")
    rtol, atol = tolerance.get(kind, (0.0, 0.0))
    wide = torch.float64 if got.dtype == torch.float64 else torch.float32
    exact = not (got.is_floating_point() or got.is_complex())
    ours, theirs = got.reshape(-1), want.reshape(-1)
    for start in range(0, ours.numel(), _CHUNK):
        a, b = ours[start : start + _CHUNK], theirs[start : start + _CHUNK]
        if exact:
            wrong = a != b
        else:
            a, b = a.to(wide), b.to(wide)
            within = (a - b).abs() <= atol + rtol * b.abs()
            wrong = ~(within | (a == b) | (a.isnan() & b.isnan()))
        count = int(wrong.sum())
        if count:
            at = int(wrong.nonzero()[0])
            return (
                f"{count} of {a.numel()} values differ by more than rtol={rtol} atol={atol}; "
                f"the first, at {start + at}: {a[at].item()!r} instead of {b[at].item()!r}"
            )
    return None
