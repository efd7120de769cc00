"""Write the files of the mini world: ``python -m harness_tasks.mini.world [FOLDER]``; the default folder is
that of the bundled files."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from harness_tasks.mini.world.generate import write


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m harness_tasks.mini.world", description="Write the files of the mini world."
    )
    parser.add_argument("folder", nargs="?", type=Path, default=Path(__file__).parent / "data")
    folder = parser.parse_args(argv).folder
    try:
        write(folder)
    except OSError as e:
        raise SystemExit(f"{folder}: cannot be written ({e})") from None
    sizes = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    print(f"corpus, five tasks and manifest.json are in {folder} ({sizes / 1e6:.1f} MB)")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
