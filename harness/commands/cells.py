"""Finding cells by what a user writes: a path, ``task/encoder/strategy/id[/seed-n]``, or an id's start."""

from __future__ import annotations

import glob
from pathlib import Path

from filelock import FileLock, Timeout

from harness.errors import HarnessError, did_you_mean
from harness.pool import LOCK


def find(cell: str, *, results: Path) -> list[Path]:
    """The seed folders that ``cell`` names, sorted.

    Raises:
        HarnessError: none, or several cells at once.
    """
    for place in (Path(cell), results / cell):
        found = _seeds(place)
        if found:
            return found
    if "/" not in cell.strip("/") and cell:
        matches = sorted(p for p in results.glob(f"*/*/*/{glob.escape(cell)}*") if _seeds(p))
        if len(matches) > 1:
            listed = "".join(f"\n  {m}" for m in matches[:10])
            raise HarnessError(f"{cell}: {len(matches)} cells begin so; write more of the id:{listed}")
        if matches:
            return _seeds(matches[0])
    ids = [p.name for p in results.glob("*/*/*/*") if _seeds(p)]
    raise HarnessError(f"{cell}: no such cell in {results}; {did_you_mean(cell.rpartition('/')[2], ids)}")


def is_running(folder: Path) -> bool:
    """Whether a sweep holds the seed folder's lock."""
    path = folder / LOCK
    if not path.exists():
        return False
    lock = FileLock(path)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        return True
    except OSError:
        return False
    lock.release()
    return False


def _seeds(place: Path) -> list[Path]:
    if place.name.startswith("seed-") and place.is_dir():
        return [place.absolute()]
    return sorted((p.absolute() for p in place.glob("seed-*") if p.is_dir()), key=_number)


def _number(folder: Path) -> tuple[int, str]:
    number = folder.name.removeprefix("seed-")
    return (int(number) if number.isdecimal() else -1, number)
