"""The curves of a training run, the same for every logger."""

from __future__ import annotations

from typing import Any

import pytorch_lightning as pl

from harness.training.optim import NO_DECAY, frozen_groups

EVERY = 50
"""Training steps between two points of a curve; the last step of an epoch always is one."""


class Curves(pl.Callback):
    """Tells the trainer's logger of ``loss`` and ``lr/<group>`` while it trains and of ``dev/<metric>`` after
    each epoch. A group that has not thawed has the rate 0.

    Args:
        choice: the callback that scores dev; it comes before this one in the trainer's list.
    """

    def __init__(self, choice: Any) -> None:
        self.choice = choice
        self._rates: dict[str, float] = {}

    def on_train_batch_start(self, trainer: pl.Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if self._due(trainer, batch_idx):
            self._rates = rates(trainer, pl_module)

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if self._due(trainer, batch_idx):
            self._tell(trainer, {"loss": pl_module.losses[-1], **self._rates})

    def on_validation_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        if self.choice.history:
            self._tell(trainer, {f"dev/{self.choice.task.metric}": self.choice.history[-1]})

    @staticmethod
    def _due(trainer: pl.Trainer, batch_idx: int) -> bool:
        return batch_idx % EVERY == 0 or batch_idx + 1 == trainer.num_training_batches

    @staticmethod
    def _tell(trainer: pl.Trainer, metrics: dict[str, float]) -> None:
        if trainer.logger is not None:
            trainer.logger.log_metrics({**metrics, "epoch": trainer.current_epoch}, step=trainer.global_step)


def rates(trainer: pl.Trainer, module: Any) -> dict[str, float]:
    """``lr/<group>`` of each parameter group; one without weight decay goes with its twin."""
    groups = trainer.optimizers[0].param_groups
    names = [str(g["name"]) for g in groups]
    held = frozen_groups(names, strategy=module.strategy, epoch=trainer.current_epoch)
    out: dict[str, float] = {}
    for group, name in zip(groups, names, strict=True):
        out.setdefault(f"lr/{name.removesuffix(NO_DECAY)}", 0.0 if name in held else float(group["lr"]))
    return out
