"""The interface of a logger: a class named by ``_target_`` in ``conf/logger/<name>.yaml``.

The record is the result. A log is an additional copy of the curves, so a logger that fails never fails its
cell. Importing a logger's module must be cheap: the driver of a sweep imports it to check the configuration.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, ClassVar, Literal

from harness.errors import HarnessError
from harness.records.cell import Cell
from harness.records.parts import LoggerConfig
from harness.records.record import Record

if TYPE_CHECKING:
    from pytorch_lightning.loggers import Logger


class CellLogger:
    """The logger of one cell, open while the cell runs; this base class logs nothing.

    Attributes:
        package: an importable package that must be installed; the extra of the same name installs it.
        output: file or folder that the logger writes beside the record; removed before the cell starts.
        lightning: the logger for Lightning's trainer, False without one.
    """

    package: ClassVar[str | None] = None
    output: ClassVar[str] = ""
    lightning: Logger | Literal[False] = False

    def __init__(self, cell: Cell) -> None:
        """Open the log. An exception is printed to the log file, and the cell runs without a logger."""

    @classmethod
    def enabled(cls, config: LoggerConfig) -> bool:
        """Whether this logger writes anything under this configuration."""
        return True

    @classmethod
    def check(cls, config: LoggerConfig) -> None:
        """Check, before anything runs, that the logger can work.

        Raises:
            HarnessError: a package is missing.
        """
        if cls.package and importlib.util.find_spec(cls.package) is None:
            raise HarnessError(
                f"logger={config.name}: the package {cls.package} is missing; "
                f"pip install 'transfer-harness[{cls.package}]'"
            )

    @classmethod
    def fill_in(cls, config: MutableMapping[str, object], *, sweep: str | None) -> None:
        """Set values that depend on the environment of the driver, before the job is sent to a worker."""

    @classmethod
    def end_killed_runs(
        cls, records: Mapping[str, Record], cells: Sequence[Cell], *, note: Callable[[str], None]
    ) -> None:
        """Complete the logs of cells whose process was killed before it could close them."""

    def log_final(self, record: Record) -> None:
        """Log the final scores and costs."""

    def close(self, error: str | None) -> None:
        """Close the log of a complete cell, or of one that failed with ``error``."""


def final_values(record: Record) -> dict[str, str | int | float]:
    """Scores, costs and coverage under names such as ``test/accuracy``, and facts about the cell."""
    out: dict[str, object] = {"status": record.status, "seed": record.seed, "metric": record.metric}
    for prefix, values in (("dev", record.dev), ("test", record.test), ("coverage", record.coverage)):
        out |= {f"{prefix}/{k}": v for k, v in values.items()}
    out |= {f"cost/{k}": v for k, v in asdict(record.costs).items() if k != "host"}
    out["chosen_epoch"] = record.epoch  # "epoch" is the x axis of the curves
    for key in ("epochs", "parameters", "trained_parameters", "n_train", "n_dev", "n_test", "partial"):
        out[key] = getattr(record, key)
    if record.reason:
        out["reason"] = record.reason
    return {k: v for k, v in out.items() if isinstance(v, str | int | float)}
