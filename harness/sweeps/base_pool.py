"""Code shared by the pool of this machine and the pool of a cluster: the loop, interrupts and outcomes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Protocol

from harness.processes.forkserver import handle_interrupts
from harness.processes.slots import DeviceSlot
from harness.records.cell import Cell
from harness.records.record import Record


class Display(Protocol):
    """Shows the progress of a sweep; see :mod:`harness.sweeps.progress`."""

    def started(self, cell: Cell, slot: DeviceSlot) -> None: ...

    def event(self, cell: Cell, event: Mapping[str, object]) -> None: ...

    def finished(self, cell: Cell, record: Record | None) -> None:
        """``record`` is None if the cell was stopped; the next sweep runs it again."""
        ...

    def note(self, text: str) -> None: ...

    def tick(self) -> None: ...


@dataclass(slots=True, kw_only=True)
class BasePool(ABC):
    """Runs cells, each isolated in its own process.

    Attributes:
        display: is notified of every change.
        runner: ``module:function``, called as ``function(cell, progress)`` in the worker; writes the record.
        preload: modules that the fork server imports before it forks.
        fail_fast: start no cell after one has failed.
        force_rerun: folders of complete cells to run anyway; their earlier files are archived first.
        stopping: no further cell is started.
        interrupts: weight of the signals received: Ctrl-C counts 1, SIGTERM and SIGHUP count 2.
    """

    display: Display
    runner: str
    preload: Sequence[str] = ()
    fail_fast: bool = False
    force_rerun: Set[str] = frozenset()
    stopping: bool = False
    interrupts: int = 0
    _records: dict[str, Record] = field(default_factory=dict)

    def run(self, cells: Sequence[Cell]) -> dict[str, Record]:
        """Run the cells and return the records by folder, without cells that were stopped or not started.

        Raises:
            HarnessError: no cell can be started any more.
        """
        self._begin(cells)
        try:
            with handle_interrupts(self._interrupted):
                while self._unfinished():
                    self._step()
                    self.display.tick()
        finally:
            self._kill_all()
        return dict(self._records)

    @abstractmethod
    def _begin(self, cells: Sequence[Cell]) -> None:
        """Queue the cells."""

    @abstractmethod
    def _unfinished(self) -> bool:
        """Whether a cell is running or can still be started."""

    @abstractmethod
    def _step(self) -> None:
        """Start what can be started, and process what has happened since the last step."""

    @abstractmethod
    def _kill_all(self) -> None:
        """Kill the cells that are still running."""

    @abstractmethod
    def _cancel_running(self) -> None:
        """React to the second Ctrl-C; called from the signal handler, so it must not block."""

    def _finish(self, cell: Cell, record: Record | None) -> None:
        if record is not None:
            self._records[str(cell.folder)] = record
            if self.fail_fast and record.status in ("failed", "timeout"):
                self.stopping = True
        self.display.finished(cell, record)

    def _interrupted(self, weight: int) -> None:
        """First Ctrl-C: start no new cells. Second one, SIGTERM or SIGHUP: kill running ones."""
        self.stopping = True
        self.interrupts += weight
        if self.interrupts == 1:
            self.display.note("stopping after the running cells; press Ctrl-C again to stop them now")
            return
        self._cancel_running()
