"""The gradients of `layer_norm`: of what it normalises, of its scale and of its shift."""

from __future__ import annotations

from typing import TYPE_CHECKING

import helion
import helion.language as hl
import torch

import lfbo_aot
from lfbo_aot import Exact
from lfbo_aot import Range

from .shapes import normal

if TYPE_CHECKING:
    from collections.abc import Mapping


def _inputs(
    shape: Mapping[str, int | str | bool], device: torch.device | str
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    m, n = int(shape["m"]), int(shape["n"])
    return (
        normal((m, n), shape, device),
        normal((m, n), shape, device, seed=1),
        normal((n,), shape, device, seed=2),
    )


def _reference(
    grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-5
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    values, grads = x.float(), grad.float()
    centred = values - values.mean(dim=-1, keepdim=True)
    inverse = torch.rsqrt(centred.square().mean(dim=-1, keepdim=True) + eps)
    normed = centred * inverse
    scaled = grads * weight.float()
    shared = (scaled * normed).mean(dim=-1, keepdim=True)
    grad_x = (scaled - scaled.mean(dim=-1, keepdim=True) - normed * shared) * inverse
    grad_weight, grad_bias = (grads * normed).sum(dim=0), grads.sum(dim=0)
    return grad_x.to(x.dtype), grad_weight.to(weight.dtype), grad_bias.to(weight.dtype)


@lfbo_aot.kernel(
    # The sizes at which `layer_norm` is most used.
    dims={
        "m": Range(1, 16384, edges=[4096]),
        "n": Exact(4096, 8192),
        "dtype": Exact("bfloat16"),
    },
    shape=lambda grad, x, weight, eps: {  # noqa: ARG005 - they follow from x
        "m": x.size(0),
        "n": x.size(1),
        "dtype": x.dtype,
    },
    inputs=_inputs,
    reference=_reference,
    # Sums of a row, and of up to 16,384 rows, in another order: some units of float32 at the size of
    # what is added up, which may cancel; that is the absolute part. Then one rounding of the dtype.
    tolerance={"float32": (1e-4, 1e-3), "bfloat16": (1.6e-2, 2e-2), "float16": (2e-3, 4e-3)},
    small=[
        {"m": 16, "n": 128, "dtype": "float32"},
        {"m": 5, "n": 96, "dtype": "float32"},
    ],
    # The stretches' sums are added up by torch, in launches of their own: that is meant.
    ignore_warnings=[helion.exc.TensorOperationInWrapper],
)
def layer_norm_backward(
    grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-5
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The gradients of `x`, `weight` and `bias`, given that of `layer_norm(x, weight, bias, eps)`.

    What the forward pass computed is computed again: `x` is read anyway. The gradients of `weight`
    and `bias` are summed in float32, over stretches of rows and then over these: the same result at
    each call. That of `bias` has the dtype of `weight`.
    """
    m, n = x.size()
    length = hl.register_block_size(m)
    grad_x = torch.empty_like(x)
    pieces = helion.cdiv(m, length)
    weights = torch.empty([pieces, n], dtype=torch.float32, device=x.device)
    biases = torch.empty([pieces, n], dtype=torch.float32, device=x.device)
    for stretch in hl.tile(m, block_size=length):
        scale = weight[:].to(torch.float32)
        # Not hl.zeros([n]): Helion 1.5 would take its dim for another one, and not mask it.
        weight_total = torch.zeros_like(scale)
        bias_total = torch.zeros_like(scale)
        for row in hl.grid(stretch.begin, stretch.end):
            values = x[row, :].to(torch.float32)
            grads = grad[row, :].to(torch.float32)
            mean = torch.sum(values, dim=-1) / n
            centred = values - mean
            variance = torch.sum(centred * centred, dim=-1) / n
            inverse = torch.rsqrt(variance + eps)
            normed = centred * inverse
            scaled = grads * scale
            shared = torch.sum(scaled * normed, dim=-1) / n
            level = torch.sum(scaled, dim=-1) / n
            grad_x[row, :] = ((scaled - level - normed * shared) * inverse).to(x.dtype)
            weight_total += grads * normed
            bias_total += grads
        weights[stretch.id, :] = weight_total
        biases[stretch.id, :] = bias_total
    return grad_x, weights.sum(0).to(weight.dtype), biases.sum(0).to(weight.dtype)
