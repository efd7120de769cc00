"""Runs cells on the slots of this machine, each in a worker process forked from a preloaded server.

A worker that dies is one failed cell and affects no other. A single loop in a single thread starts workers,
receives their messages, enforces limits and collects them. The driver process stays free of torch.
"""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing import connection
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from harness.core.files import remove_temporary, utc_now
from harness.errors import HarnessError
from harness.processes.forkserver import (
    discard_server,
    kill_group,
    kill_server,
    memory_of,
    start_server,
)
from harness.processes.slots import DeviceSlot
from harness.processes.worker import WorkerSpec
from harness.processes.worker import main as worker_main
from harness.records.cell import Cell
from harness.records.lease import Lease, Leases
from harness.records.lifecycle import (
    archive_previous,
    describe_exit,
    failure,
    load_record_or_none,
    write_record_or_warn,
)
from harness.records.record import Record
from harness.records.stored_files import LeavesResults, check_contained
from harness.sweeps.base_pool import BasePool

PRELOAD = ("harness.processes.preload",)
TICK_SECONDS = 0.1
RETRY_LEASE_SECONDS = 1.0
MEMORY_SECONDS = 0.5
EXIT_SECONDS = 30.0
START_SECONDS = 180.0
"""Maximum time for the server to import its modules and to fork a worker."""
MAX_STARTS = 6
"""Starts of the server for one worker."""


class StoppedWhileStarting(Exception):
    """A signal arrived before a worker had started."""


@dataclass(slots=True)
class _RunningCell:
    cell: Cell
    slot: DeviceSlot
    process: BaseProcess
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


@dataclass(slots=True, kw_only=True)
class LocalPool(BasePool):
    """Runs cells on slots of this machine.

    A cell that another sweep is running is deferred, and checked again at the end.

    Attributes:
        slots: at least one.
        others: see :class:`harness.sweeps.base_pool.BasePool`.
    """

    slots: Sequence[DeviceSlot]
    preload: Sequence[str] = PRELOAD
    _ready: deque[Cell] = field(default_factory=deque)
    _locked: deque[tuple[float, Cell]] = field(default_factory=deque)
    _running: list[_RunningCell] = field(default_factory=list)
    _leases: Leases = field(default_factory=Leases)
    _noted_lease: bool = False
    _memory_checked: float = 0.0
    _starting: bool = False

    def _begin(self, cells: Sequence[Cell]) -> None:
        self._ready, self._locked = deque(cells), deque()

    def _unfinished(self) -> bool:
        return bool(self._running) or (not self.stopping and bool(self._ready or self._locked))

    def _step(self) -> None:
        if not self.stopping:
            self._fill_slots()
        self._wait_for_messages()
        self._enforce_memory_limits()
        self._collect_exited()

    def _fill_slots(self) -> None:
        busy = [id(w.slot) for w in self._running]
        for slot in (s for s in self.slots if id(s) not in busy):
            while not self.stopping and (cell := self._next_cell()) is not None:
                try:
                    lease = self._take_lease(cell)
                    if lease is None:
                        self._locked.append((time.monotonic() + RETRY_LEASE_SECONDS, cell))
                    elif self._start(cell, slot=slot, lease=lease):
                        break
                except (OSError, LeavesResults) as e:
                    reason = str(e)
                    if isinstance(e, OSError):
                        reason = f"{e.filename or cell.folder}: cannot be written ({e.strerror or e})"
                    self._finish(cell, failure(cell, status="failed", reason=reason))

    def _next_cell(self) -> Cell | None:
        """A queued cell, else one that another sweep was running when it was last checked."""
        if self._ready:
            return self._ready.popleft()
        if self._locked and self._locked[0][0] <= time.monotonic():
            return self._locked.popleft()[1]
        return None

    def _take_lease(self, cell: Cell) -> Lease | None:
        check_contained(cell.folder)
        lease = self._leases.take(cell.folder)
        if lease is None and not self._noted_lease:
            self.display.note(f"{cell.title} is being run by another sweep; it is checked again at the end")
            self._noted_lease = True
        return lease

    def _start(self, cell: Cell, *, slot: DeviceSlot, lease: Lease) -> bool:
        """Start a worker; False if another sweep has completed the cell in the meantime, or a signal came."""
        try:
            record = load_record_or_none(cell)
            if (
                record is not None
                and record.status == "complete"
                and str(cell.folder) not in self.force_rerun
            ):
                lease.release()
                self._finish(cell, record)
                return False
            archive_previous(cell, record)
            process, pipe = self._fork(self._worker_spec(cell, slot))
        except StoppedWhileStarting:
            lease.release()
            return False
        except BaseException:
            lease.release()
            raise
        now, limit = time.monotonic(), cell.options.timeout
        worker = _RunningCell(
            cell, slot, process, pipe, lease, utc_now(), now, now + limit if limit else None
        )
        worker.memory_limit = cell.options.memory_gb
        self._running.append(worker)
        self.display.started(cell, slot)
        return True

    def _worker_spec(self, cell: Cell, slot: DeviceSlot) -> WorkerSpec:
        return WorkerSpec(
            cell=cell,
            runner=self.runner,
            devices=slot.devices,
            threads=cell.trainer.threads,
            io_threads=slot.threads,
            slots=len(self.slots),
        )

    def _fork(self, spec: WorkerSpec) -> tuple[BaseProcess, Connection]:
        """Fork a worker; a server that was killed, or that does not answer, is started again.

        Raises:
            HarnessError: no process can be started.
            StoppedWhileStarting: a signal asked to stop.
        """
        reason = ""
        for _ in range(MAX_STARTS):
            if self._stops_start():
                raise StoppedWhileStarting
            try:
                return self._fork_once(spec)
            except (OSError, EOFError, RuntimeError) as e:
                reason = str(e) or type(e).__name__
                discard_server()
        raise HarnessError(
            f"cannot start a process for {spec.cell.title}: the server that forks the workers ended "
            f"{MAX_STARTS} times ({reason}); check the memory and the limit of processes (ulimit -u)"
        )

    def _fork_once(self, spec: WorkerSpec) -> tuple[BaseProcess, Connection]:
        context = multiprocessing.get_context("forkserver")
        self._starting = True
        # the server answers when it has imported its modules; one that hangs is killed
        watchdog = threading.Timer(START_SECONDS, kill_server)
        watchdog.daemon = True
        driver_end = worker_end = None
        try:
            watchdog.start()
            start_server(self.preload)
            driver_end, worker_end = context.Pipe(duplex=True)
            process = context.Process(target=worker_main, args=(worker_end, spec), daemon=False)
            process.start()
        except BaseException:
            if driver_end is not None:
                driver_end.close()
            raise
        finally:
            self._starting = False
            watchdog.cancel()
            if worker_end is not None:
                worker_end.close()
        return process, driver_end

    def _stops_start(self) -> bool:
        """Whether a worker that has not started is given up: nothing runs that the first Ctrl-C waits for."""
        return self.interrupts > 1 or (self.interrupts > 0 and not self._running)

    def _interrupted(self, weight: int) -> None:
        BasePool._interrupted(self, weight)
        if self._starting and self._stops_start():
            kill_server()

    def _wait_for_messages(self) -> None:
        """Wait for messages or exits, at most one tick, and receive all messages."""
        sources: list[Connection | int] = [w.process.sentinel for w in self._running]
        sources += [w.pipe for w in self._running if not w.pipe.closed]
        if sources:
            connection.wait(sources, timeout=TICK_SECONDS)
        else:
            time.sleep(TICK_SECONDS)
        for worker in self._running:
            self._receive(worker)

    def _receive(self, worker: _RunningCell) -> None:
        try:
            while not worker.pipe.closed and worker.pipe.poll():
                kind, content = worker.pipe.recv()
                if kind == "event":
                    self.display.event(worker.cell, content)
                elif kind == "error":
                    worker.error = content
                else:
                    worker.done = True
                    # the record is written: only the exit is left, and it must not take forever
                    worker.deadline = time.monotonic() + EXIT_SECONDS
        except Exception:
            # a truncated message: the worker is dead or dying
            worker.pipe.close()

    def _enforce_memory_limits(self) -> None:
        """Renew the leases, and kill cells that use more memory than their limit."""
        now = time.monotonic()
        check = now - self._memory_checked >= MEMORY_SECONDS
        self._memory_checked = now if check else self._memory_checked
        for worker in self._running:
            worker.lease.renew()
            if check and worker.memory_limit and worker.error is None and not worker.done:
                used = memory_of(worker.process.pid or 0)
                if used > worker.memory_limit * 1e9:
                    worker.error = f"used {used / 1e9:.2f} GB, more than memory_gb={worker.memory_limit:g}"
                    kill_group(worker.process)

    def _collect_exited(self) -> None:
        if self.interrupts > 1:
            # includes a worker that was being started when the signal arrived
            self._cancel_running()
        for worker in list(self._running):
            if worker.process.exitcode is None:
                if worker.deadline is not None and time.monotonic() > worker.deadline:
                    worker.timed_out = not worker.done
                    worker.deadline = None
                    kill_group(worker.process)
                continue
            self._receive(worker)
            self._running.remove(worker)
            self._finalize(worker)

    def _finalize(self, worker: _RunningCell) -> None:
        """Clean up after an exited worker, and write its record if it could not."""
        kill_group(worker.process)
        worker.pipe.close()
        remove_temporary(worker.cell.folder)
        try:
            record = load_record_or_none(worker.cell)
            if record is None and not worker.cancelled:
                record = self._failure_record(worker)
                write_record_or_warn(worker.cell, record, warn=self.display.note)
        except HarnessError as e:
            record = failure(worker.cell, status="failed", reason=str(e))
        finally:
            worker.lease.release()
            worker.process.close()
        self._finish(worker.cell, record)

    def _failure_record(self, worker: _RunningCell) -> Record:
        seconds = time.monotonic() - worker.clock
        status, reason = "failed", worker.error
        if worker.timed_out:
            status, reason = "timeout", f"ran longer than timeout={worker.cell.options.timeout} seconds"
        elif reason is None:
            exitcode = worker.process.exitcode
            reason = describe_exit(0 if exitcode is None else exitcode, folder=worker.cell.folder)
        record = failure(worker.cell, status=status, reason=reason, started=worker.started, seconds=seconds)
        record.costs.device = worker.slot.label
        record.costs.slots = len(self.slots)
        return record

    def _cancel_running(self) -> None:
        for worker in self._running:
            worker.cancelled = True
            kill_group(worker.process)

    def _kill_all(self) -> None:
        for worker in self._running:
            kill_group(worker.process)
            worker.process.join()
            worker.lease.release()
        self._running.clear()
