"""A cell as it was stored: from the folder of a run back to what can run again. Torch-free."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from harness.config.resolve import prepare
from harness.errors import HarnessError
from harness.records.cell import Cell
from harness.records.record import CONFIG, read_record, results_of


def read_config(folder: Path) -> dict[str, Any]:
    """The resolved configuration in a seed folder.

    Raises:
        HarnessError: there is none, or it cannot be read.
    """
    path = folder / CONFIG
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise HarnessError(f"{path}: not there; run the command that made the cell again") from None
    except (OSError, ValueError, yaml.YAMLError) as e:
        raise HarnessError(f"{path}: cannot be read ({e})") from e
    if not isinstance(data, dict):
        raise HarnessError(f"{path}: holds no configuration")
    return {str(k): v for k, v in data.items()}


def read_cell(folder: Path) -> Cell:
    """The cell of a seed folder, with its files fingerprinted anew.

    Raises:
        HarnessError: configuration or files are not there, or are no longer those of this cell.
    """
    folder = folder.absolute()
    config = read_config(folder)
    cell = prepare({**config, "results_dir": str(results_of(folder))})
    if cell.folder != folder:
        raise HarnessError(
            f"{folder}: its files or the harness have changed: it would be cell {cell.id} now, not "
            f"{folder.parent.name}; run the command that made it again"
        )
    try:
        return replace(cell, variant=read_record(folder).variant)
    except (HarnessError, FileNotFoundError):
        return cell
