"""Where a pretraining's curves go: nowhere, CSV files, or one wandb run.

The record is the result; a log is a copy for looking at, and one that fails costs no training. A run that was
killed and is continued is one run of wandb's: its id is the pretraining's own, and what it had on disk up to
the step that it is continued from is written again.
"""

from __future__ import annotations

import importlib.util
import math
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from harness.errors import HarnessError, describe_error
from harness.loggers.wandb import Mode, wandb_mode
from harness.pretraining.base import Outcome, Run

WANDB = "wandb"
PROJECT = "transfer-harness-pretrain"


def check_log(trainer: Mapping[str, Any]) -> None:
    """Refuse, before anything is computed, a log that could not work.

    Raises:
        HarnessError: the package is missing, or online logging has no key or no way to its server.
    """
    if trainer["logger"] != WANDB or (mode := wandb_mode({})) == "disabled":
        return
    if importlib.util.find_spec(WANDB) is None:
        raise HarnessError(
            "trainer.logger=wandb: the package wandb is missing; pip install 'transfer-harness[wandb]'"
        )
    if mode == "online":
        from harness.loggers.wandb import check_online

        check_online()


def about(config: Mapping[str, Any], *, identity: str, corpus: str) -> dict[str, Any]:
    """What wandb is told of a run: nothing of it is a place on this machine.

    Args:
        config: checked.
        identity: of the run.
        corpus: its fingerprint.
    """
    encoder = {k: v for k, v in config["encoder"].items() if k not in ("_target_", "tokenizer")}
    name = Path(config["output"]).name
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
        "name": name[:128],
        "project": PROJECT,
        "job_type": "pretrain",
        "tags": [str(encoder[k])[:64] for k in ("name", "size")],
        "config": shown,
    }


class Log:
    """The log of one training; nothing is opened before :meth:`lightning` is asked for.

    Args:
        run: its work folder, ``trainer.logger`` and :attr:`Run.about`.
    """

    def __init__(self, run: Run) -> None:
        self.run, self.kind = run, run.trainer.get("logger") or "none"
        self._wandb: Any = None

    def lightning(self, *, step: int) -> Any:
        """Lightning's logger for a training that goes on from ``step``; False without one."""
        if self.kind == "csv":
            from pytorch_lightning.loggers import CSVLogger

            taken = len(list(self.run.work.glob("log/part-*")))
            return CSVLogger(save_dir=self.run.work, name="log", version=f"part-{taken}")
        if self.kind == WANDB and (mode := wandb_mode({})) != "disabled":
            try:
                return self._open_wandb(mode, step)
            except Exception as e:
                self.run.say(f"trainer.logger=wandb could not be started: {describe_error(e)}")
        return False

    def _open_wandb(self, mode: Mode, step: int) -> Any:
        from pytorch_lightning.loggers import WandbLogger

        from harness.loggers.wandb import STEP, start_run
        from harness.loggers.wandb_files import read_curves

        place = self.run.work / WANDB
        points = read_curves(place)
        shutil.rmtree(place, ignore_errors=True)
        self._wandb = start_run(self.run.about, folder=self.run.work, mode=mode)
        for point in points:
            if point.get(STEP, step) < step:
                self._wandb.log(point)
        return WandbLogger(experiment=self._wandb)

    def close(self, outcome: Outcome | None, error: BaseException | None = None) -> None:
        """The training is done, or has failed."""
        if self._wandb is not None:
            self._quietly(lambda: self._end_wandb(outcome, error))

    def _end_wandb(self, outcome: Outcome | None, error: BaseException | None) -> None:
        if outcome is not None:
            self._wandb.summary.update({"status": "complete", **numbers(outcome)})
        if error is not None:
            self._wandb.summary.update({"status": "failed", "reason": describe_error(error)})
        self._wandb.finish(exit_code=0 if error is None else 1)

    def _quietly(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as e:
            self.run.say(f"the logger failed: {describe_error(e)}")


def numbers(outcome: Outcome) -> dict[str, float]:
    """What a training tells at its end, by names such as ``held_out/perplexity_per_word``."""
    held, seen = outcome.held_out, asdict(outcome.seen)
    out: dict[str, float | None] = {f"seen/{k}": v for k, v in seen.items()}
    out |= {"parameters": outcome.parameters, "vocabulary": outcome.vocabulary, "epochs": outcome.epochs}
    out["final_loss"] = outcome.loss
    if held is not None:
        out |= {f"held_out/{k}": v for k, v in held.more.items()}
        out["held_out/perplexity_per_word"] = held.word_perplexity
    return {k: v for k, v in out.items() if v is not None and math.isfinite(v)}


def keep_wandb(work: Path, folder: Path) -> None:
    """The finished run of wandb's goes with the encoder."""
    if (work / WANDB).is_dir():
        shutil.rmtree(folder / WANDB, ignore_errors=True)
        shutil.move(work / WANDB, folder / WANDB)
