"""``harness leaderboard DIR``: the table of a results folder, and what it is worth."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from harness.core.files import write_atomic
from harness.errors import HarnessError
from harness.leaderboard import wandb_report
from harness.leaderboard.html import data as html_data
from harness.leaderboard.html import page
from harness.leaderboard.render import data as plain
from harness.leaderboard.render import latex, terminal
from harness.leaderboard.render import text as render
from harness.leaderboard.stats import across_tasks
from harness.leaderboard.stats.comparisons import (
    EXAMPLES_ONLY,
    NO_SPREAD,
    Samples,
    add_baseline,
    add_intervals,
    mark_ties,
)
from harness.leaderboard.table import board
from harness.leaderboard.views import comparisons, cost
from harness.leaderboard.views import published as papers
from harness.leaderboard.views.view import View

FORMATS = ("terminal", "md", "csv", "json", "latex", "html")
BY_SUFFIX = {
    ".md": "md", ".csv": "csv", ".json": "json", ".tex": "latex", ".html": "html", ".txt": "terminal",
    "": "terminal",
}  # fmt: skip
SHOWN = 50
"""Rows of a table that get an interval when nothing is said: each takes files to be read."""


def main(argv: list[str]) -> int:
    """Print or write the leaderboard. Raises HarnessError on a folder without records or an unknown field."""
    options = _parser().parse_args(argv)
    if options.select and options.group_by:
        raise HarnessError("--select and --group-by exclude each other: selecting works on variants")
    if options.intervals < 0:
        raise HarnessError(f"--intervals {options.intervals}: a number of rows is wanted, 0 for none")
    form = "json" if options.wandb else options.format or _by_suffix(options.output or "")
    budget = cost.parse_budget(options.budget) if options.budget else None
    found = board.read(Path(options.dir).expanduser(), tasks=options.task or ())
    fields = [name for group in options.group_by or () for name in group.split(",") if name]
    made = board.make_board(
        found.records,
        damaged=found.damaged,
        partial=options.partial,
        select=bool(options.select),
        group_by=fields,
        configs=found.configs,
        mix=options.mix,
        skipped=options.skipped == "show",
        train_size=options.train_size,
    )
    samples = Samples(found.configs)
    _add_statistics(made, samples, options)
    if form == "html" or options.wandb:
        data = _report(made, samples, options, budget)
        if options.wandb:
            return wandb_report.publish(made, data, options.wandb, folder=_waiting(options))
        _put(page.page(data), options.output)
        return 0
    views = _views(made, samples, options, budget)
    published = [papers.view(made)] if options.papers else []
    _put(_rendered(made, views, published, form=form, to_file=bool(options.output)), options.output)
    if form in ("csv", "json"):
        for line in plain.remarks(made, [*views, *published]):
            print(line, file=sys.stderr)
    return 0


def _add_statistics(made: board.Board, samples: Samples, options: argparse.Namespace) -> None:
    if options.baseline:
        comparisons.find_somewhere(made, [options.baseline], option="--baseline")
    for table in made.tables:
        add_intervals(table.rows, samples, most=options.intervals)
        mark_ties(table.rows, samples, most=options.intervals)
        if options.baseline:
            row = comparisons.find(table, options.baseline, option="--baseline")
            if row is None:
                table.notes.append(f"note: no row {options.baseline} here to compare with")
            else:
                add_baseline(table.rows, row, samples)
                table.notes.append(
                    f"note: less error: relative error reduction against {row.name}; p: paired, Holm-adjusted"
                )
        table.notes += _about_intervals(table, most=options.intervals)


def _about_intervals(table: board.Table, *, most: int) -> list[str]:
    """How to read the intervals of this table, and why rows have none."""
    scored = [row for row in table.rows if row.mean is not None]
    out = []
    if any(row.ci_kind == EXAMPLES_ONLY for row in scored):
        out.append("note: * one seed: the interval is over examples only, the spread of seeds is not in it")
    if any(row.ci_kind == NO_SPREAD for row in scored):
        out.append("note: + all examples and seeds say the same: Wilson's limit for so many examples")
    if any(row.tied for row in scored[1:]):
        out.append("note: tied: a paired test (0.05, Holm) cannot tell these rows from the best")
    if any(row.untested for row in scored):
        out.append("note: ?: no test against the best row could be made")
    if any(row.ci_kind == EXAMPLES_ONLY for row in scored) and len(scored) > 1:
        out.append("note: rows of one seed are compared over examples only: another seed may turn the order")
    reasons: dict[str, int] = {}
    for row in scored[:most]:
        if row.no_interval:
            reasons[row.no_interval] = reasons.get(row.no_interval, 0) + 1
    out += [f"note: {n} of {len(scored)} rows without an interval: {why}" for why, n in reasons.items()]
    if 0 < most < len(scored):
        out.append(f"note: intervals for the best {most} of {len(scored)} rows; --intervals N for more")
    return out


def _views(
    made: board.Board, samples: Samples, options: argparse.Namespace, budget: dict[str, float] | None
) -> list[View]:
    views: list[View] = []
    if options.compare:
        if len(options.compare) < 2:
            raise HarnessError(f"--compare {options.compare[0]}: takes at least two rows")
        views += comparisons.comparisons(made, options.compare, samples, pair_seeds=options.pair_seeds)
    if options.across:
        views.append(across_tasks.across(made, samples))
    if options.by_slice:
        views += comparisons.slices(made, samples, most=options.intervals or SHOWN)
    if options.cost:
        views += cost.check_costs(made)
    if options.curve:
        views += comparisons.curves(made)
    if budget is not None:
        views.append(cost.recommend(made, budget, samples))
    return views


def _report(
    made: board.Board, samples: Samples, options: argparse.Namespace, budget: dict[str, float] | None
) -> dict[str, Any]:
    """The data of the HTML report: it holds all views; rows named in --compare are chosen to begin with."""
    if options.compare:
        comparisons.find_somewhere(made, options.compare, option="--compare")
    return html_data.report(
        made,
        samples,
        html_data.Wanted(
            folder=options.dir,
            most=options.intervals,
            pair_seeds=options.pair_seeds,
            papers=options.papers,
            chosen=options.compare or (),
            budget=budget,
        ),
    )


def _waiting(options: argparse.Namespace) -> Path:
    """Where what cannot be sent is written: --output, or a folder of the results."""
    if options.output:
        return Path(options.output).expanduser()
    return Path(options.dir).expanduser() / ".wandb" / options.wandb.replace("/", "_")


def _by_suffix(output: str) -> str:
    suffix = Path(output).suffix
    if suffix.lower() not in BY_SUFFIX:
        named = ", ".join(s for s in BY_SUFFIX if s)
        raise HarnessError(
            f"--output {output}: the board is written as {named}, not {suffix}; or say --format"
        )
    return BY_SUFFIX[suffix.lower()]


def _rendered(
    made: board.Board, views: list[View], published: list[View], *, form: str, to_file: bool
) -> str:
    """The board, or the views in its place; the published figures behind them, apart from both."""
    if form == "json":
        return plain.as_json(made, [*views, *published])
    if form == "csv" and published:
        raise HarnessError("--format csv holds one kind of table: --papers goes with the other formats")
    if form == "csv" and len({view.name for view in views}) > 1:
        raise HarnessError("--format csv holds one kind of table: ask for one view, or for json")
    board_as, views_as = _writers(form, to_file=to_file)
    text = views_as(views) if views else board_as(made)
    return text + ("\n" + views_as(published) if published else "")


def _writers(form: str, *, to_file: bool) -> tuple[Callable[..., str], Callable[..., str]]:
    """What writes a board and what writes views."""
    if form == "terminal" and not to_file and sys.stdout.isatty():
        width, color = shutil.get_terminal_size().columns, "NO_COLOR" not in os.environ
        on_screen = (terminal.terminal, terminal.views_on_screen)
        board_as, views_as = (partial(to_text, width=width, color=color) for to_text in on_screen)
        return board_as, views_as
    return {
        "terminal": (render.plain, render.views_as_text),
        "md": (render.markdown, render.views_as_markdown),
        "csv": (plain.as_csv, plain.views_as_csv),
        "latex": (latex.latex, latex.latex_views),
    }[form]


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
        "and number of its seeds on test, an interval of 95 % over seeds and examples, and which rows a "
        "paired test cannot tell from the best.",
        epilog="ROW is encoder/strategy, with the variant behind it where there are several, or the start "
        "of a cell's id. Examples: harness leaderboard results --select dev;"
        " harness leaderboard results --compare glove/frozen bert/full;"
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
    parser.add_argument(
        "--train-size",
        metavar="N",
        help="show what was trained on N examples alone; all: on the most of each task",
    )
    parser.add_argument("--partial", action="store_true", help="show records of runs with a limit, too")
    parser.add_argument(
        "--skipped",
        choices=["show", "hide"],
        default="hide",
        help="whether skipped cells (senseless, or equal to others) have rows; hide (default) lists their "
        "reasons alone",
    )
    parser.add_argument(
        "--mix", action="store_true", help="put other data and other result versions of a task into one table"
    )
    parser.add_argument(
        "--intervals",
        type=int,
        default=SHOWN,
        metavar="N",
        help=f"for the best N rows a table (default: {SHOWN})",
    )
    _add_views(parser)
    parser.add_argument("--output", metavar="FILE", help="write to a file instead of the screen")
    parser.add_argument(
        "--papers", action="store_true", help="published figures on the same data beside ours, with sources"
    )
    parser.add_argument(
        "--wandb",
        metavar="PROJECT",
        help="publish tables, plots, the report to Weights & Biases, [ENTITY/]PROJECT; offline: write what "
        "would be sent to --output, a folder",
    )
    return parser


def _add_views(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--baseline", metavar="ROW", help="relative error reduction against this row, with a paired test"
    )
    parser.add_argument("--compare", nargs="+", metavar="ROW", help="paired tests of all pairs of these rows")
    parser.add_argument(
        "--pair-seeds",
        action="store_true",
        help="with --compare: pair equal seeds rather than take them as independent draws",
    )
    parser.add_argument(
        "--across", action="store_true", help="means, average ranks, Friedman's test over tasks"
    )
    parser.add_argument("--by-slice", action="store_true", help="scores on the examples of each tag")
    parser.add_argument(
        "--cost", action="store_true", help="seconds, memory, parameters, storage; Pareto fronts"
    )
    parser.add_argument("--curve", action="store_true", help="scores over the size of the training set")
    parser.add_argument(
        "--budget",
        metavar="COST=MOST,...",
        help="what to take within a budget, such as train_seconds=60,storage_mb=10",
    )
