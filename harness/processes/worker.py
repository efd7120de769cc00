"""What runs in the process of one cell: its own session, its own log, and an end when the driver ends."""

from __future__ import annotations

import contextlib
import errno
import faulthandler
import importlib
import os
import signal
import sys
import threading
import time
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from harness.errors import HarnessError
from harness.records.cell import Cell
from harness.records.record import LOG

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS", "POLARS_MAX_THREADS")
DISTRIBUTED = (
    "LOCAL_RANK", "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK", "MASTER_ADDR",
    "MASTER_PORT",
)  # fmt: skip
"""What a launcher of processes leaves in the environment: a cell is nobody's rank."""
EVENT_SECONDS = 0.1
forkable = False
"""True in a process that has done nothing but become a cell's: what it forks is sound."""


@dataclass(frozen=True, slots=True)
class Job:
    """What a child is told.

    Attributes:
        runner: ``module:function`` called as ``function(cell, progress)``.
        devices: CUDA_VISIBLE_DEVICES, None = as it is.
        threads: CPU threads.
        slots: how many cells may run beside each other on this machine; the record says so.
    """

    cell: Cell
    runner: str
    devices: str | None
    threads: int
    slots: int = 1


class Reporter:
    """Sends progress events to the driver, at most one every 0.1 s unless more than a count changed."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._last: dict[str, Any] = {}
        self._sent = 0.0

    def __call__(self, event: dict[str, Any]) -> None:
        now = time.monotonic()
        same = all(event.get(k) == self._last.get(k) for k in ("phase", "epoch", "score", "message"))
        if same and now - self._sent < EVENT_SECONDS and event.get("done") != event.get("total"):
            return
        self._last, self._sent = dict(event), now
        # a driver that is gone is the watcher's business
        with contextlib.suppress(OSError):
            self._pipe.send(("event", dict(event)))


def main(pipe: Connection, job: Job) -> None:
    """Run one cell. A failure's traceback goes to the log, its last lines to the driver; exit code 1 then."""
    global forkable
    _own_session()
    try:
        _redirect_output(job.cell.folder / LOG)
        _set_environment(job)
        threading.Thread(target=_die_with_driver, args=(pipe,), daemon=True).start()
        forkable = True
        load(job.runner)(job.cell, Reporter(pipe))
    except BaseException as error:
        with contextlib.suppress(OSError):  # the disk may be full: the driver is told all the same
            traceback.print_exc()
        with contextlib.suppress(OSError):
            pipe.send(("error", last_lines(error)))
        sys.exit(1)
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError):
                stream.flush()
    with contextlib.suppress(OSError):
        pipe.send(("done", None))


def load(dotted: str) -> Any:
    """The function that ``module:function`` names."""
    module, _, name = dotted.partition(":")
    return getattr(importlib.import_module(module), name)


def last_lines(error: BaseException) -> str:
    """The error and the place it comes from, short enough for a record."""
    if isinstance(error, HarnessError):
        return str(error)
    said = "".join(traceback.format_exception_only(error)).strip()[-2000:]
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{said}: there is no room left; make some and run the same command again"
    frames = traceback.extract_tb(error.__traceback__)
    return f"{said}\n({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else said


def _own_session() -> None:
    """A group of its own: it is killed with its data workers, and Ctrl-C reaches the driver only."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # when memory runs out the kernel shall take a cell, not the driver
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("500")


def _redirect_output(log: Path) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
    os.dup2(target, 1)
    os.dup2(target, 2)
    os.close(target)
    sys.stdout, sys.stderr = (
        open(n, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
        for n in (1, 2)
    )
    faulthandler.enable(sys.stderr)


def _set_environment(job: Job) -> None:
    """Before CUDA is initialised; the libraries that are loaded already take their threads by a call."""
    for name in DISTRIBUTED:
        os.environ.pop(name, None)
    if job.devices is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = job.devices
    for name in THREAD_VARIABLES:
        os.environ[name] = str(job.threads)
    os.environ["HARNESS_SLOTS"] = str(job.slots)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(job.threads)


def _die_with_driver(pipe: Connection) -> None:
    """The pipe's other end is held by the driver alone: its end is the driver's end, however it came."""
    with contextlib.suppress(EOFError, OSError):
        while True:
            pipe.recv()
    os.killpg(0, signal.SIGKILL)
