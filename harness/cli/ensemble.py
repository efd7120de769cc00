"""``harness ensemble CELL CELL ...`` averages the stored predictions of cells of one task into a new cell."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from harness.cli.find_cells import find, title
from harness.errors import HarnessError
from harness.records.lifecycle import ARCHIVE
from harness.sweeps.progress import score_text


def main(argv: list[str]) -> int:
    """One ensemble a seed that all cells have; or one of just the seeds that are named."""
    parser = argparse.ArgumentParser(
        prog="harness ensemble",
        description=__doc__,
        epilog="Seeds go together: seed 0 of each cell, seed 1 of each, and so on. Where every CELL names "
        "its seed (.../seed-n), these are averaged, whatever they are.",
    )
    parser.add_argument(
        "cells",
        nargs="+",
        metavar="CELL",
        help="path, task/encoder/strategy/id[/seed-n], or the start of an id; two or more",
    )
    parser.add_argument("--results", type=Path, default=Path("results"), metavar="DIR")
    args = parser.parse_args(argv)
    if len(args.cells) < 2:
        raise HarnessError("an ensemble is made of two cells or more")
    from harness.ensemble import combine

    groups = by_seed(args.cells, results=args.results)
    for folders in groups:
        folder, record = combine(folders)
        print(f"{title(folder.parent)}/{folder.name}: {score_text(record)}")
    return 0


def by_seed(cells: Sequence[str], *, results: Path) -> list[list[Path]]:
    """Seed folders that belong together.

    Raises:
        HarnessError: a cell is not found or archived, or the cells have no seed in common.
    """
    found = [find(cell, results=results) for cell in cells]
    for folder in (f for folders in found for f in folders):
        if ARCHIVE in folder.parts:
            raise HarnessError(f"{folder}: is archived; an ensemble is made of cells that are in use")
    if all(Path(cell).name.startswith("seed-") for cell in cells):
        return [[folder for folders in found for folder in folders]]
    seeds = [{folder.name: folder for folder in folders} for folders in found]
    shared = [name for name in seeds[0] if all(name in its for its in seeds)]
    if not shared:
        have = "; ".join(f"{cell}: {', '.join(its)}" for cell, its in zip(cells, seeds, strict=True))
        raise HarnessError(f"the cells have no seed in common ({have}); name the seed of each: CELL/seed-n")
    left = sorted({name for its in seeds for name in its} - set(shared))
    if left:
        print(f"not in every cell and left out: {', '.join(left)}")
    return [[its[name] for its in seeds] for name in shared]
