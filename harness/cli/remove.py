"""``harness rm CELL...``: move cells to ``<results>/.archive``, so that the next sweep runs them again."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

from harness.cli.find_cells import cells_parser, find, is_running
from harness.core.fingerprint import slug
from harness.core.redaction import printable
from harness.errors import HarnessError
from harness.records.lifecycle import ARCHIVE, archive_folder
from harness.records.record import RECORD, read_record, results_of

ABOUT = "Move cells to <results>/.archive, so that the next sweep runs them again."


def main(argv: list[str]) -> int:
    """Archive the cells; nothing is moved if one of them is not found or is running."""
    parser = cells_parser(
        "rm", about=ABOUT, epilog="To restore cells, move them back to their original folders."
    )
    args = parser.parse_args(argv)
    folders_of = {cell: _recorded(cell, results=args.results) for cell in args.cells}
    for folder in (f for folders in folders_of.values() for f in folders):
        if ARCHIVE in folder.parts:
            raise HarnessError(f"{folder}: is already archived")
        if is_running(folder):
            raise HarnessError(f"{folder}: is running; stop its sweep first")
    stamp = datetime.now().strftime("%Y-%m-%d_%H-%M-%S-%f")
    done: set[Path] = set()
    for cell, folders in folders_of.items():
        moved = [archive(folder, stamp=stamp) for folder in folders if folder not in done]
        done.update(folders)
        print(printable(f"archived {len(moved)} seed{'' if len(moved) == 1 else 's'} of {cell}"))
        for archive_dir in sorted({results_of(target) for target in moved}):
            print(printable(f"  in {archive_dir}"))
    return 0


def _recorded(cell: str, *, results: Path) -> list[Path]:
    """Find the cells with a record; cells without one have nothing to archive.

    Raises:
        HarnessError: there is none, or a folder is not a cell of a results folder.
    """
    folders = find(cell, results=results, groups=True)
    recorded = [folder for folder in folders if os.path.lexists(folder / RECORD)]
    if not recorded:
        raise HarnessError(f"{cell}: has no {RECORD}, so there is nothing to archive")
    for folder in recorded:
        _check_is_cell(folder, results=results)
    return recorded


def _check_is_cell(folder: Path, *, results: Path) -> None:
    """Check that a folder lies where cells of ``results`` lie, or that its record names its own path."""
    if len(folder.parents) > 4 and results_of(folder) == results.absolute():
        return
    try:
        record = read_record(folder)
        names = [slug(n) for n in (record.task, record.encoder, record.strategy, record.cell)]
        if list(folder.parts[-5:]) == [*names, f"seed-{record.seed}"]:
            return
    except (HarnessError, OSError):
        pass
    raise HarnessError(f"{folder}: not a cell of {results}; if it is one, give --results DIR")


def archive(folder: Path, *, stamp: str) -> Path:
    """Move a seed folder to ``.archive/<stamp>`` of its results folder, and remove empty parent folders.

    Raises:
        HarnessError: the archive is a link.
    """
    results = results_of(folder)
    target = archive_folder(results) / stamp / folder.relative_to(results)
    target.parent.mkdir(parents=True, exist_ok=True)
    folder.rename(target)
    for parent in list(folder.parents)[:4]:
        try:
            parent.rmdir()
        except OSError:
            break
    return target
