"""Creates the logger that a configuration names, and applies it to a cell or to all cells of a sweep.

This module imports neither torch nor the package of a logger before a cell needs it.
"""

from __future__ import annotations

import functools
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, ParamSpec, Protocol, TypeVar

from harness.core.events import Progress
from harness.core.instantiate import locate
from harness.errors import HarnessError, describe_error
from harness.loggers.base import CellLogger
from harness.records.cell import Cell
from harness.records.parts import LoggerConfig
from harness.records.record import Record

if TYPE_CHECKING:
    from pytorch_lightning.loggers import Logger

P = ParamSpec("P")


class HasRank(Protocol):
    """What a logger needs of :class:`harness.processes.distributed.World`."""

    @property
    def first(self) -> bool: ...


W = TypeVar("W", bound=HasRank)
_current: CellLogger | None = None


def current() -> Logger | Literal[False]:
    """Lightning's logger of the cell that runs in this process; False without one."""
    return _current.lightning if _current is not None else False


def logged(run: Callable[[Cell, Progress, W], Record]) -> Callable[[Cell, Progress, W], Record]:
    """Decorate ``run(cell, progress, world)``: the logger is open during the call, on the first rank only."""

    @functools.wraps(run)
    def wrapper(cell: Cell, progress: Progress, world: W) -> Record:
        global _current
        if not world.first:
            return run(cell, progress, world)
        _current = logger = open_logger(cell)
        try:
            record = run(cell, progress, world)
        except BaseException as e:
            _suppress_errors(logger.close, describe_error(e))
            raise
        finally:
            _current = None
        _suppress_errors(logger.log_final, record)
        _suppress_errors(logger.close, None)
        return record

    return wrapper


def target_class(name: object, target: object) -> type[CellLogger]:
    """The class named by ``logger._target_``; without one, the base class, which logs nothing.

    Raises:
        HarnessError: it cannot be imported or is not a logger, or a name is given without a target.
    """
    if not target:
        if name not in (None, "", "none"):
            raise HarnessError(f"logger.name={name}: a logger is selected by its file; use logger={name}")
        return CellLogger
    found = locate(str(target))
    if not (isinstance(found, type) and issubclass(found, CellLogger)):
        raise HarnessError(f"logger._target_={target}: must be a subclass of harness.loggers.base.CellLogger")
    return found


def logger_class(cell: Cell) -> type[CellLogger] | None:
    """The class of the cell's logger; None if it logs nothing."""
    found = target_class(cell.logger.name, cell.logger.target)
    return found if found is not CellLogger and found.enabled(cell.logger) else None


def open_logger(cell: Cell) -> CellLogger:
    """Open the cell's logger, after removing the output of an earlier attempt at the cell.

    A logger that cannot be opened is reported in the cell's log file; the cell runs without it.
    """
    name = cell.logger.name
    try:
        found = logger_class(cell)
        if found is None:
            return CellLogger(cell)
        if found.output:
            shutil.rmtree(cell.folder / found.output, ignore_errors=True)
        with warnings.catch_warnings():
            # Lightning warns that the folder is not empty: it contains the cell's configuration
            warnings.simplefilter("ignore")
            return found(cell)
    except Exception as e:
        print(f"logger={name} could not be opened: {describe_error(e)}", file=sys.stderr)
        return CellLogger(cell)


def _suppress_errors(action: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
    try:
        action(*args, **kwargs)
    except Exception as e:
        print(f"the logger failed: {describe_error(e)}", file=sys.stderr)


def problems(cells: Sequence[Cell]) -> Iterator[str]:
    """Check, before anything runs, that the loggers of all cells can work.

    Yields:
        a line for each that cannot: a package is missing, or online logging has no API key or connection.
    """
    checked: list[LoggerConfig] = []
    for cell in cells:
        config = cell.logger
        found = logger_class(cell)
        if found is not None and config not in checked:
            checked.append(config)
            try:
                found.check(config)
            except HarnessError as e:
                yield str(e)


def packages(cells: Sequence[Cell]) -> list[str]:
    """Packages of the cells' loggers, for the fork server to import."""
    classes = dict.fromkeys(logger_class(cell) for cell in cells)
    return [c.package for c in classes if c is not None and c.package]


def fill_in(job: Mapping[str, object], *, sweep: str | None) -> None:
    """Set values of a job's logger that depend on this process's environment, before it is sent elsewhere.

    Raises:
        HarnessError: the environment is invalid.
    """
    config = job.get("logger")
    if isinstance(config, dict):
        target_class(config.get("name"), config.get("_target_")).fill_in(config, sweep=sweep)


def end_killed_runs(
    records: Mapping[str, Record], cells: Sequence[Cell], *, note: Callable[[str], None]
) -> None:
    """Complete the logs of cells whose process was killed, with the reasons in their records."""
    for found in dict.fromkeys(logger_class(cell) for cell in cells):
        if found is not None:
            found.end_killed_runs(records, [c for c in cells if logger_class(c) is found], note=note)
