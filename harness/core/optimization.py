"""Learning-rate schedules and weight-decay groups, shared by pretraining and by the training of cells."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn

SLANT_RATIO = 32
"""Highest learning rate of a slanted triangle divided by its lowest (Howard & Ruder 2018)."""


def lr_factor(schedule: str, position: float, *, warmup: float, total: float, resolution: float) -> float:
    """Factor of the learning rate at ``position``.

    ``position``, ``warmup`` and ``total`` have the same unit: steps, or shares of a budget. The factor rises
    linearly over ``warmup`` and is then ``constant``, ``linear`` (to 0 at ``total``) or ``cosine`` (half a
    period, to 0). ``slanted`` is the triangle of Howard & Ruder 2018 (equation 3): from 1/32 up to 1 and
    back to 1/32.

    With warmup=10 and total=110, ``linear`` gives 0.5 at position 5, 1 at 10 and 0.5 at 60.

    Args:
        schedule: ``constant``, ``linear``, ``cosine`` or ``slanted``.
        position: from 0.
        warmup: where the factor reaches 1.
        total: where training ends.
        resolution: smallest length of a phase, which keeps divisors positive.

    Raises:
        ValueError: an unknown schedule.
    """
    if schedule == "slanted":
        peak = max(resolution, warmup)
        height = position / peak if position < peak else (total - position) / max(resolution, total - peak)
        return (1 + min(1.0, max(0.0, height)) * (SLANT_RATIO - 1)) / SLANT_RATIO
    if position < warmup:
        return position / warmup
    left = min(1.0, max(0.0, (total - position) / max(resolution, total - warmup)))
    if schedule == "constant":
        return 1.0
    if schedule == "linear":
        return left
    if schedule == "cosine":
        return 0.5 * (1 - math.cos(math.pi * left))
    raise ValueError(f"schedule {schedule!r}: expected constant, linear, cosine or slanted")


def split_weight_decay(parameters: Iterable[nn.Parameter]) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """Trainable parameters with and without weight decay: matrices, and vectors (biases and scales of
    norms)."""
    trainable = [p for p in parameters if p.requires_grad]
    return [p for p in trainable if p.ndim >= 2], [p for p in trainable if p.ndim < 2]
