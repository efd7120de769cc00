"""Scalar mix of layers (Peters et al. 2018, equation 1): gamma * sum_j softmax(s)_j h_j.

Optionally each layer is normalised first (section 3.2; Ba et al. 2016, over the hidden dimension of each
token, so that a token does not depend on the other tokens of its batch), and ``l2 * sum_j s_j^2`` is added to
the loss, which regularises the weights towards equal shares (sections 3.3 and 5.1).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class ScalarMix(nn.Module):
    """Learned weights over K layers.

    Args:
        layers: K.
        layer_norm: normalise each layer first, without learned weights.
        l2: coefficient of the regulariser.

    Shapes:
        input (K, B, S, H), output (B, S, H).
    """

    def __init__(self, layers: int, *, layer_norm: bool = False, l2: float = 0.0) -> None:
        super().__init__()
        self.layer_norm, self.l2 = layer_norm, l2
        self.scalars = nn.Parameter(torch.zeros(layers))
        self.gamma = nn.Parameter(torch.ones(1))  # not a scalar: FSDP shards along a dimension

    def forward(self, layers: Tensor) -> Tensor:
        if self.layer_norm:
            layers = nn.functional.layer_norm(layers, layers.shape[-1:])
        weights = torch.softmax(self.scalars, dim=0)
        return self.gamma * torch.einsum("k,kbsh->bsh", weights.to(layers.dtype), layers)

    def pull(self) -> None:
        """Add the gradient of ``l2 * sum_j s_j^2``; call it once per step, after the last backward pass."""
        if self.l2 and self.scalars.grad is not None:
            self.scalars.grad.add_(self.scalars.detach(), alpha=2 * self.l2)

    @property
    def weights(self) -> list[float]:
        """Normalised weights, softmax(s), as stored in the record."""
        return torch.softmax(self.scalars.detach(), dim=0).tolist()
