"""Training budgets and learning-rate schedules; does not import torch."""

from __future__ import annotations

import math
from dataclasses import dataclass

from harness.core.optimization import lr_factor
from harness.errors import HarnessError

TINY = 1e-9
"""Keeps denominators away from zero."""


@dataclass(frozen=True, slots=True)
class TrainingProgress:
    """What training has consumed so far; repeated text counts each time.

    Attributes:
        tokens: tokens of text, special tokens excluded.
        words: words of text by the common word splitter.
        steps: optimizer steps (0 for methods without them).
        seconds: training time.
    """

    tokens: int = 0
    words: int = 0
    steps: int = 0
    seconds: float = 0.0

    def add(self, *, tokens: int, words: int, seconds: float) -> TrainingProgress:
        """Return the progress after one more step."""
        return TrainingProgress(
            self.tokens + tokens, self.words + words, self.steps + 1, self.seconds + seconds
        )


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of a training run; the first limit that is reached ends it.

    Attributes:
        tokens, seconds, steps: as in :class:`TrainingProgress`; ``steps=0`` keeps the random initialisation.
        epochs: passes over the corpus.
    """

    tokens: int | None = None
    seconds: float | None = None
    steps: int | None = None
    epochs: float | None = None

    def __bool__(self) -> bool:
        return any(v is not None for v in (self.tokens, self.seconds, self.steps, self.epochs))

    def or_epochs(self, epochs: float) -> Budget:
        """Return this budget, or one of ``epochs`` passes if it sets no limit."""
        return self if self else Budget(epochs=epochs)

    def used(self, progress: TrainingProgress, *, tokens_per_epoch: int) -> float:
        """Share of the budget that is used, from 0 to 1.

        Learning rates are a function of this share, so schedules fit a budget of any kind.
        """
        if self.steps == 0:
            return 1.0
        shares = [
            progress.tokens / self.tokens if self.tokens else 0.0,
            progress.seconds / self.seconds if self.seconds else 0.0,
            progress.steps / self.steps if self.steps else 0.0,
            progress.tokens / (self.epochs * tokens_per_epoch) if self.epochs else 0.0,
        ]
        return min(1.0, max(shares))

    def tokens_left(self, progress: TrainingProgress, *, tokens_per_epoch: int) -> int | None:
        """Tokens until a limit in tokens or epochs is reached, at least 1; None without such a limit."""
        limits = [
            *([self.tokens] if self.tokens else []),
            *([math.ceil(self.epochs * tokens_per_epoch)] if self.epochs else []),
        ]
        return max(1, min(limits) - progress.tokens) if limits else None


@dataclass(frozen=True, slots=True)
class Recipe:
    """Hyperparameters of AdamW and its learning-rate schedule.

    Biases and norms have no weight decay.

    Attributes:
        lr: peak learning rate.
        weight_decay, betas, eps: of AdamW.
        warmup: share of the budget over which the learning rate rises linearly.
        schedule: decay after the warmup: ``linear``, ``cosine`` or ``constant``. Or ``slanted``: the slanted
            triangle of Howard & Ruder 2018 (equation 3), from lr / 32 up to lr and back down.
        max_grad_norm: gradient clipping; None = off.
        epochs: passes over the corpus when no budget is given.
    """

    lr: float
    weight_decay: float = 0.01
    betas: tuple[float, float] = (0.9, 0.98)
    eps: float = 1e-6
    warmup: float = 0.06
    schedule: str = "linear"
    max_grad_norm: float | None = 1.0
    epochs: float = 10.0

    def lr_factor(self, used: float) -> float:
        """Factor of the learning rate at the share ``used`` of the budget; positive at the start."""
        if self.schedule not in ("slanted", "linear", "cosine", "constant"):
            raise HarnessError(f"encoder.schedule={self.schedule}: expected linear, cosine or constant")
        share = min(1.0, used) if self.schedule == "slanted" else used
        factor = lr_factor(self.schedule, share, warmup=self.warmup, total=1, resolution=TINY)
        return max(factor, 1e-3) if self.schedule != "slanted" and used < self.warmup else factor
