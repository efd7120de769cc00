"""How long is trained, and at which rates; torch-free."""

from __future__ import annotations

import math
from dataclasses import dataclass

from harness.errors import HarnessError


@dataclass(frozen=True, slots=True)
class Seen:
    """What training has consumed: tokens of text (special ones not counted), words of text by the common word
    splitter, optimiser steps (0 where there are none), seconds of training. Repeated text counts each time.
    """

    tokens: int = 0
    words: int = 0
    steps: int = 0
    seconds: float = 0.0

    def add(self, *, tokens: int, words: int, seconds: float) -> Seen:
        """After one more step."""
        return Seen(self.tokens + tokens, self.words + words, self.steps + 1, self.seconds + seconds)


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits; the first one that is reached ends the training. ``epochs`` are passes over the corpus; no
    ``steps`` at all leave the weights as they were drawn."""

    tokens: int | None = None
    seconds: float | None = None
    steps: int | None = None
    epochs: float | None = None

    def __bool__(self) -> bool:
        return any(v is not None for v in (self.tokens, self.seconds, self.steps, self.epochs))

    def or_epochs(self, epochs: float) -> Budget:
        """This budget, or where it says nothing so many passes."""
        return self if self else Budget(epochs=epochs)

    def used(self, seen: Seen, *, tokens_per_epoch: int) -> float:
        """Share of the budget that is used up, from 0 to 1: rates are a function of it, so that they fit a
        budget of any kind."""
        if self.steps == 0:
            return 1.0
        shares = [
            seen.tokens / self.tokens if self.tokens else 0.0,
            seen.seconds / self.seconds if self.seconds else 0.0,
            seen.steps / self.steps if self.steps else 0.0,
            seen.tokens / (self.epochs * tokens_per_epoch) if self.epochs else 0.0,
        ]
        return min(1.0, max(shares))

    def tokens_left(self, seen: Seen, *, tokens_per_epoch: int) -> int | None:
        """Tokens until a budget of tokens or passes is used up, at least 1; None where there is neither."""
        limits = [
            *([self.tokens] if self.tokens else []),
            *([math.ceil(self.epochs * tokens_per_epoch)] if self.epochs else []),
        ]
        return max(1, min(limits) - seen.tokens) if limits else None


@dataclass(frozen=True, slots=True)
class Recipe:
    """How it is trained: AdamW (biases and norms without decay) or Adam, gradient clipped, a rate that rises
    linearly over ``warmup`` (a share of the budget) and then falls as ``schedule`` (``linear``, ``cosine``,
    ``constant``) says; or, ``slanted``, both as Howard & Ruder 2018 have it (equation 3), from a
    :data:`SLANT`-th up and down to it again. ``epochs`` counts when no budget is given."""

    lr: float
    weight_decay: float = 0.01
    betas: tuple[float, float] = (0.9, 0.98)
    eps: float = 1e-6
    warmup: float = 0.06
    schedule: str = "linear"
    max_grad_norm: float | None = 1.0
    epochs: float = 10.0

    def factor(self, used: float) -> float:
        """Factor of the rate when the share ``used`` of the budget is used up; never 0 at the start."""
        if self.schedule == "slanted":
            return _slanted(min(1.0, used), top=max(1e-9, self.warmup))
        if used < self.warmup:
            return max(used / self.warmup, 1e-3)
        left = (1 - used) / max(1e-9, 1 - self.warmup)
        if self.schedule == "linear":
            return max(0.0, left)
        if self.schedule == "cosine":
            return 0.5 * (1 - math.cos(math.pi * max(0.0, left)))
        if self.schedule == "constant":
            return 1.0
        raise HarnessError(f"encoder.schedule={self.schedule}: linear, cosine or constant is wanted")


SLANT = 32
"""How many times smaller the slanted triangle's lowest rate is than its highest (Howard & Ruder 2018)."""


def _slanted(used: float, *, top: float) -> float:
    height = used / top if used < top else (1 - used) / max(1e-9, 1 - top)
    return (1 + height * (SLANT - 1)) / SLANT
