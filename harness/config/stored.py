"""Restore a cell from the folder of a run; does not import torch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import yaml

from harness.config.resolve import prepare
from harness.errors import HarnessError
from harness.records.cell import Cell
from harness.records.record import CONFIG, read_record, results_of


def read_config(folder: Path) -> dict[str, object]:
    """Read the resolved configuration of a seed folder.

    Raises:
        HarnessError: the file is missing or cannot be read.
    """
    path = folder / CONFIG
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise HarnessError(f"{path}: no such file; run the command that created the cell again") from None
    except (OSError, ValueError, yaml.YAMLError) as e:
        raise HarnessError(f"{path}: cannot be read ({e})") from e
    if not isinstance(data, dict):
        raise HarnessError(f"{path}: not a configuration (expected a mapping)")
    return {str(k): v for k, v in data.items()}


def read_cell(folder: Path) -> Cell:
    """Resolve the cell of a seed folder again, with new fingerprints of its files.

    Raises:
        HarnessError: the configuration or a file is missing or has changed.
    """
    folder = folder.absolute()
    config = read_config(folder)
    cell = prepare({**config, "results_dir": str(results_of(folder))})
    if cell.folder != folder:
        raise HarnessError(
            f"{folder}: its files or the harness have changed: the cell id is now {cell.id}, not "
            f"{folder.parent.name}; run the command that created it again"
        )
    try:
        return replace(cell, variant=read_record(folder).variant)
    except (HarnessError, FileNotFoundError):
        return cell
