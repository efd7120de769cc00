"""Adapting by gradient: the loops of :mod:`harness.pretraining.trainer` on a model that has weights already.

Parts that the checkpoint lacks (a decoder, a softmax) are trained alone first, the rest held still: a random
decoder would pull the encoder away from what it knows. What is measured before and after is measured with
that decoder.
"""

from __future__ import annotations

import math
import tempfile
import time
from abc import abstractmethod
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from torch import nn

from harness.adaptation.job import Job, Told
from harness.pretraining.base import Budget, HeldOut, Objective, Recipe, Run
from harness.pretraining.text.corpus import Corpus
from harness.pretraining.trainer import PretrainModule, Stream, fit, step_seed

FRESH_EPOCHS = 3
FRESH_LR = 1e-3
"""Passes and rate of the parts that the checkpoint lacks, before the rest moves; our own."""
SHOW_SECONDS = 0.5


class Continued(Objective):
    """An objective whose model, tokenizer and vocabulary are an encoder's.

    ``build`` loads all of it and turns the texts into tokens.

    Args:
        job: encoder and texts.

    Attributes:
        fresh: names of parameters that the checkpoint lacks.
    """

    def __init__(self, job: Job) -> None:
        self.job = job
        self.fresh: list[str] = []
        self.rate_key = "strategy.adapt.lr"

    def prepare(self, corpus: Corpus, *, seed: int) -> None:
        """Nothing: :meth:`build` knows the texts."""

    @abstractmethod
    def measured(self, held: HeldOut) -> dict[str, float]:
        """The numbers of a measure that a record shows, by name."""


def continue_training(objective: Continued) -> Told:
    """Train on the job's training texts, measure on its dev texts before and after, and save.

    Raises:
        HarnessError: files or options that do not do, or a loss that is no number.
    """
    job = objective.job
    torch.manual_seed(step_seed(job.seed, -1))
    model = objective.build()
    told = Told(notes=objective.notes)
    if objective.fresh:
        _train_fresh(objective, model)
    told.before = _measure(objective, model)
    _train(objective, model, epochs=float(job.options.epochs), seed=job.seed)
    told.after = _measure(objective, model)
    objective.save(model.cpu().eval(), job.folder)
    return told


def _train_fresh(objective: Continued, model: nn.Module) -> None:
    names = set(objective.fresh)
    held = [p for name, p in model.named_parameters() if name not in names and p.requires_grad]
    usual = objective.recipe
    objective.recipe = replace(usual, lr=FRESH_LR, schedule="linear")
    for parameter in held:
        parameter.requires_grad_(False)
    try:
        _train(objective, model, epochs=FRESH_EPOCHS, seed=objective.job.seed + 1, what="new decoder, ")
    finally:
        objective.recipe = usual
        for parameter in held:
            parameter.requires_grad_(True)


def _train(objective: Continued, model: nn.Module, *, epochs: float, seed: int, what: str = "") -> None:
    job = objective.job
    with tempfile.TemporaryDirectory(prefix="adapt-") as work:
        trainer = {**job.trainer, "checkpoint_seconds": math.inf, "logger": "none"}
        run = Run(Corpus((), (), ""), Budget(epochs=epochs), job.folder, Path(work), seed, trainer, _silent)
        module = PretrainModule(objective, model.train(), run, run.budget)
        fit(module, Stream(objective, module, seed), run, callbacks=[_Shown(job, epochs, what)])


def _silent(line: str) -> None:
    """Lines for a person: the phase's events say as much."""


class _Shown(pl.Callback):
    """Tells the pass and the loss, at most every :data:`SHOW_SECONDS`."""

    def __init__(self, job: Job, epochs: float, what: str) -> None:
        self.job, self.epochs, self.what = job, math.ceil(epochs), what
        self._last = 0.0

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: Any, *_: Any) -> None:
        if time.monotonic() - self._last >= SHOW_SECONDS:
            self._last = time.monotonic()
            epoch = min(self.epochs, pl_module.place[0] + 1)
            self.job.tell(epoch=epoch, epochs=self.epochs, message=f"{self.what}loss {pl_module.smooth:.3f}")


@torch.no_grad()
def _measure(objective: Continued, model: nn.Module) -> dict[str, float]:
    if not objective.job.texts.dev:
        return {}
    objective.job.tell(message="measuring on dev")
    held = objective.held_out(model.to(objective.job.trainer["device"]).eval())
    return {k: v for k, v in objective.measured(held).items() if math.isfinite(v)}


def usual_recipe(job: Job, **other: Any) -> Recipe:
    """AdamW as Gururangan et al. 2020 adapt (appendix B: betas, eps, decay, warm-up, linear fall)."""
    usual: dict[str, Any] = {
        "weight_decay": 0.01, "betas": (0.9, 0.98), "eps": 1e-6, "warmup": 0.06, "schedule": "linear",
    }  # fmt: skip
    return Recipe(lr=job.lr, **{**usual, **other})
