"""Runs cells on a cluster: the driver decides which cells run; an engine (Ray, Slurm) schedules them.

A task is one cell. Its process is a supervisor that never loads torch: it takes the cell's lease and runs the
cell in a worker process, as on a single machine (:mod:`harness.sweeps.pool`). So whatever kills the worker, a
record with the reason is written, and a supervisor that runs many cells imports the libraries only once. If a
supervisor is lost with its machine, the cell has failed, too: the driver writes its record.

All machines of the cluster need the installed package and one shared directory under the same path.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from harness.errors import HarnessError
from harness.processes.slots import DeviceSlot
from harness.records import lifecycle
from harness.records.cell import Cell
from harness.records.lease import LEASE, Leases
from harness.records.record import RECORD, Record
from harness.sweeps.base_pool import BasePool
from harness.sweeps.clusters.task import CellTask, TaskFailure

TICK_SECONDS = 0.2
LEASE_CHECK_SECONDS = 1.0
MAX_LEASE_CHECKS = 64  # cells whose leases are checked at a time
SHARED_SECONDS = 15.0
KILL_SECONDS = 15.0
Handle = TypeVar("Handle", bound=Hashable)
"""What an engine identifies a submitted task by."""


@dataclass(frozen=True, slots=True)
class ClusterSlot(DeviceSlot):
    """A slot on some machine of a cluster."""

    name: str = "cluster"

    @property
    def label(self) -> str:
        return self.name


class Engine(Protocol[Handle]):
    """Runs tasks.

    Attributes:
        name: shown to users.
        width: an estimate of how many cells run at the same time.
        limit: maximum number of tasks submitted at a time; None = no limit.
    """

    name: str
    width: int
    limit: int | None

    def submit(self, tasks: Sequence[CellTask]) -> list[Handle]:
        """Submit tasks and return a handle for each; HarnessError if the cluster rejects them."""
        ...

    def poll(
        self, handles: Sequence[Handle], seconds: float
    ) -> list[tuple[Handle, Record | TaskFailure | None]]:
        """Return the tasks that have ended, after waiting at most ``seconds`` for one; None = cancelled.

        Raises:
            HarnessError: the cluster can no longer run the remaining tasks.
        """
        ...

    def withdraw(self, handles: Sequence[Handle]) -> None:
        """Cancel tasks that have not started."""
        ...

    def kill(self, handles: Sequence[Handle]) -> None:
        """Kill tasks immediately."""
        ...

    def close(self) -> None: ...


AnyEngine = Engine[Any]
"""An engine whose handles are not of interest."""


@dataclass(slots=True)
class _SubmittedCell:
    """A cell in the cluster, with the modification time of its earlier record and its submission time."""

    cell: Cell
    record_time: int | None
    clock: float
    started: bool = False


@dataclass(slots=True, kw_only=True)
class ClusterPool(BasePool, Generic[Handle]):
    """Runs cells on an engine; the counterpart of :class:`harness.sweeps.pool.LocalPool`.

    Attributes:
        engine: connected.
        others: see :class:`harness.sweeps.base_pool.BasePool`.
    """

    engine: Engine[Handle]
    _ready: deque[Cell] = field(default_factory=deque)
    _submitted: dict[Handle, _SubmittedCell] = field(default_factory=dict)
    _leases_checked: float = 0.0
    _withdrawn: bool = False

    def _begin(self, cells: Sequence[Cell]) -> None:
        for root in {cell.results_dir for cell in cells}:
            root.mkdir(parents=True, exist_ok=True)
        self._ready = deque(cells)

    def _unfinished(self) -> bool:
        return bool(self._submitted) or (bool(self._ready) and not self.stopping)

    def _step(self) -> None:
        self._submit_ready()
        for handle, result in self.engine.poll(list(self._submitted), TICK_SECONDS):
            self._finalize(self._submitted.pop(handle), result)
        self._detect_started()
        self._stop_if_requested()

    def _submit_ready(self) -> None:
        room = len(self._ready) if self.engine.limit is None else self.engine.limit - len(self._submitted)
        if self.stopping or not self._ready or room < 1:
            return
        cells = [self._ready.popleft() for _ in range(min(room, len(self._ready)))]
        tasks = [self._task(cell) for cell in cells]
        submitted = [_SubmittedCell(cell, _record_time(cell), time.monotonic()) for cell in cells]
        self._submitted |= dict(zip(self.engine.submit(tasks), submitted, strict=True))

    def _task(self, cell: Cell) -> CellTask:
        return CellTask(
            cell=cell,
            runner=self.runner,
            preload=tuple(self.preload),
            force_rerun=str(cell.folder) in self.force_rerun,
            devices="" if cell.trainer.accelerator == "cpu" else None,
        )

    def _finalize(self, task: _SubmittedCell, result: Record | TaskFailure | None) -> None:
        if isinstance(result, Record):
            _wait_for_file(task.cell.folder / RECORD)
        elif _record_time(task.cell) not in (None, task.record_time):
            result = lifecycle.load_record_or_none(task.cell)  # the record was written before the task died
        if isinstance(result, TaskFailure):
            if self.interrupts > 1:
                return
            result = self._failure_record(task, result)
        if result is None and self.stopping:
            return
        if not task.started:
            self.display.started(task.cell, ClusterSlot(None, 1, self.engine.name))
        self._finish(task.cell, result)

    def _failure_record(self, task: _SubmittedCell, failure: TaskFailure) -> Record:
        seconds = time.monotonic() - task.clock
        record = lifecycle.failure(task.cell, status=failure.status, reason=failure.reason, seconds=seconds)
        record.costs.device = self.engine.name
        _remove_stale_lease(task.cell)
        lifecycle.write_record_or_warn(task.cell, record, warn=self.display.note)
        return record

    def _detect_started(self) -> None:
        """Find cells that have started by their leases: a few at a time, the longest waiting first."""
        now = time.monotonic()
        if now - self._leases_checked < LEASE_CHECK_SECONDS:
            return
        self._leases_checked = now
        for task in [t for t in self._submitted.values() if not t.started][:MAX_LEASE_CHECKS]:
            if (task.cell.folder / LEASE).exists():
                task.started = True
                self.display.started(task.cell, ClusterSlot(None, 1, self.engine.name))

    def _stop_if_requested(self) -> None:
        if self.interrupts > 1:
            # do not withdraw first: Ray does not kill a task by force while it is being cancelled gently
            self._kill_all()
        elif self.stopping and not self._withdrawn:
            self._withdrawn = True
            self.engine.withdraw(list(self._submitted))

    def _cancel_running(self) -> None:
        """No-op: waiting for the cluster is left to the next step."""

    def _kill_all(self) -> None:
        """Kill the submitted tasks, and wait until they have ended."""
        if not self._submitted:
            return
        with contextlib.suppress(HarnessError):
            self.engine.kill(list(self._submitted))
            limit = time.monotonic() + KILL_SECONDS
            while self._submitted and time.monotonic() < limit:
                for handle, _ in self.engine.poll(list(self._submitted), TICK_SECONDS):
                    _remove_stale_lease(self._submitted.pop(handle).cell)
        self._submitted.clear()


def _remove_stale_lease(cell: Cell) -> None:
    """Remove the lease file of a killed holder; not a lease that is held, or may be held elsewhere."""
    with contextlib.suppress(OSError):
        if (cell.folder / LEASE).exists() and (lease := Leases().take(cell.folder)) is not None:
            lease.release()


def _record_time(cell: Cell) -> int | None:
    try:
        return (cell.folder / RECORD).stat().st_mtime_ns
    except OSError:
        return None


def _wait_for_file(path: Path) -> None:
    """Wait for a file written on another machine: network file systems show it with a delay.

    Raises:
        HarnessError: it does not appear: the two machines do not share the directory.
    """
    limit = time.monotonic() + SHARED_SECONDS
    while not path.exists():
        if time.monotonic() > limit:
            raise HarnessError(
                f"{path}: written by a worker, but not visible on this machine: results_dir must be one "
                "directory shared by all machines"
            )
        # listing a parent folder makes a network file system refresh its cache
        os.listdir(path.parents[1] if path.parents[1].is_dir() else "/")
        time.sleep(TICK_SECONDS)
