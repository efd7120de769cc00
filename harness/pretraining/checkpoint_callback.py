"""Checkpoints of a training under Lightning: states of :mod:`harness.pretraining.checkpoint_files`, between two steps."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch

from harness.pretraining.checkpoint_files import Kept


class Checkpoints(pl.Callback):
    """Saves the state every so many seconds, between two steps.

    Args:
        folder: where they lie, as ``step-<n>.ckpt``.
        seconds: between two.
    """

    def __init__(self, folder: Path, *, seconds: float) -> None:
        self.kept, self.seconds = Kept(folder, stem="step", ending=".ckpt"), seconds
        self._last = time.monotonic()

    def newest(self, *, say: Callable[[str], None]) -> Path | None:
        """The newest that can be read; a warning names each that cannot."""
        found = self.kept.newest(_read, say=say)
        return found[0] if found else None

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._last = time.monotonic()

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: Any, *_: Any) -> None:
        # a run that is finished has no step left that it could be continued with
        if trainer.should_stop or not pl_module.world.on_first(self._due):
            return
        pl_module.bring_together()
        if pl_module.world.first:
            self.kept.write(pl_module.seen.steps, trainer.save_checkpoint)
        self._last = time.monotonic()

    def _due(self) -> bool:
        return time.monotonic() - self._last >= self.seconds


def _read(path: Path) -> bool:
    state = torch.load(path, map_location="cpu", weights_only=True)
    if "pretraining" not in state:
        raise ValueError("it is no checkpoint of a pretraining")
    return True


def step_of(checkpoint: Path | None) -> int:
    """Steps that a checkpoint has behind it; 0 without one."""
    return 0 if checkpoint is None else int(checkpoint.stem.rpartition("-")[2])
