"""What is looked at before a sweep computes anything: places, loggers, data, and what will not be made anew.

A slip in any job refuses the whole command. Imports neither torch nor Hydra.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from harness.config import resolve
from harness.core.fingerprint import data_fingerprint
from harness.errors import HarnessError
from harness.loggers import factory
from harness.records.cell import Cell
from harness.sweeps.plan import Plan

LEFT_BESIDE = (
    ("trainer", "save", True, "model.safetensors"),
    ("logger", "name", "csv", "metrics.csv"),
    *(("logger", "name", name, folder) for name, folder in factory.FOLDERS.items()),
)
"""Settings that change no result but leave a file beside the record."""


def check_writable(results_dir: str | Path) -> Path:
    """The results folder, absolute. Nothing is made.

    Raises:
        HarnessError: it cannot be made or written; the message names the path that is in the way.
    """
    wanted = Path(results_dir).expanduser().absolute()
    place = wanted
    while not place.exists() and place != place.parent:
        if place.is_symlink():
            raise HarnessError(
                f"results_dir={wanted}: {place} is a link to {os.readlink(place)}, which is not there"
            )
        place = place.parent
    if not place.is_dir():
        raise HarnessError(f"results_dir={wanted}: {place} is a file, not a folder")
    if not os.access(place, os.W_OK | os.X_OK):
        raise HarnessError(f"results_dir={wanted}: {place} cannot be written; choose another results_dir")
    return wanted


def note_unsaved(plan: Plan) -> None:
    """Say that cells which are complete do not get what was asked for now: it changes no result, so it makes
    no other cell."""
    for section, key, value, file in LEFT_BESIDE:
        asked = [c for c in plan.complete if (c.config.get(section) or {}).get(key) == value]
        lacking = [c for c in asked if not (c.folder / file).exists()]
        if lacking:
            complain(
                f"{section}.{key}: {len(lacking)} complete cells have no {file} and stay as they are, first "
                f"{lacking[0].title}; overwrite=always runs them again"
            )


def check_cells(cells: Sequence[Cell]) -> None:
    """What is refused before anything runs.

    Raises:
        HarnessError: loggers that cannot work, data that cannot be read or trained on.
    """
    factory.check(cells)
    check_data(cells)


def check_data(cells: Sequence[Cell]) -> None:
    """Read each data set once before anything computes, so that a wrong column costs no cell, and say what a
    reader of the results should know of it.

    Raises:
        HarnessError: data that cannot be read or trained on; no cell has been run.
    """
    seen: set[str] = set()
    said: set[str] = set()
    for cell in cells:
        trainer = cell.config.get("trainer") or {}
        parts = [cell.config["task"], cell.config.get("limit"), trainer.get("select"), cell.files.get("task")]
        key = data_fingerprint(parts)
        if key in seen:
            continue
        seen.add(key)
        try:
            task, splits = resolve.read_data(cell)
        except HarnessError as e:
            raise HarnessError(f"{e}\n(found before anything was run; cell {cell.title})") from e
        for note in (f"{task.name}: {note}" for note in splits.notes):
            if note not in said:  # sizes and other options read the same files again
                complain(note)
            said.add(note)


def complain(text: str) -> None:
    print(text, file=sys.stderr)
