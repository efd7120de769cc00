"""Where curves go beside the record: nowhere, a CSV file, TensorBoard's events, or one wandb run a cell.

The record is the result; a logger is a copy for looking at, so one that fails costs no cell. This module
loads neither torch nor wandb before a cell asks for them.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from harness.errors import HarnessError, did_you_mean
from harness.processes.worker import last_lines
from harness.records.cell import Cell
from harness.records.record import Record

EXTRAS = ("wandb", "tensorboard")
FOLDERS = {"wandb": "wandb", "tensorboard": "tensorboard"}
MODES = {
    "offline": "offline",
    "online": "online",
    "disabled": "disabled",
    "dryrun": "offline",
    "run": "online",
}
Run = TypeVar("Run", bound=Callable[..., Record])


class Log:
    """One cell's log; this one keeps nothing.

    Attributes:
        lightning: the logger for Lightning's trainer, False without.
    """

    lightning: Any = False

    def final(self, record: Record) -> None:
        """Add what is known at the end."""

    def close(self, error: str | None) -> None:
        """The cell is done, or has failed with ``error``."""


class CsvLog(Log):
    def __init__(self, cell: Cell) -> None:
        from pytorch_lightning.loggers import CSVLogger

        self.lightning = CSVLogger(save_dir=cell.folder, name="", version="")
        _ = self.lightning.experiment  # it is made at first use, and warns then


class TensorBoardLog(Log):
    def __init__(self, cell: Cell) -> None:
        from pytorch_lightning.loggers import TensorBoardLogger

        self.lightning = TensorBoardLogger(save_dir=cell.folder, name="", version=FOLDERS["tensorboard"])

    def final(self, record: Record) -> None:
        numbers = {k: v for k, v in final_values(record).items() if isinstance(v, int | float)}
        self.lightning.log_metrics({f"final/{k}": v for k, v in numbers.items()}, step=record.epochs or 0)

    def close(self, error: str | None) -> None:
        if error is not None:
            self.lightning.experiment.add_text("reason", error)
        self.lightning.experiment.close()


_current: Log | None = None


def current() -> Any:
    """Lightning's logger of the cell that runs in this process; False when it keeps none."""
    return _current.lightning if _current is not None else False


def logged(run: Run) -> Run:
    """Around ``run(cell, progress, world)``: the cell's log is open meanwhile, and ends as the cell does."""

    @functools.wraps(run)
    def wrapper(cell: Cell, progress: Any, world: Any) -> Record:
        global _current
        if not world.first:
            return run(cell, progress, world)
        _current = log = open_log(cell)
        try:
            record = run(cell, progress, world)
        except BaseException as e:
            _quietly(log.close, last_lines(e))
            raise
        finally:
            _current = None
        _quietly(log.final, record)
        _quietly(log.close, None)
        return record

    return wrapper  # type: ignore[return-value]


def open_log(cell: Cell) -> Log:
    """The log that ``logger.name`` asks for; what an earlier attempt at the cell left in its place goes.

    A log that cannot be opened is told of in the cell's own log and costs nothing else.
    """
    config = cell.config.get("logger") or {}
    name = str(config.get("name") or "none")
    if name == "none" or (name == "wandb" and wandb_mode(config) == "disabled"):
        return Log()
    try:
        if name in FOLDERS:
            shutil.rmtree(cell.folder / FOLDERS[name], ignore_errors=True)
        with warnings.catch_warnings():
            # the folder holds the cell's configuration: that it is not empty is no news
            warnings.simplefilter("ignore")
            if name == "wandb":
                from harness.loggers.wandb import WandbLog

                return WandbLog(cell, mode=wandb_mode(config))
            return CsvLog(cell) if name == "csv" else TensorBoardLog(cell)
    except Exception as e:
        print(f"logger={name} could not be started: {last_lines(e)}", file=sys.stderr)
        return Log()


def _quietly(action: Callable[..., None], *arguments: Any) -> None:
    try:
        action(*arguments)
    except Exception as e:
        print(f"the logger failed: {last_lines(e)}", file=sys.stderr)


def final_values(record: Record) -> dict[str, Any]:
    """Scores, cost and coverage by names such as ``test/accuracy``, and what the cell was."""
    out: dict[str, Any] = {"status": record.status, "seed": record.seed, "metric": record.metric}
    for prefix, values in (("dev", record.dev), ("test", record.test), ("coverage", record.coverage)):
        out |= {f"{prefix}/{k}": v for k, v in values.items()}
    out |= {f"cost/{k}": v for k, v in asdict(record.costs).items() if k != "host"}
    for key in (
        "epoch",
        "epochs",
        "parameters",
        "trained_parameters",
        "n_train",
        "n_dev",
        "n_test",
        "partial",
    ):
        value = getattr(record, key)
        # the curves have their own epoch
        out["chosen_epoch" if key == "epoch" else key] = value
    if record.reason:
        out["reason"] = record.reason
    return {k: v for k, v in out.items() if v is not None}


def wandb_mode(config: Mapping[str, Any]) -> str:
    """``offline``, ``online`` or ``disabled``: as configured, else as $WANDB_MODE says, else offline.

    Raises:
        HarnessError: the variable holds something else.
    """
    if config.get("mode"):
        return str(config["mode"])
    told = os.environ.get("WANDB_MODE") or "offline"
    if told.lower() not in MODES:
        raise HarnessError(f"WANDB_MODE={told}: {did_you_mean(told, list(MODES)[:3])}")
    return MODES[told.lower()]


def uses_wandb(cell: Cell) -> bool:
    """Whether the cell leaves a run of wandb's."""
    config = cell.config.get("logger") or {}
    return config.get("name") == "wandb" and wandb_mode(config) != "disabled"


def check(cells: Sequence[Cell]) -> None:
    """Refuse, before anything runs, loggers that could not work.

    Raises:
        HarnessError: a package is missing, or online logging has no key or no way to its server.
    """
    for name in EXTRAS:
        asked = [c.config["logger"] for c in cells if (c.config.get("logger") or {}).get("name") == name]
        modes = (
            {wandb_mode(config) for config in asked} if name == "wandb" else {"written"} if asked else set()
        )
        if modes <= {"disabled"}:
            continue
        if importlib.util.find_spec(name) is None:
            raise HarnessError(
                f"logger={name}: the package {name} is missing; pip install 'transfer-harness[{name}]'"
            )
        if "online" in modes:
            from harness.loggers.wandb import check_online

            check_online()


def settle(job: dict[str, Any], *, sweep: str | None) -> None:
    """Decide for a job's run, before it is sent to another process or machine: the mode, by this one's
    environment, and the group, unless it has one.

    Raises:
        HarnessError: $WANDB_MODE makes no sense.
    """
    config = job.get("logger")
    if isinstance(config, dict) and config.get("name") == "wandb":
        config["mode"] = wandb_mode(config)
        config["group"] = config.get("group") or sweep


def unfinished(records: Mapping[str, Record], cells: Sequence[Cell]) -> Iterator[Path]:
    """Folders of the cells whose wandb run was cut off: the process was killed before it could end it."""
    for cell in cells:
        record = records.get(str(cell.folder))
        if record is not None and record.status != "skipped" and uses_wandb(cell):
            from harness.loggers.wandb import ended

            if not ended(cell.folder, since=record.started):
                yield cell.folder
