"""First import of the fork server: removes the folder of the launcher's sockets if the launcher was killed.

A launcher that exits normally removes that folder itself. The processes that the server forks exit without
running the handler registered here.
"""

from __future__ import annotations

import atexit
import os
import shutil

SOCKETS = "HARNESS_SOCKETS"
"""Environment variable: process id and socket folder of the launcher, ``PID:FOLDER``."""


def _remove(launcher: int, folder: str) -> None:
    if os.getppid() != launcher:
        shutil.rmtree(folder, ignore_errors=True)


_pid, _, _folder = os.environ.get(SOCKETS, "").partition(":")
# a cell with several ranks has a nested server that uses the same folder: only the outer one removes it
if _folder and os.getppid() == int(_pid):
    atexit.register(_remove, int(_pid), _folder)
