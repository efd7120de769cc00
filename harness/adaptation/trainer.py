"""Adaptation by gradient descent: the training loop of pretraining on a model with pretrained weights.

Parts that the checkpoint lacks (a decoder, a softmax) are trained first with all other weights frozen,
because the gradients of a random decoder would damage the encoder. The measures before and after use the
decoder that was trained in this way.
"""

from __future__ import annotations

import math
import tempfile
import time
from abc import abstractmethod
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import pytorch_lightning as pl
import torch
from torch import nn

from harness.adaptation.job import AdaptationJob, AdaptationResult
from harness.pretraining.base import CarryT, EvalResult, ModelT, Objective, Run, TrainerOptions
from harness.pretraining.budget import Budget, Recipe
from harness.pretraining.text.corpus import Corpus
from harness.pretraining.trainer import BatchStream, PretrainModule, fit, step_seed

NEW_PARTS_EPOCHS = 3
NEW_PARTS_LR = 1e-3
"""Epochs and learning rate for parts that the checkpoint lacks; our own choice."""
REPORT_SECONDS = 0.5


class ContinuedObjective(Objective[ModelT, CarryT]):
    """An objective that continues from an encoder's model, tokenizer and vocabulary.

    ``build`` loads the encoder and tokenizes the texts.

    Args:
        job: encoder and texts.

    Attributes:
        new_parameters: names of parameters that the checkpoint lacks.
    """

    def __init__(self, job: AdaptationJob) -> None:
        self.job = job
        self.new_parameters: list[str] = []
        self.rate_key = "strategy.adapt.lr"

    def prepare(self, corpus: Corpus, *, seed: int) -> None:
        """No-op: :meth:`build` tokenizes the job's texts."""

    @abstractmethod
    def measures(self, result: EvalResult) -> dict[str, float]:
        """The numbers of an evaluation that the record shows, by name."""


AnyContinued: TypeAlias = "ContinuedObjective[Any, Any]"


def word_perplexity(result: EvalResult) -> dict[str, float]:
    """The measure of language models that assign a probability to a text."""
    value = result.word_perplexity if result.words else None
    return {} if value is None else {"perplexity per word": value}


def continue_training(objective: AnyContinued) -> AdaptationResult:
    """Train on the job's training texts, evaluate on its dev texts before and after, and save.

    Raises:
        HarnessError: unusable files or options, or a loss that is not finite.
    """
    job = objective.job
    torch.manual_seed(step_seed(job.seed, -1))
    model = objective.build()
    result = AdaptationResult(notes=objective.notes)
    if objective.new_parameters:
        _train_new_parts(objective, model)
    result.before = _evaluate(objective, model)
    _train(objective, model, epochs=float(job.options.epochs), seed=job.seed)
    result.after = _evaluate(objective, model)
    objective.save(model.cpu().eval(), job.folder)
    return result


def _train_new_parts(objective: AnyContinued, model: nn.Module) -> None:
    names = set(objective.new_parameters)
    pretrained = [p for name, p in model.named_parameters() if name not in names and p.requires_grad]
    recipe = objective.recipe
    objective.recipe = replace(recipe, lr=NEW_PARTS_LR, schedule="linear")
    for parameter in pretrained:
        parameter.requires_grad_(False)
    try:
        seed = objective.job.seed + 1  # other draws than those of the adaptation itself
        _train(objective, model, epochs=NEW_PARTS_EPOCHS, seed=seed, prefix="new decoder, ")
    finally:
        objective.recipe = recipe
        for parameter in pretrained:
            parameter.requires_grad_(True)


def _train(objective: AnyContinued, model: nn.Module, *, epochs: float, seed: int, prefix: str = "") -> None:
    job = objective.job
    # no checkpoints and no logs: an adaptation that is interrupted starts again
    options: TrainerOptions = {**job.trainer, "checkpoint_seconds": math.inf, "logger": "none"}
    with tempfile.TemporaryDirectory(prefix="adapt-") as work:
        run = Run(
            corpus=Corpus((), (), ""),
            budget=Budget(epochs=epochs),
            folder=job.folder,
            work=Path(work),
            seed=seed,
            trainer=options,
            report=_ignore,
        )
        module = PretrainModule(objective, model.train(), run, run.budget)
        callback = _EventCallback(job, epochs, prefix)
        fit(module, BatchStream(objective, module, seed), run, callbacks=[callback])


def _ignore(line: str) -> None:
    """Drop a line for the user: events of the phase contain the same."""


class _EventCallback(pl.Callback):
    """Sends epoch and loss at most every :data:`REPORT_SECONDS`."""

    def __init__(self, job: AdaptationJob, epochs: float, prefix: str) -> None:
        self.job, self.epochs, self.prefix = job, math.ceil(epochs), prefix
        self._last = 0.0

    def on_train_batch_end(  # type: ignore[override]
        self, trainer: pl.Trainer, pl_module: PretrainModule, outputs: object, batch: object, batch_idx: int
    ) -> None:
        if time.monotonic() - self._last >= REPORT_SECONDS:
            self._last = time.monotonic()
            epoch = min(self.epochs, pl_module.position[0] + 1)
            message = f"{self.prefix}loss {pl_module.smooth_loss:.3f}"
            self.job.report(epoch=epoch, epochs=self.epochs, message=message)


@torch.no_grad()
def _evaluate(objective: AnyContinued, model: nn.Module) -> dict[str, float]:
    if not objective.job.texts.dev:
        return {}
    objective.job.report(message="evaluating on dev")
    result = objective.evaluate(model.to(objective.job.trainer["device"]).eval())
    return {k: v for k, v in objective.measures(result).items() if math.isfinite(v)}


def default_recipe(job: AdaptationJob) -> Recipe:
    """AdamW with the hyperparameters of Gururangan et al. 2020 (appendix B)."""
    return Recipe(lr=job.lr, weight_decay=0.01, betas=(0.9, 0.98), eps=1e-6, warmup=0.06, schedule="linear")
