"""``harness ensemble CELL CELL ...``: average stored predictions of cells of one task into a new cell."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from harness.cli.find_cells import add_cell_options, find, title
from harness.core.redaction import printable
from harness.errors import HarnessError
from harness.records import trust
from harness.records.lifecycle import ARCHIVE
from harness.sweeps.progress import score_text

ABOUT = "Average the stored predictions of two or more cells of one task into a new cell."


def main(argv: list[str]) -> int:
    """Create one ensemble per seed that all cells have, or a single one of the given seed folders."""
    parser = argparse.ArgumentParser(
        prog="harness ensemble",
        description=ABOUT,
        epilog="Cells are averaged seed by seed: seed 0 of each cell, seed 1 of each, and so on. If every "
        "CELL ends in /seed-n, exactly these seeds are averaged.",
    )
    parser.add_argument(
        "cells",
        nargs="+",
        metavar="CELL",
        help="path, task/encoder/strategy/id[/seed-n], or the start of an id; two or more",
    )
    add_cell_options(parser)
    args = parser.parse_args(argv)
    if len(args.cells) < 2:
        raise HarnessError("an ensemble needs at least two cells")
    from harness.ensemble import combine

    groups = by_seed(args.cells, results=args.results)
    for folders in groups:
        folder, record = combine(folders, trust.from_options(args))
        print(printable(f"{title(folder.parent)}/{folder.name}: {score_text(record)}"))
    return 0


def by_seed(cells: Sequence[str], *, results: Path) -> list[list[Path]]:
    """Group seed folders into ensembles.

    Raises:
        HarnessError: a cell is not found or is archived, or the cells have no seed in common.
    """
    folders_of = [find(cell, results=results) for cell in cells]
    for folder in (f for folders in folders_of for f in folders):
        if ARCHIVE in folder.parts:
            raise HarnessError(f"{folder}: is archived; move it back to use it in an ensemble")
    if all(Path(cell).name.startswith("seed-") for cell in cells):
        return [[folder for folders in folders_of for folder in folders]]
    seeds = [{folder.name: folder for folder in folders} for folders in folders_of]
    shared = [name for name in seeds[0] if all(name in by_name for by_name in seeds)]
    if not shared:
        available = "; ".join(f"{cell}: {', '.join(names)}" for cell, names in zip(cells, seeds, strict=True))
        raise HarnessError(
            f"the cells have no seed in common ({available}); give the seed of each: CELL/seed-n"
        )
    omitted = sorted({name for by_name in seeds for name in by_name} - set(shared))
    if omitted:
        print(f"omitted, because not every cell has them: {', '.join(omitted)}")
    return [[by_name[name] for by_name in seeds] for name in shared]
