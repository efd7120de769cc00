"""Checkpoints of a pretraining: written whole or not at all, the last two kept, damaged ones passed over."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch

KEPT = 2


class Checkpoints(pl.Callback):
    """Saves the state every so many seconds, between two steps.

    Args:
        folder: where they lie, as ``step-<n>.ckpt``.
        seconds: between two.
    """

    def __init__(self, folder: Path, *, seconds: float) -> None:
        self.folder, self.seconds = folder, seconds
        self._last = time.monotonic()

    def newest(self, *, say: Callable[[str], None]) -> Path | None:
        """The newest that can be read; a warning names each that cannot."""
        for path in self._there()[::-1]:
            try:
                state = torch.load(path, map_location="cpu", weights_only=True)
                if "pretraining" not in state:
                    raise ValueError("it is no checkpoint of a pretraining")
            except Exception as e:
                told = f"{path}: cannot be read and is passed over ({type(e).__name__}: {str(e)[:120]})"
                warnings.warn(told, stacklevel=2)
                say(told)
                continue
            return path
        return None

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._last = time.monotonic()

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: Any, *_: Any) -> None:
        # a run that is finished has no step left that it could be continued with
        if not trainer.should_stop and time.monotonic() - self._last >= self.seconds:
            self._save(trainer, pl_module)

    def _save(self, trainer: pl.Trainer, pl_module: Any) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"step-{pl_module.seen.steps:09d}.ckpt"
        temporary = path.with_suffix(".tmp")
        trainer.save_checkpoint(temporary)
        with temporary.open("rb") as f:
            os.fsync(f.fileno())
        temporary.replace(path)
        for old in self._there()[:-KEPT]:
            old.unlink(missing_ok=True)
        self._last = time.monotonic()

    def _there(self) -> list[Path]:
        return sorted(self.folder.glob("step-*.ckpt"))
