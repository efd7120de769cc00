"""Restore a cell from the folder of a run; does not import torch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from harness.config.resolve import prepare
from harness.errors import HarnessError
from harness.records.cell import Cell
from harness.records.record import CONFIG, read_record, results_of
from harness.records.stored_files import cell_file, parse_yaml, read_bytes
from harness.records.trust import INSTALLED, Trust


def read_config(folder: Path, trust: Trust = INSTALLED) -> dict[str, object]:
    """Read the resolved configuration of a seed folder.

    Args:
        folder: the seed folder.
        trust: the parts that the configuration may name.

    Raises:
        HarnessError: the file is missing, cannot be read, or names a callable that is not trusted.
    """
    path = cell_file(folder, CONFIG)
    try:
        data = parse_yaml(read_bytes(path).decode("utf-8"))
    except FileNotFoundError:
        raise HarnessError(f"{path}: no such file; run the command that created the cell again") from None
    except (OSError, ValueError) as e:
        raise HarnessError(f"{path}: cannot be read ({e})") from e
    if not isinstance(data, dict):
        raise HarnessError(f"{path}: not a configuration (expected a mapping)")
    config = {str(k): v for k, v in data.items()}
    trust.check(config, source=path)
    return config


def read_cell(folder: Path, trust: Trust = INSTALLED) -> Cell:
    """Resolve the cell of a seed folder again, with new fingerprints of its files.

    Args:
        folder: the seed folder.
        trust: the parts that the configuration may name.

    Raises:
        HarnessError: the configuration or a file is missing or has changed, or it is not trusted.
    """
    folder = folder.absolute()
    config = read_config(folder, trust)
    cell = prepare({**config, "results_dir": str(results_of(folder))}, folders=trust.search)
    if cell.folder != folder:
        raise HarnessError(
            f"{folder}: its files or the harness have changed: the cell id is now {cell.id}, not "
            f"{folder.parent.name}; run the command that created it again"
        )
    try:
        return replace(cell, variant=read_record(folder).variant)
    except (HarnessError, FileNotFoundError):
        return cell
