"""Parameter groups and learning-rate schedules, as pure functions of strategy and step."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch import nn

from harness.core.optimization import lr_factor, split_weight_decay
from harness.encoders.base import Encoder
from harness.strategies.strategy import Strategy

CARRIED, NO_DECAY = "encoder.", ".no_decay"


def parameter_groups(
    encoder: Encoder | None,
    rest: Iterable[nn.Module],
    *,
    strategy: Strategy,
    lr: float,
    weight_decay: float,
) -> list[dict[str, Any]]:
    """Optimizer groups: an exact partition of the trainable parameters.

    Args:
        encoder: the transferred encoder; None or frozen gives no groups.
        rest: mix, body and head.
        strategy: sets the learning rates of the encoder's layers.
        lr: base learning rate.
        weight_decay: of matrices; biases and norms have none.

    Returns:
        torch param groups with ``name``, ``lr``, ``weight_decay`` and ``params``; bottom layer first.
    """
    named: list[tuple[str, float, list[nn.Parameter]]] = []
    if encoder is not None and not strategy.frozen:
        groups = encoder.layer_groups()
        for depth, (name, parameters) in enumerate(groups):
            below_top = len(groups) - 1 - depth
            named.append((f"{CARRIED}{name}", layer_lr(strategy, lr, below_top), parameters))
    seen = {id(p) for _, _, ps in named for p in ps}
    others = unique(p for module in rest for p in module.parameters() if id(p) not in seen)
    named.append(("task", lr, others))
    out = []
    for name, rate, parameters in named:
        decayed, undecayed = split_weight_decay(parameters)
        parts = ((name, decayed, weight_decay), (f"{name}{NO_DECAY}", undecayed, 0.0))
        out += [{"name": n, "params": ps, "lr": rate, "weight_decay": wd} for n, ps, wd in parts if ps]
    return out


def layer_lr(strategy: Strategy, lr: float, below_top: int) -> float:
    """Learning rate of an encoder layer ``below_top`` layers below the top one: the strategy's, or the base
    rate, times ``layer_decay`` per layer."""
    top = strategy.lr if strategy.lr is not None else lr * (strategy.relative_lr or 1.0)
    return top * (strategy.layer_decay or 1.0) ** below_top


def unique(parameters: Iterable[nn.Parameter]) -> list[nn.Parameter]:
    """Each tensor once, in order: tied weights are one parameter."""
    return list({id(p): p for p in parameters}.values())


def check_partition(groups: Sequence[Mapping[str, Any]], model: nn.Module) -> None:
    """Raise AssertionError unless the groups contain every trainable parameter of ``model`` exactly once."""
    grouped = Counter(id(p) for g in groups for p in g["params"])
    trainable = {id(p) for p in model.parameters() if p.requires_grad}
    names = {id(p): n for n, p in model.named_parameters()}
    twice = [names.get(i, "?") for i, count in grouped.items() if count > 1]
    missing = [names[i] for i in trainable - grouped.keys()]
    extra = [names.get(i, "a parameter outside the model") for i in grouped.keys() - trainable]
    if twice or missing or extra:
        raise AssertionError(f"groups: twice {twice}, missing {missing}, not trainable {extra}")


def frozen_groups(names: Sequence[str], *, strategy: Strategy, epoch: int) -> set[str]:
    """Names of the optimizer groups that are frozen in ``epoch``.

    Args:
        names: of all groups in the order of :func:`parameter_groups`: bottom layer first.
        strategy: decides which groups are unfrozen when.
        epoch: from 0.
    """
    layers = list(dict.fromkeys(n.removesuffix(NO_DECAY) for n in names if n.startswith(CARRIED)))
    unfrozen = strategy.unfrozen_groups(len(layers), epoch=epoch)
    frozen = set(layers[: len(layers) - unfrozen])
    return {n for n in names if n.removesuffix(NO_DECAY) in frozen}


def total_steps(examples: int, batch_size: int, epochs: int) -> int:
    """Optimizer steps of a run; a last batch that is not full counts as a step."""
    return math.ceil(examples / batch_size) * epochs


def lr_lambda(step: int, *, name: str, total: int, warmup: float) -> float:
    """Factor of the learning rate at ``step`` (from 0), see :func:`harness.core.optimization.lr_factor`.

    Args:
        step: optimizer step.
        name: of the schedule.
        total: steps of the run.
        warmup: share of the steps; ``floor(warmup * total)`` steps, for a slanted triangle at least one.
    """
    return lr_factor(name, step, warmup=math.floor(warmup * total), total=total, resolution=1)
