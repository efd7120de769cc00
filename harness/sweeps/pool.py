"""Cells as processes: each runs in a child forked from a warm server, on a slot; a child that dies is one
failed cell and nothing else.

One loop in one thread starts, listens, times out and reaps. The driver that runs it stays free of torch.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import time
from collections import deque
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field
from multiprocessing import connection
from multiprocessing.connection import Connection
from typing import Any, Protocol

from harness.core.files import remove_temporary, utc_now
from harness.errors import HarnessError
from harness.processes.forkserver import handled, kill_group, memory_of, start_server
from harness.processes.slots import Slot
from harness.processes.worker import Job
from harness.processes.worker import main as child_main
from harness.records.cell import Cell
from harness.records.lease import Lease, Leases
from harness.records.lifecycle import cause_of_death, failure, make_room, previous, store
from harness.records.record import Record

PRELOAD = ("harness.processes.preload",)
TICK_SECONDS = 0.1
LOCKED_SECONDS = 1.0
MEMORY_SECONDS = 0.5
EXIT_SECONDS = 30.0


class Display(Protocol):
    """Who is told what happens; see :mod:`harness.sweeps.progress`."""

    def started(self, cell: Cell, slot: Slot) -> None: ...

    def event(self, cell: Cell, event: dict[str, Any]) -> None: ...

    def finished(self, cell: Cell, record: Record | None) -> None:
        """``record`` is None when the cell was stopped and left to be run again."""
        ...

    def note(self, text: str) -> None: ...

    def tick(self) -> None: ...


@dataclass(slots=True)
class _Child:
    cell: Cell
    slot: Slot
    process: Any
    pipe: Connection
    lease: Lease
    started: str
    clock: float
    deadline: float | None
    memory_limit: float | None = None
    error: str | None = None
    done: bool = False
    timed_out: bool = False
    cancelled: bool = False


@dataclass(slots=True)
class Pool:
    """Runs cells on slots.

    Attributes:
        slots: at least one.
        runner: ``module:function`` called as ``function(cell, progress)`` in the child; it writes the record.
        preload: modules the server imports before it forks.
        fail_fast: start no cell after one has failed.
        again: folders of cells that are run although they are complete; what is there is archived first.
        stopping: no further cell is started; ``interrupts`` counts the user's Ctrl-C.
    """

    slots: Sequence[Slot]
    display: Display
    runner: str = "harness.training.run:run_cell"
    preload: Sequence[str] = PRELOAD
    fail_fast: bool = False
    again: Set[str] = frozenset()
    stopping: bool = False
    interrupts: int = 0
    _children: list[_Child] = field(default_factory=list)
    _records: dict[str, Record] = field(default_factory=dict)
    _leases: Leases = field(default_factory=Leases)
    _noted_lease: bool = False
    _weighed: float = 0.0

    def run(self, cells: Sequence[Cell]) -> dict[str, Record]:
        """Run the cells; returns the records by folder, without those that were stopped or not started.

        A cell that another sweep is running is passed over and looked at again at the end.

        Raises:
            HarnessError: no child can be started.
        """
        ready, locked = deque(cells), deque[tuple[float, Cell]]()
        try:
            with self._signals():
                while self._children or (not self.stopping and (ready or locked)):
                    if not self.stopping:
                        self._fill(ready, locked)
                    self._listen()
                    self._watch()
                    self._reap()
                    self.display.tick()
        finally:
            self._kill_all()
        return dict(self._records)

    def _fill(self, ready: deque[Cell], locked: deque[tuple[float, Cell]]) -> None:
        busy = [id(c.slot) for c in self._children]
        for slot in (s for s in self.slots if id(s) not in busy):
            while not self.stopping and (ready or (locked and locked[0][0] <= time.monotonic())):
                cell = ready.popleft() if ready else locked.popleft()[1]
                try:
                    lease = self._lease(cell)
                    if lease is None:
                        locked.append((time.monotonic() + LOCKED_SECONDS, cell))
                    elif self._start(cell, slot=slot, lease=lease):
                        break
                except OSError as e:
                    reason = f"{cell.folder}: cannot be written ({e.strerror or e})"
                    self._finish(cell, failure(cell, status="failed", reason=reason))

    def _lease(self, cell: Cell) -> Lease | None:
        lease = self._leases.take(cell.folder)
        if lease is None and not self._noted_lease:
            self.display.note(f"{cell.title} is being run by another sweep: looked at again at the end")
            self._noted_lease = True
        return lease

    def _start(self, cell: Cell, *, slot: Slot, lease: Lease) -> bool:
        """False when another sweep has completed the cell meanwhile."""
        try:
            record = previous(cell)
            if record is not None and record.status == "complete" and str(cell.folder) not in self.again:
                lease.release()
                self._finish(cell, record)
                return False
            make_room(cell, record)
            process, pipe = self._fork(self._job(cell, slot))
        except BaseException:
            lease.release()
            raise
        now, limit = time.monotonic(), cell.config.get("timeout")
        child = _Child(cell, slot, process, pipe, lease, utc_now(), now, now + limit if limit else None)
        child.memory_limit = cell.config.get("memory_gb")
        self._children.append(child)
        self.display.started(cell, slot)
        return True

    def _job(self, cell: Cell, slot: Slot) -> Job:
        threads = (cell.config.get("trainer") or {}).get("threads") or slot.threads
        return Job(
            cell=cell,
            runner=self.runner,
            devices=slot.devices,
            threads=int(threads),
            slots=len(self.slots),
        )

    def _fork(self, job: Job) -> tuple[Any, Connection]:
        context = multiprocessing.get_context("forkserver")
        for last in (False, True):
            start_server(self.preload)
            ours, theirs = context.Pipe(duplex=True)
            process = context.Process(target=child_main, args=(theirs, job), daemon=False)
            try:
                process.start()
            except (OSError, EOFError) as e:
                ours.close()
                # a server that was killed is started anew once
                if last:
                    raise HarnessError(f"no process can be started for {job.cell.title}: {e!r}") from e
                continue
            finally:
                theirs.close()
            return process, ours
        raise AssertionError

    def _listen(self) -> None:
        """Wait for news, at most a tick, and take in all there is."""
        sources: list[Any] = [c.process.sentinel for c in self._children]
        sources += [c.pipe for c in self._children if not c.pipe.closed]
        if sources:
            connection.wait(sources, timeout=TICK_SECONDS)
        else:
            time.sleep(TICK_SECONDS)
        for child in self._children:
            self._receive(child)

    def _receive(self, child: _Child) -> None:
        try:
            while not child.pipe.closed and child.pipe.poll():
                kind, content = child.pipe.recv()
                if kind == "event":
                    self.display.event(child.cell, content)
                elif kind == "error":
                    child.error = content
                else:
                    child.done = True
                    # its record is written: what is left is leaving, and that may not take forever
                    child.deadline = time.monotonic() + EXIT_SECONDS
        except Exception:
            # cut off in the middle of a message: the child is dead or as good as
            child.pipe.close()

    def _watch(self) -> None:
        """Renew the leases, and end a cell that takes more memory than it may."""
        now = time.monotonic()
        weigh = now - self._weighed >= MEMORY_SECONDS
        self._weighed = now if weigh else self._weighed
        for child in self._children:
            child.lease.renew()
            if weigh and child.memory_limit and child.error is None and not child.done:
                used = memory_of(child.process.pid)
                if used > child.memory_limit * 1e9:
                    child.error = f"took {used / 1e9:.2f} GB, more than memory_gb={child.memory_limit:g}"
                    kill_group(child.process)

    def _reap(self) -> None:
        if self.interrupts > 1:
            # one that was being started when the signal came
            self._cancel()
        for child in list(self._children):
            if child.process.exitcode is None:
                if child.deadline is not None and time.monotonic() > child.deadline:
                    child.timed_out = not child.done
                    child.deadline = None
                    kill_group(child.process)
                continue
            self._receive(child)
            self._children.remove(child)
            self._bury(child)

    def _bury(self, child: _Child) -> None:
        """The child is gone: its workers too, its record written if it could not, its folder free."""
        kill_group(child.process)
        child.pipe.close()
        remove_temporary(child.cell.folder)
        try:
            record = previous(child.cell)
            if record is None and not child.cancelled:
                record = self._obituary(child)
                store(child.cell, record, warn=self.display.note)
        except HarnessError as e:
            record = failure(child.cell, status="failed", reason=str(e))
        finally:
            child.lease.release()
            child.process.close()
        self._finish(child.cell, record)

    def _obituary(self, child: _Child) -> Record:
        seconds = time.monotonic() - child.clock
        status, reason = "failed", child.error
        if child.timed_out:
            status, reason = "timeout", f"ran longer than timeout={child.cell.config['timeout']} seconds"
        elif reason is None:
            reason = cause_of_death(child.process.exitcode, folder=child.cell.folder)
        record = failure(child.cell, status=status, reason=reason, started=child.started, seconds=seconds)
        record.costs.device = child.slot.label
        record.costs.slots = len(self.slots)
        return record

    def _finish(self, cell: Cell, record: Record | None) -> None:
        if record is not None:
            self._records[str(cell.folder)] = record
            if self.fail_fast and record.status in ("failed", "timeout"):
                self.stopping = True
        self.display.finished(cell, record)

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Ctrl-C once: no new cells; twice, SIGTERM or SIGHUP: running ones are killed. It can be resumed."""
        with handled(self._interrupted):
            yield

    def _interrupted(self, times: int) -> None:
        self.stopping = True
        self.interrupts += times
        if self.interrupts == 1:
            self.display.note("stopping after the running cells; Ctrl-C again stops them now")
            return
        self._cancel()

    def _cancel(self) -> None:
        for child in self._children:
            child.cancelled = True
            kill_group(child.process)

    def _kill_all(self) -> None:
        for child in self._children:
            kill_group(child.process)
            child.process.join()
            child.lease.release()
        self._children.clear()
