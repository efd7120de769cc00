"""Cells over several nodes: this process is one of the ranks that torchrun or Slurm started. Torch-free."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from harness.errors import HarnessError
from harness.records.cell import Cell

if TYPE_CHECKING:
    from harness.processes.nodes import LaunchedRank


def num_nodes(cell: Cell) -> int:
    """``trainer.num_nodes``."""
    return cell.trainer.num_nodes


def check_one_node(cells: Iterable[Cell]) -> None:
    """Check that no cell of a sweep spans nodes.

    Raises:
        HarnessError: one does.
    """
    for cell in cells:
        if num_nodes(cell) > 1:
            raise HarnessError(
                f"trainer.num_nodes={num_nodes(cell)}: not in a sweep (-m); start one command per cell"
            )


def join_nodes(cell: Cell, *, runner: str) -> LaunchedRank | None:
    """Meet the other ranks of a cell over several nodes; ranks other than 0 run it here if rank 0 decides to.

    Returns:
        this process's rank; None for a cell on one node.

    Raises:
        HarnessError: there is no launcher, or the cell failed.
    """
    if num_nodes(cell) == 1:
        return None
    from harness.processes.nodes import follow, launched_rank

    rank = launched_rank(cell.trainer, host=True)
    if rank.rank > 0:
        follow(cell, rank, runner=runner)
    return rank
