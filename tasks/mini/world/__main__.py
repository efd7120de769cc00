"""Writes the files of the mini world: ``python -m tasks.mini.world [FOLDER]``; default: the bundled ones."""

from __future__ import annotations

import sys
from pathlib import Path

from tasks.mini.world.generate import write


def main(argv: list[str]) -> int:
    folder = Path(argv[0]) if argv else Path(__file__).parent / "data"
    write(folder)
    sizes = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    print(f"corpus, five tasks and manifest.json are in {folder} ({sizes / 1e6:.1f} MB)")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
