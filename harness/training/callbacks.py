"""Lightning callbacks: score dev after each epoch, keep the best state, report progress, log curves."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Sequence
from typing import Any

import pytorch_lightning as pl
import torch

from harness.core.events import Progress
from harness.data.text import Example
from harness.processes.distributed import ALONE, World
from harness.records.contract import scores_of
from harness.task import HasLiveMetrics, Prediction, Task, fitted_part
from harness.training.optim import NO_DECAY, frozen_groups

EVERY = 50
"""Training steps between two points of a curve; the last step of an epoch is always logged."""


class BestEpochCallback(pl.Callback):
    """Score dev after each epoch and keep the state of the best one.

    NaN is never better than anything and never an improvement.

    Args:
        task: scores the predictions.
        examples: the dev examples.
        keep: ``best`` or ``last``.
        patience: epochs without improvement before stopping; None = never.
        progress: receives an event per epoch.
        world: the ranks that predict together. The first scores; all know the scores and so decide alike.
    """

    def __init__(
        self,
        task: Task,
        examples: Sequence[Example],
        *,
        keep: str,
        patience: int | None,
        progress: Progress,
        world: World = ALONE,
    ) -> None:
        self.task, self.examples, self.progress, self.world = task, examples, progress, world
        self.keep, self.patience = keep, patience
        self.history: list[float] = []
        self.epoch: int | None = None
        self.scores: dict[str, float] = {}
        self.predicted: dict[str, Prediction] = {}
        self.fitted: dict[str, float] = {}
        self.state: dict[str, torch.Tensor] = {}
        self.seconds = 0.0
        self._begin = 0.0

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._begin = time.perf_counter()

    def on_validation_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        predicted = self.world.collect(pl_module.predicted)
        fitted: dict[str, float] = {}
        part = fitted_part(self.task)
        if part is not None:
            fitted = self.world.on_first(lambda: part.fit_on_dev(predicted, self.examples))
            predicted = part.apply_fitted(predicted, fitted)
        scores = self.world.on_first(lambda: scores_of(self.task, predicted, self.examples))
        score = float(scores[self.task.metric])
        self.history.append(score)
        if self.keep == "last" or self._better(score):
            self.epoch, self.scores = len(self.history), scores
            self.predicted, self.fitted = predicted, fitted
            if self.keep == "best":
                self.state = pl_module.trainable_state_dict()
        elif self.patience is not None and len(self.history) - (self.epoch or 0) >= self.patience:
            trainer.should_stop = True
        self.progress({"phase": "dev", "epoch": len(self.history), "score": score})
        if self.world.first:
            print(f"epoch {len(self.history)}: dev {self.task.metric} {score:.4f}")
        self.seconds += time.perf_counter() - self._begin

    def _better(self, score: float) -> bool:
        if math.isnan(score):
            return self.epoch is None and not self.state
        best = self.history[self.epoch - 1] if self.epoch else math.nan
        return math.isnan(best) or (score > best if self.task.maximize else score < best)


class StepProgress(pl.Callback):
    """Report training steps, at most ten times per second."""

    def __init__(self, progress: Progress, epochs: int) -> None:
        self.progress, self.epochs, self._last = progress, epochs, 0.0

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: object,
        batch: object,
        batch_idx: int,
    ) -> None:
        now = time.perf_counter()
        if now - self._last > 0.1:
            self._last = now
            event = {"phase": "train", "epoch": trainer.current_epoch + 1, "epochs": self.epochs}
            self.progress({**event, "done": batch_idx + 1, "total": trainer.num_training_batches})


class LiveMetrics(pl.Callback):
    """Logs ``dev/<metric>`` after each epoch for all live metrics of the task, reduced over ranks by
    torchmetrics.

    Args:
        task: defines the metrics.
        examples: the dev examples.
    """

    def __init__(self, task: HasLiveMetrics, examples: Sequence[Example]) -> None:
        self.examples = {e.id: e for e in examples}
        self.metrics = task.live_metrics(examples)

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        predicted: dict[str, Prediction] = pl_module.predicted  # of this rank
        with warnings.catch_warnings():
            # a rank without dev examples takes part in the reduction with empty states
            warnings.filterwarnings(
                "ignore", message=r"The ``compute`` method of metric .* was called before"
            )
            if trainer.world_size > 1:  # NCCL reduces tensors on the device only
                self.metrics.to(pl_module.device)
            self.metrics.update(list(predicted.values()), [self.examples[key] for key in predicted])
            values = self.metrics.compute()
        self.metrics.reset()
        log_at_step(trainer, {f"dev/{name}": float(value) for name, value in values.items()})


class Curves(pl.Callback):
    """Logs ``loss`` and ``lr/<group>`` during training, and ``train_loss`` and ``dev/<metric>`` after each
    epoch, at the number of steps taken. A group that is still frozen has the rate 0.

    Args:
        choice: the callback that scores dev; it comes before this one in the trainer's list.
    """

    def __init__(self, choice: BestEpochCallback) -> None:
        self.choice = choice
        self._rates: dict[str, float] = {}

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: Any, batch: object, batch_idx: int
    ) -> None:
        if self._due(trainer, batch_idx):
            self._rates = rates(trainer, pl_module)

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: Any, outputs: object, batch: object, batch_idx: int
    ) -> None:
        if self._due(trainer, batch_idx):
            log_at_step(trainer, {"loss": pl_module.losses[-1], **self._rates})

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        log_at_step(trainer, {"train_loss": float(pl_module.train_loss.compute())})

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        task = self.choice.task
        if self.choice.history and (fitted_part(task) or not isinstance(task, HasLiveMetrics)):
            log_at_step(trainer, {f"dev/{self.choice.task.metric}": self.choice.history[-1]})

    @staticmethod
    def _due(trainer: pl.Trainer, batch_idx: int) -> bool:
        return batch_idx % EVERY == 0 or batch_idx + 1 == trainer.num_training_batches


def log_at_step(trainer: pl.Trainer, metrics: dict[str, float]) -> None:
    """Log at the number of steps taken; ``LightningModule.log`` takes the last step of an epoch as still to
    come."""
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
