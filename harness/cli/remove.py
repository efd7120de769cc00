"""``harness rm CELL...``: move cells to ``<results>/.archive``, so that the next sweep runs them again."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from harness.cli.find_cells import cells_parser, find, is_running
from harness.errors import HarnessError
from harness.records.lifecycle import ARCHIVE
from harness.records.record import results_of

ABOUT = "Move cells to <results>/.archive, so that the next sweep runs them again."


def main(argv: list[str]) -> int:
    """Archive the cells; nothing is moved if one of them is not found or is running."""
    parser = cells_parser(
        "rm", about=ABOUT, epilog="To restore cells, move them back to their original folders."
    )
    args = parser.parse_args(argv)
    folders_of = {cell: find(cell, results=args.results, groups=True) for cell in args.cells}
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
        print(f"archived {len(moved)} seed{'' if len(moved) == 1 else 's'} of {cell}")
        for archive_dir in sorted({results_of(target) for target in moved}):
            print(f"  in {archive_dir}")
    return 0


def archive(folder: Path, *, stamp: str) -> Path:
    """Move a seed folder to ``.archive/<stamp>`` of its results folder, and remove empty parent folders."""
    results = results_of(folder) if len(folder.parents) > 4 else folder.parent
    target = results / ARCHIVE / stamp / folder.relative_to(results)
    target.parent.mkdir(parents=True, exist_ok=True)
    folder.rename(target)
    for parent in list(folder.parents)[:4]:
        try:
            parent.rmdir()
        except OSError:
            break
    return target
