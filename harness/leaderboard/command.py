"""``harness leaderboard DIR``: the table of a results folder."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path

from harness.errors import HarnessError
from harness.leaderboard import board, render
from harness.record import write_atomic

FORMATS = ("terminal", "md", "csv", "json")
BY_SUFFIX = {".md": "md", ".csv": "csv", ".json": "json", ".txt": "terminal", "": "terminal"}


def main(argv: list[str]) -> int:
    """Print or write the leaderboard. Raises HarnessError on a folder without records or an unknown field."""
    options = _parser().parse_args(argv)
    if options.select and options.group_by:
        raise HarnessError("--select and --group-by exclude each other: selecting works on variants")
    form = options.format or _by_suffix(options.output or "")
    found = board.read(Path(options.dir).expanduser(), tasks=options.task or ())
    fields = [name for group in options.group_by or () for name in group.split(",") if name]
    made = board.make_board(
        found.records,
        damaged=found.damaged,
        partial=options.partial,
        select=bool(options.select),
        group_by=fields,
        configs=found.configs,
    )
    _put(_rendered(made, form=form, to_file=bool(options.output)), options.output)
    if form in ("csv", "json"):
        for line in render.remarks(made):
            print(line, file=sys.stderr)
    return 0


def _by_suffix(output: str) -> str:
    suffix = Path(output).suffix
    if suffix.lower() not in BY_SUFFIX:
        named = ", ".join(s for s in BY_SUFFIX if s)
        raise HarnessError(
            f"--output {output}: the board is written as {named}, not {suffix}; or say --format"
        )
    return BY_SUFFIX[suffix.lower()]


def _rendered(made: board.Board, *, form: str, to_file: bool) -> str:
    if form == "md":
        return render.markdown(made)
    if form == "csv":
        return render.comma_separated(made)
    if form == "json":
        return render.as_json(made)
    if to_file or not sys.stdout.isatty():
        return render.plain(made)
    return render.terminal(made, width=shutil.get_terminal_size().columns, color="NO_COLOR" not in os.environ)


def _put(text: str, output: str | None) -> None:
    if output:
        write_atomic(Path(output).expanduser().absolute(), text.encode())
        print(f"written to {output}")
        return
    try:
        sys.stdout.write(text)
    except UnicodeEncodeError:
        sys.stdout.buffer.write(text.encode())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="harness leaderboard",
        description="One row a variant (task, encoder, strategy, settings): mean, sample deviation, range "
        "and number of its seeds on test. There are no intervals and no paired tests yet: whether two rows "
        "differ by more than chance is not said.",
        epilog="Examples: harness leaderboard results --select dev;"
        " harness leaderboard results --group-by encoder optimizer.lr --format md",
    )
    parser.add_argument(
        "dir", nargs="?", default="results", help="results folder, or a task's in it (default: results)"
    )
    parser.add_argument("--format", choices=FORMATS, help="default: by the suffix of --output, else terminal")
    parser.add_argument(
        "--select", choices=["dev"], help="of each encoder x strategy x task the variant that is best on dev"
    )
    parser.add_argument(
        "--group-by",
        nargs="+",
        metavar="FIELD",
        help="group by fields of the record or any resolved setting (optimizer.lr), not by variant",
    )
    parser.add_argument("--task", nargs="+", action="extend", metavar="NAME", help="show these tasks alone")
    parser.add_argument("--partial", action="store_true", help="show records of runs with a limit, too")
    parser.add_argument("--output", metavar="FILE", help="write to a file instead of the screen")
    return parser
