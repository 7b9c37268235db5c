"""Cross entropy of each token's logits: what a language model's training ends with."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
) -> tuple[torch.Tensor, torch.Tensor]:
    m, v = int(shape["m"]), int(shape["v"])
    generator = torch.Generator(device=device).manual_seed(1)
    labels = torch.randint(v, (m,), generator=generator, device=device)
    # One in eight is padding.
    padding = torch.arange(m, device=device) % 8 == 7  # noqa: PLR2004
    return normal((m, v), shape, device), labels.masked_fill(padding, -100)


def _reference(
    logits: torch.Tensor, labels: torch.Tensor, ignore_index: int = -100
) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(
        logits.float(), labels, ignore_index=ignore_index, reduction="none"
    )


@lfbo_aot.kernel(
    dims={
        "m": Range(1, 8192, edges=[1024]),
        # Vocabularies of Llama 3, Qwen 3, DeepSeek V3 and gpt-oss.
        "v": Exact(128256, 151936, 129280, 201088),
        "dtype": Exact("bfloat16"),
    },
    shape=lambda logits, labels, ignore_index: {  # noqa: ARG005 - they pick no config
        "m": logits.size(0),
        "v": logits.size(1),
        "dtype": logits.dtype,
    },
    inputs=_inputs,
    reference=_reference,
    # Losses are float32 whatever the logits are, and about the logarithm of v: 12 of 200,000. A sum
    # of v exponentials in another order moves that by some units in its last place.
    tolerance={"float32": (1e-5, 1e-5)},
    small=[
        {"m": 16, "v": 128, "dtype": "float32"},
        {"m": 5, "v": 96, "dtype": "float32"},
    ],
)
def cross_entropy(
    logits: torch.Tensor, labels: torch.Tensor, ignore_index: int = -100
) -> torch.Tensor:
    """The negative log likelihood of each row's label, in float32; 0 where it is `ignore_index`.

    `logits` is of size (m, v), `labels` of size (m,), int64. Each logit is read once: the largest so
    far and the sum of exponentials relative to it are carried along (Milakov and Gimelshein 2018,
    "Online normalizer calculation for softmax").
    """
    m, v = logits.size()
    out = torch.empty([m], dtype=torch.float32, device=logits.device)
    flat = logits.view(m * v)
    for rows in hl.tile(m):
        # Finite: a stretch of logits that are all minus infinity must not give a NaN.
        largest = hl.full([rows], -3.4e38, dtype=torch.float32)
        total = hl.zeros([rows], dtype=torch.float32)
        for columns in hl.tile(v):
            values = logits[rows, columns].to(torch.float32)
            larger = torch.maximum(largest, torch.amax(values, dim=-1))
            powers = torch.exp(values - larger[:, None])
            total = total * torch.exp(largest - larger) + torch.sum(powers, dim=-1)
            largest = larger
        label = labels[rows]
        counts = label != ignore_index
        # In int64: a batch's logits can be more than 2**31.
        place = rows.index.to(torch.int64) * v + torch.where(counts, label, 0)
        picked = hl.load(flat, [place]).to(torch.float32)
        out[rows] = torch.where(counts, torch.log(total) + largest - picked, 0.0)
    return out
