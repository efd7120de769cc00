"""The warm server of :mod:`multiprocessing`: how it is started, and how what it forked is ended."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import forkserver
from multiprocessing.util import get_temp_dir
from typing import Any

from harness.processes.leftovers import SOCKETS

SERVER_ENVIRONMENT = {
    "PYTHONSAFEPATH": "1",  # nothing is imported from the current directory
    "PYTHONHASHSEED": "0",  # the order of sets is the same in every sweep
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",  # asking for devices must not initialise CUDA before the fork
    # waiting threads must not spin: where anything else wants the cores that costs five times the work
    "OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "PASSIVE"),
}


def start_server(preload: Sequence[str]) -> None:
    """Start the server that children are forked from, unless it runs; it imports ``preload`` meanwhile."""
    forkserver.set_forkserver_preload(["harness.processes.leftovers", *preload])
    # a server below another one is in the folder of the first launcher
    sockets = os.environ.get(SOCKETS) or f"{os.getpid()}:{get_temp_dir()}"
    environment = {**SERVER_ENVIRONMENT, SOCKETS: sockets}
    saved = {k: os.environ.get(k) for k in environment}
    try:
        handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    except ValueError:
        handler = None
    try:
        # a Ctrl-C while the server imports must not end it: it inherits that SIGINT is ignored
        os.environ.update(environment)
        forkserver.ensure_running()
    finally:
        for name, value in saved.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        if handler is not None:
            signal.signal(signal.SIGINT, handler)


def memory_of(pid: int) -> int:
    """Bytes that a process and its children have for themselves: what they share with others, such as the
    modules loaded before the fork, is not counted where the system tells it apart."""
    import psutil

    total = 0
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        for one in (process, *process.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                used = one.memory_full_info()
                total += int(getattr(used, "uss", used.rss))
    return total


@contextlib.contextmanager
def handled(handler: Callable[[int], None]) -> Iterator[None]:
    """``handler`` takes Ctrl-C, SIGTERM and the terminal's end in the block, where this is the main thread;
    under nohup that end means nothing. It is told how many times Ctrl-C that is: the others are worth two."""

    def count(number: int, frame: Any) -> None:
        handler(1 if number == signal.SIGINT else 2)

    taken = [signal.SIGINT, signal.SIGTERM]
    taken += [signal.SIGHUP] if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN else []
    try:
        old = {s: signal.signal(s, count) for s in taken}
    except ValueError:  # elsewhere signals are someone else's
        old = {}
    try:
        yield
    finally:
        for number, before in old.items():
            signal.signal(number, before)


def kill_group(process: Any) -> None:
    """The child and its data workers; the child alone when it has not made its group yet."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
        return
    if process.exitcode is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
