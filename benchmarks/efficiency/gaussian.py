"""The second family of truths: Gaussian processes, smooth where boosting is made of steps.

Matern 3/2 kernel with a length for each feature, chosen by the marginal likelihood with a weak
prior on the logarithms of the lengths. Rasmussen and Williams 2006, "Gaussian Processes for Machine
Learning", chapters 2 and 5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from numpy.typing import NDArray

_ROOT3 = 3**0.5


def _kernel(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    squares = (a * a).sum(1)[:, None] + (b * b).sum(1)[None, :] - 2 * a @ b.T
    scaled = _ROOT3 * torch.sqrt(squares.clamp_min(1e-12))
    return (1 + scaled) * torch.exp(-scaled)


class Process:
    """The posterior mean of a Gaussian process."""

    def __init__(
        self,
        rows: NDArray[np.float64],
        values: NDArray[np.float64],
        noise: NDArray[np.float64],
        steps: int = 120,
    ) -> None:
        """`rows` (n, width), `values` (n); `noise` (n): the least deviation of each value."""
        self._shift, self._scale = rows.mean(0), np.maximum(rows.std(0), 1e-9)
        self._mean, spread = float(values.mean()), float(max(values.std(), 1e-9))
        x = torch.from_numpy((rows - self._shift) / self._scale)
        y = torch.from_numpy((values - self._mean) / spread)
        floor = torch.from_numpy((noise / spread) ** 2)
        prior = float(np.log(rows.shape[1]) / 2 + 0.5)
        length = torch.full((rows.shape[1],), prior, dtype=torch.float64, requires_grad=True)
        rest = torch.tensor([0.0, -3.0], dtype=torch.float64, requires_grad=True)
        optimizer = torch.optim.Adam([length, rest], lr=0.08)
        for _ in range(steps):
            optimizer.zero_grad()
            loss = self._loss(x, y, floor, length, rest)
            loss = loss + ((length - prior) ** 2).sum() / (2 * 1.2**2)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        with torch.no_grad():
            self._inverse = torch.exp(-length).numpy()
            root = self._root(x, floor, length, rest)
            amplitude = float(torch.exp(rest[0])) * spread
            solved = torch.cholesky_solve(y[:, None], root)[:, 0]
            self._weights = (solved * amplitude).numpy()
            self._rows = (x.numpy() * self._inverse).astype(np.float64)
            self._squares = (self._rows**2).sum(1)

    @staticmethod
    def _root(
        x: torch.Tensor, floor: torch.Tensor, length: torch.Tensor, rest: torch.Tensor
    ) -> torch.Tensor:
        scaled = x * torch.exp(-length)
        covariance = torch.exp(rest[0]) * _kernel(scaled, scaled)
        noise = floor + torch.exp(rest[1]) ** 2 + 1e-6
        return torch.linalg.cholesky(covariance + torch.diag(noise))

    @classmethod
    def _loss(
        cls,
        x: torch.Tensor,
        y: torch.Tensor,
        floor: torch.Tensor,
        length: torch.Tensor,
        rest: torch.Tensor,
    ) -> torch.Tensor:
        root = cls._root(x, floor, length, rest)
        solved = torch.cholesky_solve(y[:, None], root)[:, 0]
        return 0.5 * y @ solved + torch.log(torch.diagonal(root)).sum()

    def predict(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """The mean at each of the rows."""
        x = (rows - self._shift) / self._scale * self._inverse
        squares = (x**2).sum(1)[:, None] + self._squares[None, :] - 2 * x @ self._rows.T
        scaled = _ROOT3 * np.sqrt(np.maximum(squares, 1e-12))
        return self._mean + ((1 + scaled) * np.exp(-scaled)) @ self._weights


class Gaussian:
    """A process for the values, and one for failures, told as 0 and 1."""

    def __init__(
        self,
        rows: NDArray[np.float64],
        values: NDArray[np.float64],
        noise: NDArray[np.float64],
    ) -> None:
        """`rows` (n, width); `values` NaN for failures; `noise`: the values' deviations."""
        failed = np.isnan(values)
        self._latency = Process(rows[~failed], values[~failed], noise[~failed])
        self._failure = (
            Process(rows, failed.astype(float), np.full(len(rows), 0.05), steps=80)
            if failed.sum() > 1
            else None
        )

    def values(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """The values."""
        return self._latency.predict(rows)

    def failure(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """How likely each is to fail: a score to compare with a threshold."""
        return np.zeros(len(rows)) if self._failure is None else self._failure.predict(rows)
