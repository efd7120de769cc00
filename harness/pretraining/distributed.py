"""One pretraining over several devices: a rank a device, as :mod:`harness.processes.ranks` starts and watches them.

Every rank prepares the same corpus and draws the same steps; of each step it takes every N-th row, and its
part of the loss counts as much as its items do among all of the step, so that the gradients' sum over the
ranks is that of the step on one device. Budgets count whole steps, and time by the first rank's clock. The
first rank talks, keeps states, measures and saves.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from harness.pretraining.base import Batch, Loss, Objective, Outcome, Pretrainer, Progress, Run
from harness.pretraining.text.corpus import Corpus

if TYPE_CHECKING:
    from harness.processes.distributed import World

RUNNER = "harness.pretraining.distributed:run_rank"
LOG = "log.txt"


@dataclass(frozen=True, slots=True)
class RankedJob:
    """What each rank is told.

    Attributes:
        config: checked.
        folder: the work folder, which gets the ranks' output as ``log.txt``.
        corpus: divided.
        result: the folder for the encoder's files.
        about: what a log is told.
    """

    config: dict[str, Any]
    folder: Path
    corpus: Corpus
    result: Path
    about: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Step:
    """A step's loss over all ranks: nats, items they are over, items of each further mean."""

    nll: float
    predicted: int
    also: tuple[int, ...]


def pretrain_on_ranks(job: RankedJob, *, say: Progress) -> Outcome:
    """Pretrain on ``trainer.devices`` ranks.

    Raises:
        HarnessError: a rank failed or died; the others have been ended.
    """
    from harness.processes.ranks import on_ranks

    outcomes: list[Outcome] = []

    def hear(event: dict[str, Any]) -> None:
        if "say" in event:
            say(event["say"])
        else:
            outcomes.append(event["outcome"])

    on_ranks(job, hear, runner=RUNNER)
    return outcomes[0]


def run_rank(job: RankedJob, progress: Any, world: World) -> None:
    """In each rank."""
    from pytorch_lightning.utilities import rank_zero_only

    from harness.pretraining.config import budget
    from harness.pretraining.job import the_pretrainer

    _speak_to(job.folder / LOG)
    # Lightning has taken it from the environment that the command was started in
    rank_zero: Any = rank_zero_only
    rank_zero.rank = world.rank
    given = job.config["trainer"]
    cuda = given["accelerator"] in ("auto", "gpu", "cuda") and torch.cuda.is_available()
    # the ranks share the threads already
    trainer = {**given, "devices": [world.rank] if cuda else 1, "threads": None}
    pretrainer: Pretrainer = the_pretrainer(job.config["encoder"])

    def say(line: str) -> None:
        progress({"say": line})

    outcome = pretrainer.pretrain(
        Run(
            job.corpus,
            budget(job.config),
            job.result,
            job.folder,
            job.config["seed"],
            trainer,
            say if world.first else _silent,
            world,
            job.about,
        )
    )
    progress({"outcome": outcome})


def _silent(_: str) -> None:
    pass


def _speak_to(log: Path) -> None:
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.close(out)


def share(objective: Objective, batch: Batch, world: World) -> Batch:
    """This rank's part of a step; all of it where there is one rank."""
    return objective.share(batch, rank=world.rank, size=world.size) if world.size > 1 else batch


def together(loss: Loss | None, world: World) -> Step:
    """What the ranks' losses are together; None = a rank that had no row."""
    if world.size == 1:
        assert loss is not None
        return Step(loss.nll, loss.predicted, tuple(n for _, n in loss.also))
    mine = None if loss is None else (loss.nll, loss.predicted, tuple(n for _, n in loss.also))
    told = [part for part in world.gather(mine) if part is not None]
    also = tuple(map(sum, zip(*(part[2] for part in told), strict=True)))
    return Step(sum(part[0] for part in told), sum(part[1] for part in told), also)


def minimised(loss: Loss | None, step: Step, world: World, *, device: torch.device) -> torch.Tensor:
    """The scalar whose gradients, summed over the ranks, are the step's. A rank without rows has a zero: a
    gradient scaler must have seen a loss to be asked."""
    if loss is None:
        return torch.zeros((), device=device, requires_grad=True)
    if world.size == 1:
        return loss.mean + sum(mean for mean, _ in loss.also)
    out = loss.mean * (loss.predicted / max(1, step.predicted))
    for (mean, count), total in zip(loss.also, step.also, strict=True):
        out = out + mean * (count / max(1, total))
    return out


def share_carry(carry: Any, world: World) -> Any:
    """This rank's rows of the state of all rows: nested tuples or lists of tensors, rows in dimension 1."""
    if isinstance(carry, torch.Tensor):
        return carry[:, world.rank :: world.size].contiguous() if world.size > 1 else carry
    return type(carry)(share_carry(c, world) for c in carry) if isinstance(carry, list | tuple) else carry


def whole_carry(carry: Any, world: World) -> Any:
    """The state of all rows of what each rank has of it; every rank must ask."""
    if world.size == 1:
        return carry
    return _join([part for part in world.gather(_on_cpu(carry)) if part is not None])


def _on_cpu(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.cpu()
    return type(value)(map(_on_cpu, value)) if isinstance(value, list | tuple) else value


def _join(parts: list[Any]) -> Any:
    if not parts or isinstance(parts[0], list | tuple):
        return type(parts[0])(_join(list(p)) for p in zip(*parts, strict=True)) if parts else None
    rows = sum(p.shape[1] for p in parts)
    out = parts[0].new_empty(parts[0].shape[0], rows, *parts[0].shape[2:])
    for rank, part in enumerate(parts):
        out[:, rank :: len(parts)] = part
    return out
