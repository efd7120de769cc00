"""Cells as tasks of a cluster: the driver decides and keeps count, an engine (Ray, Slurm) places and starts.

A task is one cell. Its process is a supervisor that never loads torch: it takes the cell's lease and runs the
cell as the local launcher does, in a child of its own (:mod:`harness.sweeps.pool`). So what kills the cell leaves a
record with the reason, and a supervisor that serves many cells has paid for the imports once. A supervisor
that is itself lost with its machine is a failed cell, too: the driver writes its record.

The cluster's machines need the installed package and one directory that all see under the same path.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from harness.errors import HarnessError
from harness.processes.forkserver import handled
from harness.processes.slots import Slot
from harness.records import lifecycle
from harness.records.cell import Cell
from harness.records.lease import LEASE, Leases
from harness.records.record import RECORD, Record
from harness.sweeps.clusters.task import Death, Work, anchored
from harness.sweeps.pool import Display

TICK_SECONDS = 0.2
LOOK_SECONDS = 1.0
LOOK_AT = 64  # cells whose leases are looked at in one go
SHARED_SECONDS = 15.0
KILL_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Place(Slot):
    """A slot somewhere in a cluster."""

    name: str = "cluster"

    @property
    def label(self) -> str:
        return self.name


class Engine(Protocol):
    """Where tasks run.

    Attributes:
        name: for people.
        width: how many cells run at once; an estimate.
        limit: how many may be handed over at once; None = all.
    """

    name: str
    width: int
    limit: int | None

    def submit(self, works: Sequence[Work]) -> list[Any]:
        """A handle for each; HarnessError when the cluster refuses them."""
        ...

    def poll(self, handles: Sequence[Any], seconds: float) -> list[tuple[Any, Record | Death | None]]:
        """Those that have ended, waiting at most ``seconds`` for one; None = withdrawn or stopped.

        Raises:
            HarnessError: the cluster can no longer run what is left.
        """
        ...

    def withdraw(self, handles: Sequence[Any]) -> None:
        """Take back those that have not begun."""
        ...

    def kill(self, handles: Sequence[Any]) -> None:
        """End them now."""
        ...

    def close(self) -> None: ...


@dataclass(slots=True)
class _Task:
    cell: Cell
    before: int | None
    clock: float
    seen: bool = False


@dataclass(slots=True)
class ClusterPool:
    """Runs cells on an engine; :class:`harness.sweeps.pool.Pool` is its like for one machine.

    Attributes:
        engine: connected.
        others: as there.
    """

    engine: Engine
    display: Display
    runner: str
    preload: Sequence[str] = ()
    fail_fast: bool = False
    again: Set[str] = frozenset()
    stopping: bool = False
    interrupts: int = 0
    _flying: dict[Any, _Task] = field(default_factory=dict)
    _records: dict[str, Record] = field(default_factory=dict)
    _looked: float = 0.0
    _withdrawn: bool = False

    def run(self, cells: Sequence[Cell]) -> dict[str, Record]:
        """Run the cells; returns the records by folder, without those that were stopped or not started.

        Raises:
            HarnessError: the cluster refuses them, or has lost what they need.
        """
        for root in {cell.folder.parents[4] for cell in cells}:
            root.mkdir(parents=True, exist_ok=True)
        ready = deque(cells)
        try:
            with self._signals():
                while self._flying or (ready and not self.stopping):
                    self._hand_over(ready)
                    for handle, answer in self.engine.poll(list(self._flying), TICK_SECONDS):
                        self._ended(self._flying.pop(handle), answer)
                    self._look()
                    self._stop()
                    self.display.tick()
        finally:
            self._kill()
        return dict(self._records)

    def _hand_over(self, ready: deque[Cell]) -> None:
        room = len(ready) if self.engine.limit is None else self.engine.limit - len(self._flying)
        if self.stopping or not ready or room < 1:
            return
        cells = [ready.popleft() for _ in range(min(room, len(ready)))]
        works = [self._work(cell) for cell in cells]
        tasks = [_Task(cell, _changed(cell), time.monotonic()) for cell in cells]
        self._flying |= dict(zip(self.engine.submit(works), tasks, strict=True))

    def _work(self, cell: Cell) -> Work:
        trainer = cell.config.get("trainer") or {}
        return Work(
            cell=replace(cell, config=anchored(cell.config)),
            runner=self.runner,
            preload=tuple(self.preload),
            again=str(cell.folder) in self.again,
            devices="" if trainer.get("accelerator") == "cpu" else None,
            threads=trainer.get("threads"),
        )

    def _ended(self, task: _Task, answer: Record | Death | None) -> None:
        if isinstance(answer, Record):
            _wait_for(task.cell.folder / RECORD)
        elif _changed(task.cell) not in (None, task.before):
            answer = lifecycle.previous(task.cell)  # it came as far as its record
        if isinstance(answer, Death):
            if self.interrupts > 1:
                return
            answer = self._obituary(task, answer)
        if answer is None and self.stopping:
            return
        if not task.seen:
            self.display.started(task.cell, Place(None, 1, self.engine.name))
        if answer is not None:
            self._records[str(task.cell.folder)] = answer
            self.stopping |= self.fail_fast and answer.status in ("failed", "timeout")
        self.display.finished(task.cell, answer)

    def _obituary(self, task: _Task, death: Death) -> Record:
        seconds = time.monotonic() - task.clock
        record = lifecycle.failure(task.cell, status=death.status, reason=death.reason, seconds=seconds)
        record.costs.device = self.engine.name
        _drop_lease(task.cell)
        lifecycle.store(task.cell, record, warn=self.display.note)
        return record

    def _look(self) -> None:
        """Which cells have begun: those with a lease. A few are looked at, the longest waiting first."""
        now = time.monotonic()
        if now - self._looked < LOOK_SECONDS:
            return
        self._looked = now
        for task in [t for t in self._flying.values() if not t.seen][:LOOK_AT]:
            if (task.cell.folder / LEASE).exists():
                task.seen = True
                self.display.started(task.cell, Place(None, 1, self.engine.name))

    def _stop(self) -> None:
        if self.interrupts > 1:
            # not withdrawn first: what is being cancelled gently is not ended by force
            self._kill()
        elif self.stopping and not self._withdrawn:
            self._withdrawn = True
            self.engine.withdraw(list(self._flying))

    def _kill(self) -> None:
        """End what still runs, and wait until it has."""
        if not self._flying:
            return
        with contextlib.suppress(HarnessError):
            self.engine.kill(list(self._flying))
            limit = time.monotonic() + KILL_SECONDS
            while self._flying and time.monotonic() < limit:
                for handle, _ in self.engine.poll(list(self._flying), TICK_SECONDS):
                    _drop_lease(self._flying.pop(handle).cell)
        self._flying.clear()

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Ctrl-C once: nothing that has not begun; twice, SIGTERM, SIGHUP: all is ended. It resumes."""
        with handled(self._interrupted):
            yield

    def _interrupted(self, times: int) -> None:
        self.stopping = True
        self.interrupts += times
        if self.interrupts == 1:
            self.display.note("stopping after the running cells; Ctrl-C again stops them now")


def _drop_lease(cell: Cell) -> None:
    """Remove the file of a lease whose holder was killed; not one that is held, or may be elsewhere."""
    with contextlib.suppress(OSError):
        if (cell.folder / LEASE).exists() and (lease := Leases().take(cell.folder)) is not None:
            lease.release()


def _changed(cell: Cell) -> int | None:
    try:
        return (cell.folder / RECORD).stat().st_mtime_ns
    except OSError:
        return None


def _wait_for(path: Path, *, seconds: Callable[[], float] = time.monotonic) -> None:
    """A file that another machine has written can take a while to be seen here.

    Raises:
        HarnessError: it does not come: the directory is not the same on both.
    """
    limit = seconds() + SHARED_SECONDS
    while not path.exists():
        if seconds() > limit:
            raise HarnessError(
                f"{path}: a worker has written it, but it is not seen here: results_dir must be one "
                "directory that all machines share"
            )
        os.listdir(
            path.parents[1] if path.parents[1].is_dir() else "/"
        )  # makes a network file system look again
        time.sleep(TICK_SECONDS)
