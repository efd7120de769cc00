"""Find cells by a path, by ``task/encoder/strategy/id[/seed-n]``, or by the start of an id."""

from __future__ import annotations

import argparse
import difflib
import glob
from pathlib import Path

from harness.errors import HarnessError
from harness.records import trust
from harness.records.lease import holder
from harness.records.lifecycle import ARCHIVE
from harness.records.stored_files import check_contained

_LISTED = 10


def add_results_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--results DIR``, the results folder that cells are looked up in."""
    parser.add_argument(
        "--results",
        type=Path,
        default=Path("results"),
        metavar="DIR",
        help="results folder (default: results)",
    )


def add_cell_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of every command that reads stored cells."""
    add_results_option(parser)
    trust.add_options(parser)


def cells_parser(name: str, *, about: str, epilog: str) -> argparse.ArgumentParser:
    """Create the parser of a command that acts on cells: their names and the results folder."""
    parser = argparse.ArgumentParser(prog=f"harness {name}", description=about, epilog=epilog)
    parser.add_argument(
        "cells",
        nargs="+",
        metavar="CELL",
        help="path, task/encoder/strategy/id[/seed-n], or the start of an id; "
        "task, task/encoder or task/encoder/strategy selects all cells below it",
    )
    add_results_option(parser)
    return parser


def find(cell: str, *, results: Path, groups: bool = False) -> list[Path]:
    """Return the seed folders of ``cell``, sorted.

    Args:
        cell: a path, ``task/encoder/strategy/id[/seed-n]``, or the start of an id.
        results: the results folder.
        groups: whether a task, ``task/encoder`` or ``task/encoder/strategy`` selects all cells below it.

    Raises:
        HarnessError: no cell or several cells match; the message lists similar or matching ones. Or a folder
            is a link that leaves its results folder.
    """
    folders = _find(cell, results=results, groups=groups)
    for folder in folders:
        check_contained(folder)
    return folders


def _find(cell: str, *, results: Path, groups: bool) -> list[Path]:
    for path in (Path(cell), results / cell):
        if folders := _seeds(path):
            return folders
    matches = _begin_with(cell, results=results)
    for path in (Path(cell), results / cell):
        folders = _below(path)
        if folders and (matches or not groups):
            candidates = sorted({f.parent for f in folders} | {m.absolute() for m in matches})
            raise HarnessError(
                f"{cell}: matches {len(candidates)} cells; choose one of:{_listing(candidates)}"
            )
        if folders:
            return folders
    if len(matches) > 1:
        raise HarnessError(
            f"{cell}: {len(matches)} ids start with this; give more characters:{_listing(matches)}"
        )
    if matches:
        return _seeds(matches[0])
    raise HarnessError(f"{cell}: no such cell in {results}; {_nearest(cell, results=results)}")


def title(folder: Path) -> str:
    """``task/encoder/strategy/id`` of a cell's folder."""
    return "/".join(folder.parts[-4:])


def _begin_with(cell: str, *, results: Path) -> list[Path]:
    if not cell or "/" in cell.strip("/"):
        return []
    return sorted(p for p in results.glob(f"*/*/*/{glob.escape(cell)}*") if _seeds(p))


def _below(folder: Path) -> list[Path]:
    """Seed folders below the folder of a task, encoder or strategy; empty for other folders."""
    if not folder.is_dir() or ARCHIVE in folder.absolute().parts:
        return []
    for depth in (2, 3, 4):
        seeds = [p.absolute() for p in folder.glob("/".join("*" * (depth - 1)) + "/seed-*") if p.is_dir()]
        if seeds:
            return sorted(seeds, key=lambda p: (p.parent, _number(p)))
    return []


def _nearest(cell: str, *, results: Path) -> str:
    if not results.is_dir():
        return "the folder does not exist; give --results DIR"
    titles = [title(p) for p in results.glob("*/*/*/*") if _seeds(p)]
    if not titles:
        return "it contains no cells"
    by_id: dict[str, str] = {t.rpartition("/")[2]: t for t in titles}
    name = cell.strip("/")
    near = difflib.get_close_matches(name, titles, n=5, cutoff=0.6)
    near += [by_id[i] for i in difflib.get_close_matches(name.rpartition("/")[2], by_id, n=5, cutoff=0.5)]
    if not near:
        return f"none of its {len(titles)} cells has a similar name (harness status {results} lists them)"
    return "similar cells:" + "".join(f"\n  {t}" for t in list(dict.fromkeys(near))[:5])


def _listing(cells: list[Path]) -> str:
    more = [f"\n  and {len(cells) - _LISTED} more"] if len(cells) > _LISTED else []
    return "".join([*(f"\n  {title(c)}" for c in cells[:_LISTED]), *more])


def is_running(folder: Path) -> bool:
    """Whether a sweep is running the cell of this seed folder."""
    return holder(folder) is not None


def _seeds(folder: Path) -> list[Path]:
    if folder.name.startswith("seed-") and folder.is_dir():
        return [folder.absolute()]
    return sorted((p.absolute() for p in folder.glob("seed-*") if p.is_dir()), key=_number)


def _number(folder: Path) -> tuple[int, str]:
    number = folder.name.removeprefix("seed-")
    return (int(number) if number.isdecimal() else -1, number)
