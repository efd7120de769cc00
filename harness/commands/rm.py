"""``harness rm CELL...`` moves cells to ``<results>/.archive``, so that the next sweep runs them again."""

from __future__ import annotations

import argparse
from datetime import datetime
from pathlib import Path

from harness.commands.cells import find, is_running
from harness.errors import HarnessError


def main(argv: list[str]) -> int:
    """Archive the cells; nothing is moved when one of them cannot be found or is running."""
    parser = argparse.ArgumentParser(prog="harness rm", description=__doc__)
    parser.add_argument(
        "cells", nargs="+", metavar="CELL", help="path, task/encoder/strategy/id[/seed-n], or id"
    )
    parser.add_argument("--results", type=Path, default=Path("results"), metavar="DIR")
    args = parser.parse_args(argv)
    folders = list(dict.fromkeys(f for cell in args.cells for f in find(cell, results=args.results)))
    running = [f for f in folders if is_running(f)]
    if running:
        raise HarnessError(f"{running[0]}: is running; stop its sweep first")
    stamp = datetime.now().strftime("%Y-%m-%d_%H-%M-%S-%f")
    for folder in folders:
        print(f"{folder} -> {archive(folder, stamp=stamp)}")
    return 0


def archive(folder: Path, *, stamp: str) -> Path:
    """Move one seed folder below ``.archive/<stamp>`` of its results folder; empty folders above it go."""
    results = folder.parents[4] if len(folder.parents) > 4 else folder.parent
    target = results / ".archive" / stamp / folder.relative_to(results)
    target.parent.mkdir(parents=True, exist_ok=True)
    folder.rename(target)
    for above in list(folder.parents)[:4]:
        try:
            above.rmdir()
        except OSError:
            break
    return target
