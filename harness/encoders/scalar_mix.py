"""Scalar mix of layers (Peters et al. 2018, equation 1): gamma * sum_j softmax(s)_j h_j."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class ScalarMix(nn.Module):
    """Learned weights over K layers.

    Args:
        layers: K.

    Shapes:
        input (K, B, S, H), output (B, S, H).
    """

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.scalars = nn.Parameter(torch.zeros(layers))
        self.gamma = nn.Parameter(torch.ones(()))

    def forward(self, layers: Tensor) -> Tensor:
        weights = torch.softmax(self.scalars, dim=0)
        return self.gamma * torch.einsum("k,kbsh->bsh", weights.to(layers.dtype), layers)

    @property
    def weights(self) -> list[float]:
        """softmax(s), as the record keeps it."""
        return torch.softmax(self.scalars.detach(), dim=0).tolist()
