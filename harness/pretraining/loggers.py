"""Training curves of a pretraining run: none, CSV files, or one wandb run.

The record is the result; a log is a copy for inspection, so a failing logger never stops training. An
interrupted run that resumes is one wandb run: its id is derived from the run's identity, and the points that
were logged before the checkpoint are written again.
"""

from __future__ import annotations

import importlib.util
import math
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from harness.core.files import write_atomic
from harness.errors import HarnessError, describe_error
from harness.loggers.wandb import Mode, wandb_mode
from harness.pretraining.base import Outcome, Run, TrainerOptions
from harness.pretraining.config import PretrainConfig

if TYPE_CHECKING:
    from pytorch_lightning.loggers import Logger
    from wandb import Run as WandbRun

WANDB = "wandb"
PROJECT = "transfer-harness-pretrain"


def check_logger(trainer: TrainerOptions) -> None:
    """Refuse a logger that cannot work, before anything is computed.

    Raises:
        HarnessError: the package is missing, or online logging has no API key or connection.
    """
    if trainer["logger"] != WANDB or (mode := wandb_mode(None)) == "disabled":
        return
    if importlib.util.find_spec(WANDB) is None:
        raise HarnessError(
            "trainer.logger=wandb: the package wandb is missing; pip install 'transfer-harness[wandb]'"
        )
    if mode == "online":
        from harness.loggers.wandb import check_online

        check_online()


def log_info(config: PretrainConfig, *, identity: str, corpus: str) -> dict[str, object]:
    """Arguments of ``wandb.init``; they contain no paths of this machine.

    Args:
        config: validated.
        identity: of the run.
        corpus: fingerprint of the corpus.
    """
    encoder = {k: v for k, v in config["encoder"].items() if k not in ("_target_", "tokenizer")}
    held_out = config["held_out"]
    shown = {
        "encoder": encoder,
        "budget": config["budget"],
        "seed": config["seed"],
        "held_out": Path(held_out).name if isinstance(held_out, str) else held_out,
        "corpus": {"name": Path(config["corpus"]).name, "fingerprint": corpus},
        "precision": config["trainer"]["precision"],
        "devices": config["trainer"]["devices"],
    }
    return {
        "id": identity[:16],
        "name": Path(config["output"]).name[:128],
        "project": PROJECT,
        "job_type": "pretrain",
        "tags": [str(encoder[k])[:64] for k in ("name", "size")],
        "config": shown,
    }


class PretrainLogger:
    """Logger of one run; nothing is opened before :meth:`open` is called.

    Args:
        run: its work folder, ``trainer.logger`` and :attr:`Run.log_info`.
    """

    def __init__(self, run: Run) -> None:
        self.run, self.kind = run, run.trainer.get("logger") or "none"
        self._wandb: WandbRun | None = None

    def open(self, *, step: int) -> Logger | Literal[False]:
        """Return Lightning's logger for a training that resumes after ``step``; False without one."""
        if self.kind == "csv":
            from pytorch_lightning.loggers import CSVLogger

            part = len(list(self.run.work.glob("log/part-*")))
            return CSVLogger(save_dir=self.run.work, name="log", version=f"part-{part}")
        if self.kind == WANDB and (mode := wandb_mode(None)) != "disabled":
            try:
                return self._open_wandb(mode, step)
            except Exception as e:
                self.run.report(f"trainer.logger=wandb could not be started: {describe_error(e)}")
        return False

    def _open_wandb(self, mode: Mode, step: int) -> Logger:
        from pytorch_lightning.loggers import WandbLogger

        from harness.loggers.wandb import STEP, start_run
        from harness.loggers.wandb_files import read_curves

        folder = self.run.work / WANDB
        # an offline run cannot be appended to: write its points up to the checkpoint to a new file
        points = read_curves(folder)
        shutil.rmtree(folder, ignore_errors=True)
        wandb_run = start_run(self.run.log_info, folder=self.run.work, mode=mode)
        for point in points:
            if point.get(STEP, step) < step:
                wandb_run.log(point)
        self._wandb = wandb_run
        return WandbLogger(experiment=wandb_run)

    def close(self, outcome: Outcome | None, error: BaseException | None = None) -> None:
        """Log the final numbers, or the error, and finish."""
        if self._wandb is not None:
            wandb_run = self._wandb
            self._guard(lambda: _finish_wandb(wandb_run, outcome, error))

    def _guard(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as e:
            self.run.report(f"the logger failed: {describe_error(e)}")


def _finish_wandb(wandb_run: WandbRun, outcome: Outcome | None, error: BaseException | None) -> None:
    if outcome is not None:
        wandb_run.summary.update({"status": "complete", **final_numbers(outcome)})
    if error is not None:
        wandb_run.summary.update({"status": "failed", "reason": describe_error(error)})
    wandb_run.finish(exit_code=0 if error is None else 1)


def final_numbers(outcome: Outcome) -> dict[str, float]:
    """Numbers at the end of training, by names such as ``held_out/perplexity_per_word``."""
    numbers: dict[str, float | None] = {f"seen/{k}": v for k, v in asdict(outcome.progress).items()}
    numbers |= {"parameters": outcome.parameters, "vocabulary": outcome.vocabulary, "epochs": outcome.epochs}
    numbers["final_loss"] = outcome.loss
    if outcome.held_out is not None:
        numbers |= {f"held_out/{k}": v for k, v in outcome.held_out.metrics.items()}
        numbers["held_out/perplexity_per_word"] = outcome.held_out.word_perplexity
    return {k: v for k, v in numbers.items() if v is not None and math.isfinite(v)}


def keep_logs(work: Path, folder: Path) -> None:
    """Move the logs to the encoder's folder: ``curves.csv`` of all parts of a resumed run, and ``wandb/``."""
    parts = sorted(work.glob("log/part-*/metrics.csv"), key=lambda p: int(p.parent.name.rpartition("-")[2]))
    lines: list[str] = []
    for part in parts:
        header, *rows = part.read_text().splitlines() or [""]
        lines += [header, *rows] if not lines or lines[0] != header else rows
    if lines:
        write_atomic(folder / "curves.csv", "\n".join([*lines, ""]).encode())
    if (work / WANDB).is_dir():
        shutil.rmtree(folder / WANDB, ignore_errors=True)
        shutil.move(work / WANDB, folder / WANDB)
