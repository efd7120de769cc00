"""Curves and final scores as TensorBoard events in ``tensorboard/`` beside the record."""

from __future__ import annotations

from harness.loggers.base import CellLogger, final_values
from harness.records.cell import Cell
from harness.records.record import Record


class TensorBoardLogger(CellLogger):
    """Writes TensorBoard events with Lightning's logger."""

    package = "tensorboard"
    output = "tensorboard"

    def __init__(self, cell: Cell) -> None:
        from pytorch_lightning.loggers import TensorBoardLogger as LightningLogger

        self._batch_size = cell.trainer.batch_size
        self._logger = LightningLogger(save_dir=cell.folder, name="", version=self.output)
        self.lightning = self._logger

    def log_final(self, record: Record) -> None:
        numbers = {k: v for k, v in final_values(record).items() if isinstance(v, int | float)}
        steps = (record.epochs or 0) * -(-record.n_train // self._batch_size)  # the x axis of the curves
        self._logger.log_metrics({f"final/{k}": v for k, v in numbers.items()}, step=steps)

    def close(self, error: str | None) -> None:
        if error is not None:
            self._logger.experiment.add_text("reason", error)
        self._logger.experiment.close()
