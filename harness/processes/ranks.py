"""One cell on several devices: one rank per device, each in its own process, supervised by the cell's
process.

The ranks are forked from the process that the pool gave to the cell, before that does anything else. So they
have paid for their imports, are in the cell's process group (what ends the cell ends them, and their memory
is the cell's), see its CUDA_VISIBLE_DEVICES and log, and no command line is run again. Where a cell is run in
a process that has been at work already, they come from the warm server instead.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import connection
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

from harness.core.events import Progress
from harness.errors import HarnessError, describe_error
from harness.processes import worker
from harness.processes.forkserver import start_server
from harness.records.cell import Cell
from harness.records.lifecycle import describe_exit
from harness.records.record import Record, read_record

RANK_RUNNER = "harness.training.run:run_here"
PRELOAD = ("harness.processes.preload",)
GRACE_SECONDS = 2.0
"""Seconds to wait for the error of the rank that failed first, which explains the errors of its peers."""


class RankedTrainer(Protocol):
    """On what ranks run; see :class:`harness.records.parts.TrainerConfig`."""

    @property
    def devices(self) -> int: ...

    @property
    def accelerator(self) -> str: ...

    @property
    def threads(self) -> int | None: ...


class Ranked(Protocol):
    """What ranks are started for: a cell, or anything else with ``trainer.devices``, ``accelerator`` and
    ``threads``, and a folder whose ``log.txt`` may say why a rank died."""

    @property
    def trainer(self) -> RankedTrainer: ...

    @property
    def folder(self) -> Path: ...


@dataclass(frozen=True, slots=True)
class Seat:
    """The specification of a rank, sent to its process.

    Attributes:
        runner: ``module:function`` called as ``function(cell, progress, world)``.
        rank, size: which of how many.
        port: where they meet.
        listener: the bound socket, for the first rank.
        threads: CPU threads of this rank; None = as they are.
    """

    runner: str
    rank: int
    size: int
    port: int
    listener: socket.socket | None
    threads: int | None


@dataclass(slots=True)
class _Rank:
    number: int
    process: Any
    pipe: Connection
    error: str | None = None
    lost_another: bool = False

    exitcode: int | None = None

    @property
    def failed(self) -> bool:
        return self.error is not None or self.exitcode not in (None, 0)


def run_ranks(cell: Cell, progress: Progress, *, runner: str = RANK_RUNNER) -> Record:
    """Run ``cell`` on ``trainer.devices`` ranks; the first writes its record.

    Raises:
        HarnessError: a rank failed or died: its error's last lines. The others have been ended.
    """
    on_ranks(cell, progress, runner=runner)
    return read_record(cell.folder)


def on_ranks(job: Ranked, progress: Progress, *, runner: str) -> None:
    """Run ``runner`` on as many ranks as ``job.trainer.devices`` says.

    Raises:
        HarnessError: as :func:`run_ranks`.
    """
    size = job.trainer.devices
    with _started(job, size=size, runner=runner) as ranks:
        _watch(ranks, job, progress)


@contextlib.contextmanager
def _started(cell: Ranked, *, size: int, runner: str) -> Iterator[list[_Rank]]:
    context: Any = multiprocessing.get_context("fork" if worker.forkable else "forkserver")
    if not worker.forkable:
        start_server(PRELOAD)
    ranks: list[_Rank] = []
    try:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            for n in range(size):
                seat = Seat(
                    runner=runner,
                    rank=n,
                    size=size,
                    port=listener.getsockname()[1],
                    listener=listener if n == 0 else None,
                    threads=_threads(cell, size),
                )
                ranks.append(_start(context, cell, seat))
        yield ranks
    finally:
        for rank in ranks:
            rank.process.kill()
        for rank in ranks:
            rank.process.join()
            rank.pipe.close()


def _start(context: Any, cell: Ranked, seat: Seat) -> _Rank:
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=rank_main, args=(theirs, cell, seat), name=f"rank {seat.rank}")
    with warnings.catch_warnings():
        # Python 3.12+ warns about forking with threads; the only thread here waits in a read
        warnings.simplefilter("ignore", DeprecationWarning)
        process.start()
    theirs.close()
    return _Rank(seat.rank, process, ours)


def _threads(cell: Ranked, size: int) -> int | None:
    """Divide the cell's threads among its ranks."""
    threads = cell.trainer.threads or os.environ.get("OMP_NUM_THREADS", "")
    return max(1, int(threads) // size) if str(threads).isdecimal() else None


def _watch(ranks: Sequence[_Rank], cell: Ranked, progress: Progress) -> None:
    """Relay rank 0's progress until all ranks have ended.

    Raises:
        HarnessError: as soon as one has failed and it is known why.
    """
    limit: float | None = None
    while True:
        for rank in ranks:
            # exit code first: messages sent before the exit are then still received
            rank.exitcode = rank.process.exitcode
            _receive(rank, progress)
        pipes = [r.pipe for r in ranks if not r.pipe.closed]
        running = [r.process.sentinel for r in ranks if r.exitcode is None]
        failed = [r for r in ranks if r.failed]
        if failed:
            limit = limit or time.monotonic() + GRACE_SECONDS
            if time.monotonic() > limit or not all(r.lost_another for r in failed):
                raise HarnessError(_cause(failed, len(ranks), cell))
        elif not running and not pipes:
            return
        connection.wait([*pipes, *running], timeout=GRACE_SECONDS / 10 if failed else None)


def _receive(rank: _Rank, progress: Progress) -> None:
    try:
        while not rank.pipe.closed and rank.pipe.poll():
            kind, *content = rank.pipe.recv()
            if kind == "event":
                progress(content[0])
            else:
                rank.error, rank.lost_another = content
    except Exception:
        # closed, or truncated within a message: the exit code tells which
        rank.pipe.close()


def _cause(failed: Sequence[_Rank], size: int, cell: Ranked) -> str:
    """Describe the failure of the rank that failed first, or of any if all only lost their peers."""
    first = min(failed, key=lambda r: (r.lost_another, r.number))
    if first.error is not None:
        return first.error
    return f"rank {first.number} of {size}: {describe_exit(first.exitcode or 0, folder=cell.folder)}"


def rank_main(pipe: Connection, cell: Ranked, seat: Seat) -> None:
    """Run one rank and exit the process without cleanup, which could block on the process group."""
    threading.Thread(target=_die_with_parent, daemon=True).start()
    code = 1
    try:
        _run(pipe, cell, seat)
        code = 0
    except BaseException as error:
        from harness.processes.distributed import is_peer_error

        traceback.print_exc()
        lost = is_peer_error(error)
        message = describe_error(error)
        if not isinstance(error, HarnessError):  # an error in the cell is the same on every rank
            message = f"rank {seat.rank} of {seat.size}: {message}"
        with contextlib.suppress(OSError):
            pipe.send(("error", message, lost))
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _run(pipe: Connection, cell: Ranked, seat: Seat) -> None:
    import torch

    from harness.processes.distributed import join

    for name in worker.DISTRIBUTED:
        os.environ.pop(name, None)
    if seat.threads is not None:
        for name in worker.THREAD_VARIABLES:
            os.environ[name] = str(seat.threads)
        torch.set_num_threads(seat.threads)
    world = join(
        seat.rank,
        seat.size,
        port=seat.port,
        listener=seat.listener.detach() if seat.listener is not None else None,
        accelerator=cell.trainer.accelerator,
    )

    def tell(event: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):
            pipe.send(("event", event))

    worker.load_function(seat.runner)(cell, tell if world.first else _silent, world)
    world.close()


def _silent(event: dict[str, Any]) -> None:
    """Ignore progress of ranks other than 0."""


def _die_with_parent() -> None:
    """Exit when the cell's process ends, for whatever reason."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGKILL)
