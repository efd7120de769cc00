"""Cells that are killed, and a custom logger, for the tests of loggers; worker processes import this."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from harness.loggers import factory
from harness.loggers.base import CellLogger
from harness.records.cell import Cell
from harness.records.record import Record, write_config


class FirstRank:
    first = True


def killed(cell: Cell, progress: Any) -> Record:
    """Log three steps, then be killed."""
    write_config(cell.folder, cell.resolved)
    return factory.logged(_killed)(cell, progress, FirstRank())


def _killed(cell: Cell, progress: Any, world: Any) -> Record:
    for step in (1, 2, 3):
        factory.current().log_metrics({"loss": 1.0 / step}, step=step)
    limit = time.monotonic() + 20
    from harness.loggers.wandb_files import read_curve

    while time.monotonic() < limit:  # until the points are on disk
        if any(len(read_curve(f)) == 3 for f in cell.folder.glob("wandb/*run-*/run-*.wandb")):
            break
        time.sleep(0.2)
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def killed_at_once(cell: Cell, progress: Any) -> Record:
    """Be killed before the logger is opened."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


class LineLogger(CellLogger):
    """A custom logger: it writes the final status, and a line when it is closed."""

    output = "lines.txt"

    def __init__(self, cell: Cell) -> None:
        self.file = cell.folder / self.output

    def log_final(self, record: Record) -> None:
        self.file.write_text(f"{record.status}\n")

    def close(self, error: str | None) -> None:
        with self.file.open("a") as file:
            file.write("closed\n" if error is None else f"{error}\n")
