"""The worker process of one cell: its own session and log file; it exits when the driver exits."""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from harness.core.files import create_new
from harness.core.redaction import printable
from harness.errors import HarnessError, describe_error
from harness.records.cell import Cell
from harness.records.record import LOG

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""Threads of arithmetic, whose number changes rounding: fixed by the configuration."""
IO_THREAD_VARIABLES = ("RAYON_NUM_THREADS", "POLARS_MAX_THREADS")
"""Threads of tokenizers and table readers, whose number never changes results: the slot's share."""
DISTRIBUTED = (
    "LOCAL_RANK", "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK", "MASTER_ADDR",
    "MASTER_PORT",
)  # fmt: skip
"""Variables set by process launchers such as torchrun; removed, because a cell is not one of their ranks."""
EVENT_SECONDS = 0.1
REFUSED = "harness: "
"""Prefix of the line of a log with an error that the user can fix."""
forkable = False
"""True in a worker process: it has no threads or CUDA state yet that would make a fork unsafe."""


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """What a worker process needs to run one cell.

    Attributes:
        runner: ``module:function``, called as ``function(cell, progress)``.
        devices: value of CUDA_VISIBLE_DEVICES; None leaves it unchanged.
        threads: number of CPU threads of arithmetic (``trainer.threads``).
        io_threads: number of threads of tokenizers and table readers.
        slots: number of cells that may run at the same time on this machine; stored in the record.
    """

    cell: Cell
    runner: str
    devices: str | None
    threads: int
    slots: int = 1
    io_threads: int = 1


class EventReporter:
    """Sends progress events to the driver, at most one per 0.1 s unless more than a counter has changed."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._last: Mapping[str, object] = {}
        self._sent = 0.0

    def __call__(self, event: Mapping[str, object]) -> None:
        now = time.monotonic()
        same = all(event.get(k) == self._last.get(k) for k in ("phase", "epoch", "score", "message"))
        if same and now - self._sent < EVENT_SECONDS and event.get("done") != event.get("total"):
            return
        self._last, self._sent = dict(event), now
        # a closed pipe means that the driver is gone: _exit_with_driver handles that
        with contextlib.suppress(OSError):
            self._pipe.send(("event", dict(event)))


def main(pipe: Connection, spec: WorkerSpec) -> None:
    """Run one cell; on failure, log the traceback, send the error to the driver and exit with code 1."""
    global forkable
    _start_session()
    try:
        _redirect_output(spec.cell.folder / LOG)
        _set_environment(spec)
        threading.Thread(target=_exit_with_driver, args=(pipe,), daemon=True).start()
        forkable = True
        load_function(spec.runner)(spec.cell, EventReporter(pipe))
    except BaseException as error:
        with contextlib.suppress(OSError):  # even if the disk is full, the driver must get the error
            print(log_text(error), file=sys.stderr)
        with contextlib.suppress(OSError):
            pipe.send(("error", describe_error(error)))
        sys.exit(1)
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError):
                stream.flush()
    with contextlib.suppress(OSError):
        pipe.send(("done", None))


def log_text(error: BaseException) -> str:
    """Return what the cell's log says about an error: one line for an error that the user can fix, else the
    traceback; control characters are escaped."""
    if isinstance(error, HarnessError) and os.environ.get("HYDRA_FULL_ERROR") != "1":
        return printable(f"{REFUSED}{error}")
    return printable("".join(traceback.format_exception(error)).rstrip())


def load_function(dotted: str) -> Callable[..., Any]:
    """Import the function named by ``module:function``."""
    module, _, name = dotted.partition(":")
    function: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return function


def _start_session() -> None:
    """Start a new process group: it is killed with its data workers, and Ctrl-C reaches only the driver."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # when memory runs out, the kernel should kill a cell rather than the driver
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("500")


def _redirect_output(log: Path) -> None:
    """Send both streams to a new file."""
    sys.stdout.flush()
    sys.stderr.flush()
    log.unlink(missing_ok=True)  # it may be a link
    target = create_new(log, os.O_EXCL | os.O_APPEND)
    os.dup2(target, 1)
    os.dup2(target, 2)
    os.close(target)
    sys.stdout, sys.stderr = (
        open(n, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
        for n in (1, 2)
    )
    faulthandler.enable(sys.stderr)


def _set_environment(spec: WorkerSpec) -> None:
    """Set devices and threads before CUDA is initialised; loaded libraries need a call instead."""
    if spec.cell.trainer.num_nodes == 1:
        for name in DISTRIBUTED:
            os.environ.pop(name, None)
    if spec.devices is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = spec.devices
    for name in THREAD_VARIABLES:
        os.environ[name] = str(spec.threads)
    for name in IO_THREAD_VARIABLES:
        os.environ[name] = str(spec.io_threads)
    os.environ["HARNESS_SLOTS"] = str(spec.slots)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(spec.threads)


def _exit_with_driver(pipe: Connection) -> None:
    """Kill this process group when the driver, the only holder of the pipe's other end, is gone."""
    with contextlib.suppress(EOFError, OSError):
        while True:
            pipe.recv()
    os.killpg(0, signal.SIGKILL)
