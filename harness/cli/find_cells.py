"""Finding cells by what a user writes: a path, ``task/encoder/strategy/id[/seed-n]``, or an id's start."""

from __future__ import annotations

import argparse
import difflib
import glob
from pathlib import Path

from harness.errors import HarnessError
from harness.records.lease import holder
from harness.records.lifecycle import ARCHIVE

_LISTED = 10


def cells_parser(name: str, *, about: str | None, epilog: str) -> argparse.ArgumentParser:
    """The arguments of a command that acts on cells: their names, and where the results are."""
    parser = argparse.ArgumentParser(prog=f"harness {name}", description=about, epilog=epilog)
    parser.add_argument(
        "cells",
        nargs="+",
        metavar="CELL",
        help="path, task/encoder/strategy/id[/seed-n], or the start of an id; "
        "task, task/encoder or task/encoder/strategy: all cells below it",
    )
    parser.add_argument("--results", type=Path, default=Path("results"), metavar="DIR")
    return parser


def find(cell: str, *, results: Path, groups: bool = False) -> list[Path]:
    """The seed folders that ``cell`` names, sorted.

    Args:
        cell: a path, ``task/encoder/strategy/id[/seed-n]``, or the start of an id.
        results: the results folder that names are looked up in.
        groups: whether a task, ``task/encoder`` or ``task/encoder/strategy`` names all cells below it.

    Raises:
        HarnessError: none, or several cells at once; the message names the nearest, or those.
    """
    for place in (Path(cell), results / cell):
        found = _seeds(place)
        if found:
            return found
    matches = _begin_with(cell, results=results)
    for place in (Path(cell), results / cell):
        found = _below(place)
        if found and (matches or not groups):
            named = sorted({f.parent for f in found} | {m.absolute() for m in matches})
            raise HarnessError(f"{cell}: {len(named)} cells are named so; write one of:{_listing(named)}")
        if found:
            return found
    if len(matches) > 1:
        raise HarnessError(f"{cell}: {len(matches)} cells begin so; write more of the id:{_listing(matches)}")
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


def _below(place: Path) -> list[Path]:
    """Seed folders below a task's, an encoder's or a strategy's folder; none of other folders."""
    if not place.is_dir() or ARCHIVE in place.absolute().parts:
        return []
    for depth in (2, 3, 4):
        found = [p.absolute() for p in place.glob("/".join("*" * (depth - 1)) + "/seed-*") if p.is_dir()]
        if found:
            return sorted(found, key=lambda p: (p.parent, _number(p)))
    return []


def _nearest(cell: str, *, results: Path) -> str:
    if not results.is_dir():
        return "there is no such folder; give --results DIR"
    titles = [title(p) for p in results.glob("*/*/*/*") if _seeds(p)]
    if not titles:
        return "it holds no cells"
    by_id: dict[str, str] = {t.rpartition("/")[2]: t for t in titles}
    wanted = cell.strip("/")
    near = difflib.get_close_matches(wanted, titles, n=5, cutoff=0.6)
    near += [by_id[i] for i in difflib.get_close_matches(wanted.rpartition("/")[2], by_id, n=5, cutoff=0.5)]
    if not near:
        return f"none of the {len(titles)} cells there is called anything like it: harness status {results}"
    return "the nearest:" + "".join(f"\n  {t}" for t in list(dict.fromkeys(near))[:5])


def _listing(cells: list[Path]) -> str:
    more = [f"\n  and {len(cells) - _LISTED} more"] if len(cells) > _LISTED else []
    return "".join([*(f"\n  {title(c)}" for c in cells[:_LISTED]), *more])


def is_running(folder: Path) -> bool:
    """Whether a sweep runs the cell of this seed folder."""
    return holder(folder) is not None


def _seeds(place: Path) -> list[Path]:
    if place.name.startswith("seed-") and place.is_dir():
        return [place.absolute()]
    return sorted((p.absolute() for p in place.glob("seed-*") if p.is_dir()), key=_number)


def _number(folder: Path) -> tuple[int, str]:
    number = folder.name.removeprefix("seed-")
    return (int(number) if number.isdecimal() else -1, number)
