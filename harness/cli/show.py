"""``harness show CELL``: print the record of a cell, and the F1 score of each class if there are classes."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

from harness.cli.find_cells import add_cell_options, find
from harness.cli.per_class import by_class
from harness.core.redaction import printable
from harness.data.reading.card import DataCard
from harness.errors import HarnessError
from harness.records import trust
from harness.records.record import read_record

ABOUT = "Print the record of a cell, and the F1 score of each class if the task has classes."


def main(argv: list[str]) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="harness show", description=ABOUT)
    parser.add_argument(
        "cell", metavar="CELL", help="path, task/encoder/strategy/id[/seed-n], or the start of an id"
    )
    add_cell_options(parser)
    args = parser.parse_args(argv)
    trusted = trust.from_options(args)
    folders = find(args.cell, results=args.results)
    print(printable("\n\n".join("\n".join(describe(folder, trusted)) for folder in folders)))
    return 0


def describe(folder: Path, trusted: trust.Trust = trust.INSTALLED) -> list[str]:
    """Describe a record: its non-empty fields, one per line, nested ones indented; then the scores per class
    on test (on dev if there is no test split) and the files beside the record."""
    try:
        record = asdict(read_record(folder))
    except FileNotFoundError:
        raise HarnessError(f"{folder}: has no record yet: the cell is running or was stopped") from None
    lines = [str(folder)]
    card = record.pop("data_card")
    for key, value in record.items():
        if value not in (None, "", [], {}):
            lines += _lines(key, value, indent=1)
    if card:
        lines += ["  data:", *(f"    {line}" for line in DataCard.from_json(card).lines())]
    lines += by_class(folder, trusted=trusted) or by_class(folder, split="dev", trusted=trusted)
    files = sorted(p.name for p in folder.iterdir() if p.is_file() and not p.name.startswith("."))
    return [*lines, f"  files: {', '.join(files)}"]


def _lines(key: str, value: object, *, indent: int) -> list[str]:
    pad = "  " * indent
    if isinstance(value, dict):
        inner = [line for k, v in value.items() for line in _lines(str(k), v, indent=indent + 1)]
        return [f"{pad}{key}:", *inner]
    if isinstance(value, list) and any(isinstance(v, str) for v in value):
        return [f"{pad}{key}:", *(f"{pad}  {v}" for v in value)]
    if isinstance(value, list):
        return [f"{pad}{key}: {'  '.join(_short(v) for v in value)}"]
    first, *rest = str(_short(value)).splitlines() or [""]
    return [f"{pad}{key}: {first}", *(f"{pad}    {line}" for line in rest)]


def _short(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
