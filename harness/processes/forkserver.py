"""The preloaded fork server of :mod:`multiprocessing`: starting it, and ending the processes it forked."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing import forkserver
from multiprocessing.process import BaseProcess
from multiprocessing.util import get_temp_dir
from types import FrameType
from typing import Any

from harness.processes.leftovers import SOCKETS

SERVER_ENVIRONMENT = {
    "PYTHONSAFEPATH": "1",  # do not import from the current directory
    "PYTHONHASHSEED": "0",  # the same iteration order of sets in every sweep
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",  # counting devices must not initialise CUDA before the fork
    # spinning threads made training five times slower (measured) when other processes use the same cores
    "OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "PASSIVE"),
}


_server: Any = vars(forkserver)["_forkserver"]


def start_server(preload: Sequence[str]) -> None:
    """Start the server that forks the workers, unless it is running; it imports ``preload`` meanwhile."""
    forkserver.set_forkserver_preload(["harness.processes.leftovers", *preload])
    # a nested server (a cell with several ranks) uses the folder of the outermost launcher
    sockets = os.environ.get(SOCKETS) or f"{os.getpid()}:{get_temp_dir()}"
    try:
        handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    except ValueError:  # not in the main thread
        handler = None
    try:
        # the server inherits the ignored SIGINT: Ctrl-C during its imports must not kill it
        with environment({**SERVER_ENVIRONMENT, SOCKETS: sockets}):
            forkserver.ensure_running()
    finally:
        if handler is not None:
            signal.signal(signal.SIGINT, handler)


def server_pid() -> int | None:
    """Return the process id of the server; None if it was never started."""
    pid: int | None = getattr(_server, "_forkserver_pid", None)
    return pid


def kill_server() -> None:
    """Kill the server. A process that waits for it in ``Process.start`` gets an EOFError."""
    pid = server_pid()
    if pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def discard_server() -> None:
    """Kill the server and wait for its end, so that the next start is of a new one.

    A killed process closes its sockets before its parent can see its end. In between,
    ``ensure_running`` takes the server for alive, and connecting to it fails.
    """
    kill_server()
    pid = server_pid()
    if pid is not None:
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # reaped by ensure_running


@contextlib.contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables in the block and restore them afterwards."""
    saved = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in saved.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def memory_of(pid: int) -> int:
    """Private memory of a process and its descendants, in bytes.

    Pages shared with other processes (modules loaded before the fork) are excluded where the operating
    system reports them separately.
    """
    import psutil

    total = 0
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        for member in (process, *process.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                used = member.memory_full_info()
                total += int(getattr(used, "uss", used.rss))
    return total


@contextlib.contextmanager
def handle_interrupts(handler: Callable[[int], None]) -> Iterator[None]:
    """Route Ctrl-C, SIGTERM and SIGHUP to ``handler`` in the block; no-op outside the main thread.

    ``handler`` gets a weight: 1 for Ctrl-C, 2 for the others, which count as a second Ctrl-C. SIGHUP stays
    ignored under nohup.
    """

    def count(number: int, frame: FrameType | None) -> None:
        handler(1 if number == signal.SIGINT else 2)

    signals = [signal.SIGINT, signal.SIGTERM]
    signals += [signal.SIGHUP] if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN else []
    try:
        previous = {s: signal.signal(s, count) for s in signals}
    except ValueError:  # not in the main thread, which is responsible for signals
        previous = {}
    try:
        yield
    finally:
        for number, old in previous.items():
            signal.signal(number, old)


def kill_group(process: BaseProcess) -> None:
    """Kill a worker and its data workers; the worker alone if it has not created its process group yet."""
    if process.pid is None:
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
        return
    if process.exitcode is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
