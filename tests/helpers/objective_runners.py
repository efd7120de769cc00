"""A pretraining objective small enough to check each rank's gradients, and a runner that trains it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from harness.pretraining.base import BatchLoss, EvalResult, Objective, Run, TrainingBatch
from harness.pretraining.budget import Budget, Recipe
from harness.pretraining.text.corpus import Corpus
from harness.records.parts import TrainerConfig

if TYPE_CHECKING:
    from harness.processes.distributed import World

STEPS = 4
ITEMS = (1, 4, 2, 3)
"""Items per row of a step."""


class ToyModel(nn.Module):
    """Four parameters: ``always`` is used by every row and ``tied`` shares it, ``sometimes`` is used by row 1
    only, ``never`` by none."""

    def __init__(self) -> None:
        super().__init__()
        self.always = nn.Parameter(torch.linspace(0.5, 1.0, 6, dtype=torch.float64))
        self.tied = self.always
        self.sometimes = nn.Parameter(torch.full((6,), 2.0, dtype=torch.float64))
        self.never = nn.Parameter(torch.full((6,), 3.0, dtype=torch.float64))


class ToyObjective(Objective[ToyModel, Tensor]):
    """Squared predictions of a step of four rows with unequal numbers of items, plus the carried state."""

    family = "toy"
    recipe = Recipe(lr=0.05, weight_decay=0.1, warmup=0.0, schedule="constant", max_grad_norm=0.5)
    tokens_per_epoch = sum(ITEMS) * STEPS

    def __init__(self) -> None:
        self.notes: list[str] = []

    def prepare(self, corpus: Corpus, *, seed: int) -> None:
        pass

    def build(self) -> ToyModel:
        return ToyModel()

    def batches(self, *, seed: int, epoch: int) -> Iterator[TrainingBatch]:
        generator = torch.Generator().manual_seed(seed + epoch)
        for step in range(STEPS):
            inputs = torch.randn(len(ITEMS), max(ITEMS), 6, generator=generator, dtype=torch.float64)
            tensors = {"inputs": inputs, "items": torch.tensor(ITEMS), "row": torch.arange(len(ITEMS))}
            yield TrainingBatch(tensors, tokens=sum(ITEMS), words=sum(ITEMS), resets_carry=step == 0)

    def loss(self, model: ToyModel, batch: TrainingBatch, carry: Tensor | None) -> BatchLoss[Tensor]:
        inputs, items = batch.tensors["inputs"], batch.tensors["items"]
        state = inputs.new_zeros(1, len(items), 1) if carry is None else carry
        predictions = inputs @ model.always + (inputs * model.tied).sum(-1) + state[0]
        losses = predictions.square()
        if 1 in batch.tensors["row"]:
            losses = losses + (batch.tensors["row"] == 1)[:, None] * model.sometimes.square().sum()
        is_item = torch.arange(losses.shape[1]) < items[:, None]
        total, count = (losses * is_item).sum(), int(items.sum())
        return BatchLoss(total / count, float(total.detach()), count, carry=predictions[None, :, :1].detach())

    def evaluate(self, model: ToyModel) -> EvalResult:
        raise NotImplementedError

    def save(self, model: ToyModel, folder: Path) -> None:
        raise NotImplementedError

    def vocabulary_size(self) -> int:
        return 0


@dataclass(frozen=True, slots=True)
class ToyRun:
    """What the ranks receive."""

    folder: Path
    devices: int

    @property
    def trainer(self) -> TrainerConfig:
        return TrainerConfig(devices=self.devices, accelerator="cpu", threads=1)


def run_toy(run: ToyRun, send: Callable[[dict[str, Any]], None], world: World) -> None:
    """Train; send the weights, the names of the parameters that have a gradient, and the mean loss."""
    from harness.pretraining.trainer import BatchStream, PretrainModule, fit

    objective, budget = ToyObjective(), Budget(steps=STEPS)
    with tempfile.TemporaryDirectory() as work:
        inputs = Run(
            corpus=Corpus((), (), ""),
            budget=budget,
            folder=run.folder,
            work=Path(work),
            seed=0,
            trainer={"accelerator": "cpu", "devices": world.size, "log_seconds": 1e9},
            report=print,
            world=world,
        )
        model = objective.build()
        module = PretrainModule(objective, model, inputs, budget)
        fit(module, BatchStream(objective, module, 0), inputs)
    send(
        {
            "weights": {name: p.tolist() for name, p in model.named_parameters()},
            "gradients": [name for name, p in model.named_parameters() if p.grad is not None],
            "loss": module.smooth_loss,
        }
    )
