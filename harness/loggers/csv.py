"""Curves as ``metrics.csv`` beside the record."""

from __future__ import annotations

from harness.loggers.base import CellLogger
from harness.records.cell import Cell


class CsvLogger(CellLogger):
    """Writes the curves with Lightning's CSV logger."""

    output = "metrics.csv"

    def __init__(self, cell: Cell) -> None:
        from pytorch_lightning.loggers import CSVLogger as LightningLogger

        self.lightning = LightningLogger(save_dir=cell.folder, name="", version="")
        _ = self.lightning.experiment  # created at first use; warnings of the creation are suppressed here
