"""``harness rm CELL...`` moves cells to ``<results>/.archive``, so that the next sweep runs them again."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from harness.cli.find_cells import cells_parser, find, is_running
from harness.errors import HarnessError
from harness.records.lifecycle import ARCHIVE


def main(argv: list[str]) -> int:
    """Archive the cells; nothing is moved when one of them cannot be found or is running."""
    parser = cells_parser(
        "rm", about=__doc__, epilog="To have them back, move them from there to where they were."
    )
    args = parser.parse_args(argv)
    named = {cell: find(cell, results=args.results, groups=True) for cell in args.cells}
    for folder in (f for folders in named.values() for f in folders):
        if ARCHIVE in folder.parts:
            raise HarnessError(f"{folder}: is archived already")
        if is_running(folder):
            raise HarnessError(f"{folder}: is running; stop its sweep first")
    stamp = datetime.now().strftime("%Y-%m-%d_%H-%M-%S-%f")
    done: set[Path] = set()
    for cell, folders in named.items():
        moved = [archive(folder, stamp=stamp) for folder in folders if folder not in done]
        done.update(folders)
        print(f"archived {len(moved)} seed{'' if len(moved) == 1 else 's'} of {cell}")
        for place in sorted({target.parents[4] for target in moved}):
            print(f"  in {place}")
    return 0


def archive(folder: Path, *, stamp: str) -> Path:
    """Move one seed folder below ``.archive/<stamp>`` of its results folder; empty folders above it go."""
    results = folder.parents[4] if len(folder.parents) > 4 else folder.parent
    target = results / ARCHIVE / stamp / folder.relative_to(results)
    target.parent.mkdir(parents=True, exist_ok=True)
    folder.rename(target)
    for above in list(folder.parents)[:4]:
        try:
            above.rmdir()
        except OSError:
            break
    return target
