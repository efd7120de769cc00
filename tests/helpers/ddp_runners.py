"""Cells over several ranks that child processes can import: the cell's configuration says what befalls them.

Run as a script it puts all fates of a JSON list into one sweep, so that their imports are paid for once.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.processes.ranks import run_ranks
from harness.processes.worker import DISTRIBUTED
from harness.records.cell import Cell
from harness.records.record import Record

Progress = Callable[[dict[str, Any]], None]
FOREVER = 120.0


def cell_runner(cell: Cell, progress: Progress) -> Record:
    """In the cell's process, as the pool calls it."""
    (cell.folder / "cell").write_text(str(os.getpid()))
    return run_ranks(cell, progress, runner="tests.helpers.ddp_runners:rank_runner")


def rank_runner(cell: Cell, progress: Progress, world: Any) -> None:
    """In each rank."""
    (cell.folder / f"rank-{world.rank}").write_text(str(os.getpid()))
    _FATES[str(cell.resolved["fate"])](cell, progress, world)


def measured_runner(cell: Cell, progress: Progress, world: Any) -> None:
    """A real run; each rank notes how many elements of the parameters it holds when training ends."""
    from harness.processes.lightning import local
    from harness.training.module import TransferModel
    from harness.training.run import run_here

    end = TransferModel.on_train_epoch_end

    def note(model: TransferModel) -> None:
        parameters = list(model.parameters())
        held = {
            "local": sum(local(p).numel() for p in parameters),
            "total": sum(p.numel() for p in parameters),
        }
        (cell.folder / f"held-{world.rank}.json").write_text(json.dumps(held))
        end(model)

    TransferModel.on_train_epoch_end = note  # type: ignore[method-assign]
    run_here(cell, progress, world)


def _mark(cell: Cell) -> None:
    (cell.folder / "died").write_text(repr(time.time()))


def _watched(cell: Cell, progress: Progress, world: Any) -> None:
    """A real run; each rank notes its weights after each epoch, its seed, and what it sees around it."""
    import torch

    from harness.processes.distributed import bit_sums
    from harness.training.module import TransferModel
    from harness.training.run import run_here

    seen: dict[str, Any] = {"weights": []}
    check = TransferModel.check_ranks

    def note(model: TransferModel, when: str) -> None:
        seen["weights"].append([when, *bit_sums(list(model.parameters()))])
        seen["trainable"] = all(p.requires_grad for p in model.parameters())
        check(model, when)

    TransferModel.check_ranks = note  # type: ignore[method-assign, assignment]
    run_here(cell, progress, world)
    seen |= {"seed": torch.initial_seed(), "threads": torch.get_num_threads(), "cwd": os.getcwd()}
    seen["foreign"] = [n for n in DISTRIBUTED if n in os.environ]
    seen["hydra"] = "hydra" in sys.modules
    (cell.folder / f"seen-{world.rank}.json").write_text(json.dumps(seen))


def _in_training(act: Callable[[Cell], None]) -> Callable[[Cell, Progress, Any], None]:
    """A real run in which ``act`` befalls the second rank at its third step."""

    def fate(cell: Cell, progress: Progress, world: Any) -> None:
        from harness.training.module import TransferModel
        from harness.training.run import run_here

        step = TransferModel.training_step

        def stumbling(model: TransferModel, batch: Any, n: int) -> None:
            if world.rank == 1 and len(model.losses) == 2:
                _mark(cell)
                act(cell)
            step(model, batch, n)

        TransferModel.training_step = stumbling  # type: ignore[method-assign, assignment]
        run_here(cell, progress, world)

    return fate


def _kill(cell: Cell) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _raise(cell: Cell) -> None:
    raise ValueError("no luck on this rank")


def _kill_parent(cell: Cell) -> None:
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(FOREVER)


_FATES: dict[str, Callable[[Cell, Progress, Any], None]] = {
    "watched": _watched,
    "killed": _in_training(_kill),
    "raises": _in_training(_raise),
    "orphaned": _in_training(_kill_parent),
    "hangs": lambda cell, progress, world: time.sleep(FOREVER),
}


def main(folder: Path, fates: list[dict[str, Any]]) -> None:
    """One sweep over two slots; ``finished.json`` says when each cell ended."""
    from harness.processes.slots import DeviceSlot
    from harness.sweeps.pool import LocalPool
    from harness.sweeps.progress import SilentDisplay, SweepCounts
    from tests.helpers.cells import make_cell

    finished: dict[str, float] = {}

    class Clock(SilentDisplay):
        def finished(self, cell: Cell, record: Record | None) -> None:
            finished[str(cell.resolved["fate"])] = time.time()
            super().finished(cell, record)

    todo = []
    for fate in fates:
        cell = make_cell(folder / fate["fate"], *fate["overrides"])
        options = replace(cell.options, **fate.get("config", {}))
        todo.append(replace(cell, options=options, resolved={**cell.resolved, "fate": fate["fate"]}))
    LocalPool(
        slots=[DeviceSlot(None, 2), DeviceSlot(None, 2)],
        display=Clock(SweepCounts(total=len(todo))),
        runner="tests.helpers.ddp_runners:cell_runner",
        preload=("harness.processes.preload", "tests.helpers.ddp_runners"),
    ).run(todo)
    (folder / "finished.json").write_text(json.dumps(finished))


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
