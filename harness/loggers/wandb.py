"""One wandb run per cell. Its id is the cell's, so a cell that runs again continues the same run.

A run is stored in ``wandb/`` in the cell's folder. A process that is killed cannot finish its run: the
process that writes the cell's record does that afterwards (:func:`finish_killed`, ``python -m
harness.loggers.wandb FOLDER...``), in a subprocess. The points that the killed run had on disk are kept.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from harness.core.files import utc_now
from harness.core.redaction import shown_config
from harness.core.validation import checked, made, section_or_empty
from harness.core.wandb_server import has_api_key, server, why_unreachable
from harness.errors import HarnessError, did_you_mean
from harness.loggers.base import CellLogger, final_values
from harness.loggers.wandb_files import read_curves
from harness.records.cell import Cell
from harness.records.parts import LoggerConfig
from harness.records.record import Record, read_record

if TYPE_CHECKING:
    from wandb import Run

Mode = Literal["offline", "online", "disabled"]

FOLDER = "wandb"
FINISHED = ".ended"
STEP = "trainer/global_step"
FLUSH_SECONDS = 2.0
MAX_TAG, MAX_NAME = 64, 128
MODES: dict[str, Mode] = {
    "offline": "offline",
    "online": "online",
    "disabled": "disabled",
    "dryrun": "offline",
    "run": "online",
}


class WandbLogger(CellLogger):
    """The run of one cell, open until :meth:`close`."""

    package = "wandb"
    output = FOLDER

    def __init__(self, cell: Cell) -> None:
        from pytorch_lightning.loggers import WandbLogger as LightningLogger

        names = {"task": cell.task.name, "encoder": cell.encoder.name, "strategy": cell.strategy.name}
        info = run_info(
            cell.resolved, logger=cell.logger, id=run_id(cell.id, cell.seed), names=names, title=cell.title
        )
        self.folder = cell.folder
        self.run = start_run(info, folder=cell.folder, mode=wandb_mode(cell.logger.mode))
        self.lightning = LightningLogger(experiment=self.run)

    @classmethod
    def enabled(cls, config: LoggerConfig) -> bool:
        return wandb_mode(config.mode) != "disabled"

    @classmethod
    def check(cls, config: LoggerConfig) -> None:
        """Raises HarnessError if wandb is missing, or online logging has no API key or no connection."""
        super().check(config)
        if wandb_mode(config.mode) == "online":
            check_online()

    @classmethod
    def fill_in(cls, config: MutableMapping[str, object], *, sweep: str | None) -> None:
        """Set the mode from this process's environment, and the sweep as the group unless one is given."""
        config["mode"] = wandb_mode(config.get("mode"))
        config["group"] = config.get("group") or sweep

    @classmethod
    def end_killed_runs(
        cls, records: Mapping[str, Record], cells: Sequence[Cell], *, note: Callable[[str], None]
    ) -> None:
        folders = []
        for cell in cells:
            record = records.get(str(cell.folder))
            ran = record is not None and record.status != "skipped"
            if record is not None and ran and not is_finished(cell.folder, since=record.started):
                folders.append(cell.folder)
        finish_killed(folders, note=note)

    def log_final(self, record: Record) -> None:
        self.run.summary.update(final_values(record))

    def close(self, error: str | None) -> None:
        if error is not None:
            self.run.summary.update({"status": "failed", "reason": error})
        self.run.finish(exit_code=0 if error is None else 1)
        mark_finished(self.folder)


def wandb_mode(configured: object) -> Mode:
    """The configured mode, else that of $WANDB_MODE, else ``offline``.

    Raises:
        HarnessError: the variable has an invalid value.
    """
    mode = str(configured or os.environ.get("WANDB_MODE") or "offline").lower()
    if mode not in MODES:
        raise HarnessError(f"WANDB_MODE={mode}: {did_you_mean(mode, list(MODES)[:3])}")
    return MODES[mode]


def run_id(cell: str, seed: int) -> str:
    """The id of a cell's run, the same whenever and wherever the cell runs."""
    return f"{cell}-{seed}"


def run_info(
    config: Mapping[str, object],
    *,
    logger: LoggerConfig,
    id: str,
    names: Mapping[str, str],
    title: str,
) -> dict[str, object]:
    """Arguments of ``wandb.init`` that describe a cell.

    Args:
        config: resolved; secrets and paths are removed.
        logger: its section ``logger``.
        id: of the run.
        names: of task, encoder and strategy.
        title: name of the run.
    """
    tags = dict.fromkeys(tag[:MAX_TAG] for tag in (*names.values(), *logger.tags) if tag)
    return {
        "id": id,
        "name": title[-MAX_NAME:],
        "project": logger.project or "transfer-harness",
        "entity": logger.entity,
        "group": (logger.group or "")[-MAX_NAME:] or None,
        "job_type": names["strategy"][:MAX_TAG],
        "tags": list(tags),
        "config": shown_config(config),
    }


def start_run(info: Mapping[str, Any], *, folder: Path, mode: Mode) -> Run:
    """Start a run below ``folder``; an offline one if the server has become unreachable.

    Args:
        info: arguments of ``wandb.init`` that describe the run.
        folder: the run is stored in ``wandb/`` in this folder.
        mode: from :func:`wandb_mode`.
    """
    import wandb

    settings = wandb.Settings(
        silent=True,
        console="off",  # log.txt holds the output already
        save_code=False,
        disable_git=True,
        disable_code=True,
        x_disable_meta=True,  # do not upload host, user, command line and paths
        x_disable_machine_info=True,
        x_disable_stats=True,
        x_save_requirements=False,
        x_transaction_log_flush_interval=FLUSH_SECONDS,
        quiet=True,
    )
    if wandb.run is not None:
        wandb.run.finish()
    try:
        run = wandb.init(mode=mode, dir=str(folder), resume="allow", settings=settings, **info)
    except wandb.errors.Error as e:
        if mode != "online":
            raise
        print(f"wandb: {e}; this run is kept on disk, and wandb sync uploads it", file=sys.stderr)
        run = wandb.init(mode="offline", dir=str(folder), resume="allow", settings=settings, **info)
    run.define_metric(STEP)
    run.define_metric("*", step_metric=STEP, step_sync=True)
    return run


def mark_finished(folder: Path) -> None:
    """Note that the run in a cell's folder is finished."""
    (folder / FOLDER).mkdir(exist_ok=True)
    (folder / FOLDER / FINISHED).write_text(utc_now())


def is_finished(folder: Path, *, since: str) -> bool:
    """Whether the run of the attempt that started at ``since`` was finished."""
    try:
        return (folder / FOLDER / FINISHED).read_text() >= since[:19]
    except OSError:
        return False


def finish_killed(folders: Sequence[Path], *, note: Callable[[str], None]) -> None:
    """Finish the runs of killed cells as failed, with the reasons in their records, in a subprocess."""
    if not folders:
        return
    command = [sys.executable, "-m", "harness.loggers.wandb", *map(str, folders)]
    environment = {**os.environ, "PYTHONSAFEPATH": "1"}
    try:
        done = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=60 + 10 * len(folders),
        )  # fmt: skip
        errors = done.stderr.strip().splitlines()[-1:] if done.returncode else []
    except (OSError, subprocess.SubprocessError) as e:
        errors = [str(e)]
    for error in errors:
        note(f"wandb: the runs of {len(folders)} killed cells could not be finished ({error})")


def finish(folder: Path) -> None:
    """Replace the unfinished runs in a cell's folder by one with their points and the record's outcome."""
    from harness.config.stored import read_config

    config, record = read_config(folder), read_record(folder)
    points = read_curves(folder / FOLDER)
    shutil.rmtree(folder / FOLDER, ignore_errors=True)
    names = {"task": record.task, "encoder": record.encoder, "strategy": record.strategy}
    title = "/".join([*names.values(), record.cell, f"seed-{record.seed}"])
    logger = made(LoggerConfig, checked(LoggerConfig, section_or_empty("logger", config.get("logger"))))
    info = run_info(config, logger=logger, id=run_id(record.cell, record.seed), names=names, title=title)
    run = start_run(info, folder=folder, mode=wandb_mode(logger.mode))
    for point in points:
        run.log(point)
    run.summary.update(final_values(record))
    run.finish(exit_code=0 if record.status == "complete" else 1)
    mark_finished(folder)


def check_online() -> None:
    """Check that online logging can work, without prompting the user.

    Raises:
        HarnessError: there is no API key, or no connection to the server.
    """
    host, port = server()
    fix = "logger.mode=offline keeps the runs on disk, and wandb sync uploads them later"
    if not has_api_key(host):
        raise HarnessError(
            f"logger.mode=online: there is no API key for {host}; set WANDB_API_KEY in the environment or "
            f"run `wandb login`; {fix}"
        )
    if error := why_unreachable(host, port):
        raise HarnessError(f"logger.mode=online: {host} cannot be reached ({error}); {fix}")


if __name__ == "__main__":
    for _folder in sys.argv[1:]:
        finish(Path(_folder))
