"""A fake cell runner that cluster workers can import, and a command line that uses it."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.records.cell import Cell
from harness.records.record import Record
from tests.helpers import cell_runners

MEET_SECONDS = 40.0
ROLES = ("meet:2", "meet:2", "segfault", "orphan")


def act(cell: Cell, progress: Callable[[dict[str, Any]], None]) -> Record:
    """Like :func:`cell_runners.act`, with three more actions.

    ``meet:N`` waits until N cells run at the same time and stores its environment, ``orphan`` kills the
    cell's supervisor, ``roles`` selects one of :data:`ROLES` by the seed.
    """
    if cell_runners.act_of(cell) == "roles":
        cell = cell_runners.with_act(cell, ROLES[cell.seed])
    what, _, argument = cell_runners.act_of(cell).partition(":")
    if what == "meet":
        _meet(cell, int(argument))
        cell = cell_runners.with_act(cell, "ok")
    if what == "orphan":  # killing the supervisor simulates a lost machine
        os.kill(int(Path(f"/proc/{os.getppid()}/stat").read_text().split()[3]), 9)
        time.sleep(60)
    return cell_runners.act(cell, progress)


def _meet(cell: Cell, count: int) -> None:
    names = ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS")
    environment = {n: os.environ.get(n) for n in names} | {"cwd": os.getcwd()}
    (cell.folder / "here.json").write_text(json.dumps(environment))
    limit = time.monotonic() + MEET_SECONDS
    while len(list(cell.folder.parents[1].glob("*/*/here.json"))) < count and time.monotonic() < limit:
        time.sleep(0.05)
    (cell.folder / "met").write_text(str(time.monotonic() < limit))


def main(arguments: list[str]) -> int:
    """Run the command line with fake resolving and running of cells."""
    from harness.cli import main as cli
    from harness.config import resolve
    from harness.records import inputs
    from harness.sweeps import launch

    resolve.prepare = cell_runners.prepare  # type: ignore[assignment]
    inputs.read_data = cell_runners.read_data  # type: ignore[assignment]
    launch.RUNNER, launch.PRELOAD = "tests.helpers.cluster_runners:act", ("tests.helpers.cell_runners",)
    return cli.main(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
