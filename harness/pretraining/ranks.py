"""Entry points of a pretraining run on several devices, one process (rank) per device.

The first rank reports progress, writes checkpoints, evaluates and saves. How a step is divided is in
:mod:`harness.pretraining.distributed`; processes are started and watched by :mod:`harness.processes.ranks`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.pretraining.base import AnyObjective, Objective, Outcome, ReportLine, Run
from harness.pretraining.config import PretrainConfig, build_budget
from harness.pretraining.factories import build_pretrainer
from harness.pretraining.text.corpus import Corpus

if TYPE_CHECKING:
    from harness.processes.distributed import World

RUNNER = "harness.pretraining.ranks:run_rank"
LOG = "log.txt"


@dataclass(frozen=True, slots=True)
class RankDevices:
    """On what ranks run, see :class:`harness.processes.ranks.RankedTrainer`."""

    devices: int
    accelerator: str
    threads: int | None


@dataclass(frozen=True, slots=True)
class RankedRun:
    """What every rank receives.

    Attributes:
        pretrain_config: validated.
        folder: the work folder; the ranks' output goes to its ``log.txt``.
        corpus: split into training and held-out documents.
        result: the folder for the encoder's files.
        log_info: arguments for the experiment logger.
    """

    pretrain_config: PretrainConfig
    folder: Path
    corpus: Corpus
    result: Path
    log_info: Mapping[str, object]

    @property
    def trainer(self) -> RankDevices:
        """The devices, for :class:`harness.processes.ranks.Ranked`."""
        given = self.pretrain_config["trainer"]
        return RankDevices(int(str(given["devices"])), str(given["accelerator"]), given.get("threads"))


def pretrain_on_ranks(run: RankedRun, *, report: ReportLine) -> Outcome:
    """Pretrain on ``trainer.devices`` ranks.

    Raises:
        HarnessError: a rank failed or died; the others have been stopped.
    """
    from harness.processes.ranks import on_ranks

    outcomes: list[Outcome] = []

    def receive(event: dict[str, Any]) -> None:
        if "line" in event:
            report(event["line"])
        else:
            outcomes.append(event["outcome"])

    on_ranks(run, receive, runner=RUNNER)
    return outcomes[0]


def run_rank(run: RankedRun, send: Callable[[dict[str, object]], None], world: World) -> None:
    """Train as one rank; called in the rank's process."""
    from pytorch_lightning.utilities import rank_zero_only

    from harness.pretraining.trainer import train

    _redirect_output(run.folder / LOG)
    # Lightning read the rank from the environment of the parent process
    rank_zero_only.rank = world.rank  # type: ignore[attr-defined]
    # threads: the ranks have divided them among themselves
    own = {**run.pretrain_config["trainer"], "devices": world.size, "threads": None}
    pretrainer = build_pretrainer(run.pretrain_config["encoder"])
    assert isinstance(pretrainer, Objective)
    objective: AnyObjective = pretrainer

    def report(line: str) -> None:
        if world.first:
            send({"line": line})

    outcome = train(
        objective,
        Run(
            corpus=run.corpus,
            budget=build_budget(run.pretrain_config),
            folder=run.result,
            work=run.folder,
            seed=run.pretrain_config["seed"],
            trainer=own,  # type: ignore[arg-type]
            report=report,
            world=world,
            log_info=run.log_info,
        ),
    )
    send({"outcome": outcome})


def _redirect_output(log: Path) -> None:
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.close(out)
