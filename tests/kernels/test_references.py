"""The references themselves: against PyTorch's own operators and gradients, and known values."""

from __future__ import annotations

import math

import pytest

pytest.importorskip("torch")
pytest.importorskip("helion")

import torch

from lfbo_aot.registry.discovery import load_kernels

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def specs():
    return {spec.name: spec for spec in load_kernels(["lfbo_aot.kernels"])}


def inputs(spec, **shape):
    return spec.make_inputs({"dtype": "float32", **shape}, CPU)


def test_attention_is_pytorchs(specs):
    args = inputs(specs["attention"], b=2, s=3, t=11, heads=6, kv_heads=2, d=8)
    wanted = torch.nn.functional.scaled_dot_product_attention(*args, enable_gqa=True)
    torch.testing.assert_close(specs["attention"].reference(*args), wanted)


def test_causal_attention_is_pytorchs(specs):
    args = inputs(specs["causal_attention"], b=2, s=11, heads=6, kv_heads=2, d=8)
    wanted = torch.nn.functional.scaled_dot_product_attention(
        *args, is_causal=True, enable_gqa=True
    )
    torch.testing.assert_close(specs["causal_attention"].reference(*args), wanted)


@pytest.mark.parametrize("name", ["layer_norm_backward", "rms_norm_backward"])
def test_gradients_are_autograds(specs, name):
    grad, x, weight = inputs(specs[name], m=5, n=12)
    x.requires_grad_()
    weight.requires_grad_()
    bias = torch.zeros_like(weight, requires_grad=True)
    if name == "rms_norm_backward":
        torch.nn.functional.rms_norm(x, (12,), weight, 1e-6).backward(grad)
        wanted = (x.grad, weight.grad)
    else:
        torch.nn.functional.layer_norm(x, (12,), weight, bias, 1e-5).backward(grad)
        wanted = (x.grad, weight.grad, bias.grad)
    found = specs[name].reference(grad, x.detach(), weight.detach())
    torch.testing.assert_close(found, wanted)


def test_a_quarter_turn_swaps_the_halves(specs):
    x = torch.tensor([[[1.0, 2.0, 3.0, 4.0]]])
    angle = torch.full((1, 2), math.pi / 2)
    turned = specs["rotary_embedding"].reference(x, angle.cos(), angle.sin())
    torch.testing.assert_close(turned, torch.tensor([[[-3.0, -4.0, 1.0, 2.0]]]))


def test_quantised_values_are_within_a_sixteenth(specs):
    (x,) = inputs(specs["quantize_fp8"], m=4, n=64)
    values, scale = specs["quantize_fp8"].reference(x)
    back = values.float() * scale
    assert values.float().abs().amax(dim=-1).tolist() == [448.0] * 4
    assert bool(((back - x).abs() <= x.abs() / 16 + scale * 2**-10).all())


def test_padding_has_no_loss(specs):
    logits, labels = inputs(specs["cross_entropy"], m=16, v=10)
    losses = specs["cross_entropy"].reference(logits, labels)
    assert (labels == -100).nonzero().flatten().tolist() == [7, 15]
    assert losses[labels == -100].tolist() == [0.0, 0.0]
    first = torch.logsumexp(logits[0], 0) - logits[0, labels[0]]
    torch.testing.assert_close(losses[0], first)


def test_scales_of_an_8_bit_product_multiply_rows_and_columns(specs):
    x, weight, rows, columns = inputs(specs["fp8_matmul"], m=3, n=5, k=16, dtype="float8_e4m3fn")
    wanted = (x.float() * rows) @ (weight.float() * columns).T
    found = specs["fp8_matmul"].reference(x, weight, rows, columns)
    torch.testing.assert_close(found.float(), wanted, rtol=2**-8, atol=1e-5)
    assert 0.1 < found.float().std() < 10
