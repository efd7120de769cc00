"""How the ranks of one pretraining run divide a step.

Every rank prepares the same corpus and draws the same steps. Of each step it computes every N-th row, and its
loss is weighted by its share of the step's items, so that the sum of the ranks' gradients equals the gradient
of the step on one device. DDP takes the mean over the ranks, so the weighted loss is multiplied by the number
of ranks before the backward pass (:func:`ddp_loss`)::

    step of 5 rows on 2 ranks: rank 0 has rows 0, 2, 4 (30 items), rank 1 has rows 1, 3 (10 items)
    loss = mean_0 * 30/40 + mean_1 * 10/40                                  (mean_r over rank r's items)

Carried state has the batch rows in dimension 1 and is divided in the same way. Budgets count whole steps, and
time by the first rank's clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import torch
from torch import Tensor, nn

from harness.pretraining.base import AnyObjective, BatchLoss, TrainingBatch

if TYPE_CHECKING:
    from harness.processes.distributed import World

Carry: TypeAlias = "Tensor | list[Carry] | tuple[Carry, ...] | None"
"""Carried state: nested tuples or lists of tensors with the batch rows in dimension 1."""


@dataclass(frozen=True, slots=True)
class StepLoss:
    """Loss of a step over all ranks.

    Attributes:
        nll: nats over all predicted tokens.
        predicted: number of predicted tokens.
        extra_counts: number of items of each of :attr:`BatchLoss.extra_means`.
    """

    nll: float
    predicted: int
    extra_counts: tuple[int, ...]


def shard(objective: AnyObjective, batch: TrainingBatch, world: World) -> TrainingBatch:
    """Return this rank's part of a step; the whole step if there is one rank."""
    return objective.shard(batch, rank=world.rank, size=world.size) if world.size > 1 else batch


def combine_losses(loss: BatchLoss[Carry] | None, world: World) -> StepLoss:
    """Sum the losses of all ranks; None = this rank has no rows."""
    own = None
    if loss is not None:
        own = StepLoss(loss.nll, loss.predicted, tuple(n for _, n in loss.extra_means))
    if world.size == 1:
        assert own is not None
        return own
    per_rank = [part for part in world.gather(own) if part is not None]
    extra = tuple(map(sum, zip(*(part.extra_counts for part in per_rank), strict=True)))
    return StepLoss(sum(part.nll for part in per_rank), sum(part.predicted for part in per_rank), extra)


def weighted_loss(loss: BatchLoss[Carry], step: StepLoss, world: World) -> Tensor:
    """Return the scalar whose gradients, summed over the ranks, are those of the whole step."""
    if world.size == 1:
        return loss.mean + sum(mean for mean, _ in loss.extra_means)
    total = loss.mean * (loss.predicted / max(1, step.predicted))
    for (mean, count), step_count in zip(loss.extra_means, step.extra_counts, strict=True):
        total = total + mean * (count / max(1, step_count))
    return total


def ddp_loss(loss: BatchLoss[Carry] | None, step: StepLoss, world: World, *, model: nn.Module) -> Tensor:
    """Return the scalar to call backward on, where DDP averages the gradients over the ranks.

    A rank without rows takes part in the reduction with a gradient of zero for the model's first trainable
    parameter, which every loss uses (see :meth:`Objective.build`). A parameter that no rank uses must keep
    gradient None, so that AdamW does not decay it.
    """
    if loss is None:
        return next(p for p in model.parameters() if p.requires_grad).sum() * 0
    weighted = weighted_loss(loss, step, world)
    return weighted if world.size == 1 else weighted * world.size


def shard_carry(carry: Carry, world: World) -> Carry:
    """Return this rank's rows of a carried state."""
    if isinstance(carry, Tensor):
        return carry[:, world.rank :: world.size].contiguous() if world.size > 1 else carry
    if carry is None:
        return None
    return type(carry)(shard_carry(part, world) for part in carry)


def gather_carry(carry: Carry, world: World) -> Carry:
    """Return the carried state of all rows; must be called on every rank."""
    if world.size == 1:
        return carry
    return _interleave(
        [part for part in world.gather(carry_to(carry, torch.device("cpu"))) if part is not None]
    )


def carry_to(carry: Carry, device: torch.device) -> Carry:
    """Move the tensors of a carried state to a device."""
    if isinstance(carry, Tensor):
        return carry.to(device)
    if carry is None:
        return None
    return type(carry)(carry_to(part, device) for part in carry)


def _interleave(shards: list[Carry]) -> Carry:
    """Undo :func:`shard_carry`: of two shards, the first has rows 0, 2, .., the second rows 1, 3, .."""
    if not shards:
        return None
    first = shards[0]
    if first is None:
        return None
    if not isinstance(first, Tensor):
        nested = [part for part in shards if isinstance(part, list | tuple)]
        return type(first)(_interleave(list(parts)) for parts in zip(*nested, strict=True))
    tensors = [part for part in shards if isinstance(part, Tensor)]
    rows = sum(part.shape[1] for part in tensors)
    joined = first.new_empty(first.shape[0], rows, *first.shape[2:])
    for rank, part in enumerate(tensors):
        joined[:, rank :: len(tensors)] = part
    return joined
