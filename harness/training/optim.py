"""Parameter groups and learning-rate schedules, as pure functions of strategy and step."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from harness.encoders.base import Encoder
from harness.strategies.strategy import Strategy

CARRIED, NO_DECAY = "encoder.", ".no_decay"
SLANT_RATIO = 32
"""How much smaller the lowest rate of a slanted triangle is than the highest (Howard & Ruder 2018)."""


@dataclass(frozen=True, slots=True)
class Rates:
    """The numbers param groups are made from: the base rate and the weight decay of matrices."""

    lr: float
    weight_decay: float


def parameter_groups(
    encoder: Encoder | None, rest: Iterable[nn.Module], *, strategy: Strategy, rates: Rates
) -> list[dict[str, Any]]:
    """Optimizer groups: an exact partition of the trainable parameters, biases and norms without decay.

    Args:
        encoder: what was carried over; None or frozen gives no group of its own.
        rest: mix, body and head.
        strategy: decides the rate of the carried part.
        rates: base rate and weight decay.

    Returns:
        torch param groups with ``name``, ``lr``, ``weight_decay`` and ``params``; bottom layer first.
    """
    named: list[tuple[str, float, list[nn.Parameter]]] = []
    if encoder is not None and not strategy.frozen:
        groups = encoder.layer_groups()
        for depth, (name, parameters) in enumerate(groups):
            below_top = len(groups) - 1 - depth
            named.append((f"{CARRIED}{name}", layer_lr(strategy, rates.lr, below_top), parameters))
    seen = {id(p) for _, _, ps in named for p in ps}
    others = unique(p for module in rest for p in module.parameters() if id(p) not in seen)
    named.append(("task", rates.lr, others))
    return [g for name, lr, ps in named for g in _split_decay(name, lr, ps, rates.weight_decay)]


def layer_lr(strategy: Strategy, lr: float, below_top: int) -> float:
    """Rate of a carried layer ``below_top`` layers below the top one: the strategy's own or the base rate,
    times ``layer_decay`` for each layer downwards."""
    own = strategy.lr if strategy.lr is not None else lr * (strategy.relative_lr or 1.0)
    return own * (strategy.layer_decay or 1.0) ** below_top


def _split_decay(
    name: str, lr: float, parameters: Sequence[nn.Parameter], weight_decay: float
) -> list[dict[str, Any]]:
    trainable = [p for p in parameters if p.requires_grad]
    # biases and the scales of norms are the parameters with fewer than two axes, whatever their name
    decayed = [p for p in trainable if p.ndim >= 2]
    spared = [p for p in trainable if p.ndim < 2]
    parts = ((name, decayed, weight_decay), (f"{name}{NO_DECAY}", spared, 0.0))
    return [{"name": n, "params": ps, "lr": lr, "weight_decay": wd} for n, ps, wd in parts if ps]


def unique(parameters: Iterable[nn.Parameter]) -> list[nn.Parameter]:
    """Each tensor once, in order: tied weights are one parameter."""
    return list({id(p): p for p in parameters}.values())


def check_partition(groups: Sequence[dict[str, Any]], model: nn.Module) -> None:
    """Raise AssertionError unless the groups hold every trainable parameter of ``model`` exactly once."""
    held = [id(p) for g in groups for p in g["params"]]
    wanted = {id(p) for p in model.parameters() if p.requires_grad}
    names = {id(p): n for n, p in model.named_parameters()}
    twice = [names.get(i, "?") for i in set(held) if held.count(i) > 1]
    missing = [names[i] for i in wanted - set(held)]
    extra = [names.get(i, "a parameter outside the model") for i in set(held) - wanted]
    if twice or missing or extra:
        raise AssertionError(f"groups: twice {twice}, missing {missing}, not trainable {extra}")


def frozen_groups(names: Sequence[str], *, strategy: Strategy, epoch: int) -> set[str]:
    """Names of the optimizer groups that do not move in ``epoch`` (from 0).

    Args:
        names: of all groups, as :func:`parameter_groups` gives them: bottom layer first.
        strategy: says what thaws when.
        epoch: of training.
    """
    layers = list(dict.fromkeys(n.removesuffix(NO_DECAY) for n in names if n.startswith(CARRIED)))
    moving = strategy.unfrozen_groups(len(layers), epoch=epoch)
    held = set(layers[: len(layers) - moving])
    return {n for n in names if n.removesuffix(NO_DECAY) in held}


def total_steps(examples: int, batch_size: int, epochs: int) -> int:
    """Optimiser steps of a run; a last batch that is not full is a step."""
    return math.ceil(examples / batch_size) * epochs


def lr_lambda(step: int, *, name: str, total: int, warmup: float) -> float:
    """Factor of the rate at ``step`` (from 0): linear warm-up over ``floor(warmup * total)`` steps, then
    ``constant``, ``linear`` to 0 after the last step, or ``cosine`` (half a wave) to 0; or ``slanted``.

    The slanted triangle (Howard & Ruder 2018, equation 3) rises from 1/32 in its first ``warmup * total``
    steps, one at least, and falls back to 1/32 over all others.
    """
    first = math.floor(warmup * total)
    if name == "slanted":
        cut = max(1, first)
        p = step / cut if step < cut else (total - step) / max(1, total - cut)
        return (1 + min(1.0, max(0.0, p)) * (SLANT_RATIO - 1)) / SLANT_RATIO
    if step < first:
        return step / first
    left = (total - step) / max(1, total - first)
    if name == "constant":
        return 1.0
    if name == "linear":
        return max(0.0, left)
    if name == "cosine":
        return 0.5 * (1 - math.cos(math.pi * min(1.0, max(0.0, left))))
    raise ValueError(f"schedule {name!r}")
