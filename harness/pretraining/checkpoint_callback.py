"""Lightning callback that saves checkpoints between two optimizer steps."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Protocol

import pytorch_lightning as pl
import torch

from harness.pretraining.base import ReportLine
from harness.pretraining.budget import TrainingProgress
from harness.pretraining.checkpoint_files import CheckpointFiles
from harness.processes.distributed import World


class Resumable(Protocol):
    """What a Lightning module provides to be checkpointed."""

    world: World
    progress: TrainingProgress

    def gather_state(self) -> None:
        """Collect the carried state of all ranks; called on every rank."""


class PeriodicCheckpoints(pl.Callback):
    """Saves the training state at a fixed interval.

    Args:
        folder: gets ``step-<n>.ckpt``.
        seconds: between two checkpoints.
    """

    def __init__(self, folder: Path, *, seconds: float) -> None:
        self.files, self.seconds = CheckpointFiles(folder, stem="step", suffix=".ckpt"), seconds
        self._last = time.monotonic()

    def newest(self, *, report: ReportLine) -> Path | None:
        """Return the newest readable checkpoint; unreadable ones are reported."""
        newest = self.files.newest(_verify, report=report)
        return newest[0] if newest else None

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._last = time.monotonic()

    def on_train_batch_end(  # type: ignore[override]
        self, trainer: pl.Trainer, pl_module: Resumable, outputs: object, batch: object, batch_idx: int
    ) -> None:
        # no checkpoint after the last step: there is nothing left to resume
        if trainer.should_stop or not pl_module.world.on_first(self._due):
            return
        pl_module.gather_state()
        if pl_module.world.first:
            self.files.write(pl_module.progress.steps, trainer.save_checkpoint)
        else:
            # Lightning waits for all ranks here, and only rank 0 writes
            trainer.save_checkpoint(self.files.folder)
        self._last = time.monotonic()

    def _due(self) -> bool:
        return time.monotonic() - self._last >= self.seconds


def _verify(path: Path) -> bool:
    state = torch.load(path, map_location="cpu", weights_only=True)
    if "pretraining" not in state:
        raise ValueError("not a pretraining checkpoint")
    return True


def step_of(checkpoint: Path | None) -> int:
    """Number of steps before a checkpoint; 0 without one."""
    return 0 if checkpoint is None else int(checkpoint.stem.rpartition("-")[2])
