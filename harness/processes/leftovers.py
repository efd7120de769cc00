"""What the warm server imports first: when its launcher was killed, the folder of their sockets goes with it.

A launcher that ends by itself removes that folder; one that is killed cannot. The processes that the server
forks leave without running what is registered here.
"""

from __future__ import annotations

import atexit
import os
import shutil

SOCKETS = "HARNESS_SOCKETS"
"""Environment variable: the launcher's process and its folder, ``PID:FOLDER``."""


def _remove(launcher: int, folder: str) -> None:
    if os.getppid() != launcher:
        shutil.rmtree(folder, ignore_errors=True)


_pid, _, _folder = os.environ.get(SOCKETS, "").partition(":")
# a cell of several ranks has a server of its own, in the same folder
if _folder and os.getppid() == int(_pid):
    atexit.register(_remove, int(_pid), _folder)
