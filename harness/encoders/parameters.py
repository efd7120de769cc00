"""Helpers over the parameters of encoders that consist of several models."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch
from torch import nn

from harness.encoders.base import Group


def weights_fingerprint(module: nn.Module) -> str:
    """Return the SHA-256 (hex) of the names and current values of a module's weights."""
    digest = hashlib.sha256()
    for name, tensor in module.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def aligned_groups(models: Sequence[Sequence[Group]]) -> list[list[Group]]:
    """Align the layer groups of several models: embeddings with embeddings, then layers at the top.

    Example: groups [e, a1, a2, a3] and [e, b1] give [[e, e], [a1], [a2], [a3, b1]].

    Args:
        models: the layer groups of each model, [0] its embeddings.
    """
    depth = max(len(groups) for groups in models)
    levels = [[groups[0] for groups in models]]
    for level in range(1, depth):
        indices = [level - (depth - len(groups)) for groups in models]  # counted from the top
        levels.append([groups[i] for groups, i in zip(models, indices, strict=True) if i >= 1])
    return levels


def parameters_of(groups: Sequence[Group]) -> list[nn.Parameter]:
    """Return the parameters of all groups in order."""
    return [parameter for _, parameters in groups for parameter in parameters]
