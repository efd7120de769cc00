"""``harness leaderboard DIR``: tables with confidence intervals and tests, views, and the HTML report."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from harness.core.files import write_atomic
from harness.errors import HarnessError
from harness.leaderboard import wandb_report
from harness.leaderboard.html import data as html_data
from harness.leaderboard.html import page
from harness.leaderboard.html.schema import ReportData
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
from harness.records import trust

FORMATS = ("terminal", "md", "csv", "json", "latex", "html")
BY_SUFFIX = {
    ".md": "md", ".csv": "csv", ".json": "json", ".tex": "latex", ".html": "html", ".txt": "terminal",
    "": "terminal",
}  # fmt: skip
DEFAULT_INTERVALS = 50
"""Default number of rows per table with an interval: for each, the predictions of all seeds are read."""


def main(argv: list[str]) -> int:
    """Print or write the leaderboard. Raises HarnessError on a folder without records or an unknown field."""
    options = _parser().parse_args(argv)
    if options.select and options.group_by:
        raise HarnessError("--select and --group-by exclude each other: --select compares variants")
    if options.intervals < 0:
        raise HarnessError(f"--intervals {options.intervals}: expected a number of rows, 0 for none")
    form = "json" if options.wandb else options.format or _format_of(options.output or "")
    budget = cost.parse_budget(options.budget) if options.budget else None
    results = board.read(Path(options.dir).expanduser(), tasks=options.task or ())
    fields = [name for group in options.group_by or () for name in group.split(",") if name]
    tables = board.make_board(
        results.records,
        damaged=results.damaged,
        partial=options.partial,
        select=bool(options.select),
        group_by=fields,
        configs=results.configs,
        mix=options.mix,
        skipped=options.skipped == "show",
        train_size=options.train_size,
    )
    samples = Samples(results.configs, trust=trust.from_options(options))
    _add_statistics(tables, samples, options)
    if form == "html" or options.wandb:
        report = _report(tables, samples, options, budget)
        if options.wandb:
            return wandb_report.publish(tables, report, options.wandb, folder=_offline_folder(options))
        _write(page.page(report), options.output)
        return 0
    views = _views(tables, samples, options, budget)
    published = [papers.view(tables)] if options.papers else []
    _write(_render(tables, views, published, form=form, to_file=bool(options.output)), options.output)
    if form in ("csv", "json"):
        for line in plain.remarks(tables, [*views, *published]):
            print(line, file=sys.stderr)
    return 0


def _add_statistics(tables: board.Board, samples: Samples, options: argparse.Namespace) -> None:
    """Add intervals, marks of ties and the comparison with the baseline to the rows, and notes on them."""
    if options.baseline:
        comparisons.check_names(tables, [options.baseline], option="--baseline")
    for table in tables.tables:
        add_intervals(table.rows, samples, max_rows=options.intervals)
        mark_ties(table.rows, samples, max_rows=options.intervals)
        if options.baseline:
            row = comparisons.find(table, options.baseline, option="--baseline")
            if row is None:
                table.notes.append(f"note: no comparison with {options.baseline}: this table has no such row")
            else:
                add_baseline(table.rows, row, samples)
                table.notes.append(
                    f"note: relative error reduction against {row.name}; p: paired test, Holm-adjusted"
                )
        table.notes += _interval_notes(table, max_rows=options.intervals)


def _interval_notes(table: board.TaskTable, *, max_rows: int) -> list[str]:
    """Footnotes to the intervals and tests of a table, and why rows have none."""
    scored = [row for row in table.rows if row.mean is not None]
    out = []
    if any(row.ci_kind == EXAMPLES_ONLY for row in scored):
        out.append("note: * one seed: the interval does not include the variance between seeds")
    if any(row.ci_kind == NO_SPREAD for row in scored):
        out.append("note: + all examples and seeds agree: Wilson's limit for this number of examples")
    if any(row.tied for row in scored[1:]):
        out.append("note: tied: not significantly different from the best row (paired test, p >= 0.05, Holm)")
    if any(row.untested for row in scored):
        out.append("note: ?: no test against the best row was possible")
    if any(row.ci_kind == EXAMPLES_ONLY for row in scored) and len(scored) > 1:
        out.append(
            "note: rows with one seed are compared over examples only: another seed may change the ranking"
        )
    reasons: dict[str, int] = {}
    for row in scored[:max_rows]:
        if row.no_interval:
            reasons[row.no_interval] = reasons.get(row.no_interval, 0) + 1
    out += [
        f"note: {n} of {len(scored)} rows without a confidence interval: {why}" for why, n in reasons.items()
    ]
    if 0 < max_rows < len(scored):
        out.append(
            f"note: confidence intervals for the best {max_rows} of {len(scored)} rows; see --intervals N"
        )
    return out


def _views(
    tables: board.Board, samples: Samples, options: argparse.Namespace, budget: dict[str, float] | None
) -> list[View]:
    views: list[View] = []
    if options.compare:
        if len(options.compare) < 2:
            raise HarnessError(f"--compare {options.compare[0]}: expected at least two rows")
        views += comparisons.comparisons(tables, options.compare, samples, pair_seeds=options.pair_seeds)
    if options.across:
        views.append(across_tasks.across(tables, samples))
    if options.by_slice:
        views += comparisons.slices(tables, samples, max_rows=options.intervals or DEFAULT_INTERVALS)
    if options.cost:
        views += cost.check_costs(tables)
    if options.curve:
        views += comparisons.curves(tables)
    if budget is not None:
        views.append(cost.recommend(tables, budget, samples))
    return views


def _report(
    tables: board.Board, samples: Samples, options: argparse.Namespace, budget: dict[str, float] | None
) -> ReportData:
    """The data of the HTML report, which has all views; rows named in --compare are selected initially."""
    if options.compare:
        comparisons.check_names(tables, options.compare, option="--compare")
    return html_data.report(
        tables,
        samples,
        html_data.ReportOptions(
            folder=options.dir,
            max_rows=options.intervals,
            pair_seeds=options.pair_seeds,
            papers=options.papers,
            selected=options.compare or (),
            budget=budget,
        ),
    )


def _offline_folder(options: argparse.Namespace) -> Path:
    """Folder for files that cannot be sent: --output, or a subfolder of the results."""
    if options.output:
        return Path(str(options.output)).expanduser()
    return Path(str(options.dir)).expanduser() / ".wandb" / str(options.wandb).replace("/", "_")


def _format_of(output: str) -> str:
    suffix = Path(output).suffix
    if suffix.lower() not in BY_SUFFIX:
        supported = ", ".join(s for s in BY_SUFFIX if s)
        raise HarnessError(
            f"--output {output}: expected the suffix {supported}, not {suffix}; or set --format"
        )
    return BY_SUFFIX[suffix.lower()]


def _render(
    tables: board.Board, views: list[View], published: list[View], *, form: str, to_file: bool
) -> str:
    """The tables, or the views instead of them; then the published figures."""
    if form == "json":
        return plain.as_json(tables, [*views, *published])
    if form == "csv" and published:
        raise HarnessError("--format csv has one kind of table: --papers needs another format")
    if form == "csv" and len({view.name for view in views}) > 1:
        raise HarnessError("--format csv has one kind of table: choose one view, or --format json")
    board_as, views_as = _writers(form, to_file=to_file)
    text = views_as(views) if views else board_as(tables)
    return text + ("\n" + views_as(published) if published else "")


def _writers(form: str, *, to_file: bool) -> tuple[Callable[..., str], Callable[..., str]]:
    """The functions that render the tables and the views in a format."""
    if form == "terminal" and not to_file and sys.stdout.isatty():
        width, color = shutil.get_terminal_size().columns, "NO_COLOR" not in os.environ
        renderers = (terminal.terminal, terminal.views_on_screen)
        board_as, views_as = (partial(to_text, width=width, color=color) for to_text in renderers)
        return board_as, views_as
    return {
        "terminal": (render.plain, render.views_as_text),
        "md": (render.markdown, render.views_as_markdown),
        "csv": (plain.as_csv, plain.views_as_csv),
        "latex": (latex.latex, latex.latex_views),
    }[form]


def _write(text: str, output: str | None) -> None:
    if output:
        write_atomic(Path(output).expanduser().absolute(), text.encode())
        print(f"wrote {output}")
        return
    try:
        sys.stdout.write(text)
    except UnicodeEncodeError:
        sys.stdout.buffer.write(text.encode())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="harness leaderboard",
        description="One row per variant (task, encoder, strategy, hyperparameters): mean, sample standard "
        "deviation and range of the test scores of its seeds, a 95 % confidence interval over seeds and "
        "examples, and the rows that do not differ significantly from the best one.",
        epilog="ROW is encoder/strategy, followed by the variant if there are several, or the start of a "
        "cell id. Examples: harness leaderboard results --select dev;"
        " harness leaderboard results --compare glove/frozen bert/full;"
        " harness leaderboard results --group-by encoder optimizer.lr --format md",
    )
    parser.add_argument(
        "dir",
        nargs="?",
        default="results",
        help="results folder, or the folder of a task in it (default: results)",
    )
    parser.add_argument("--format", choices=FORMATS, help="default: the suffix of --output, or terminal")
    parser.add_argument("--output", metavar="FILE", help="write to a file instead of standard output")
    parser.add_argument(
        "--papers", action="store_true", help="add published results on the same data sets, with sources"
    )
    parser.add_argument(
        "--wandb",
        metavar="PROJECT",
        help="publish tables, plots and the report to Weights & Biases, [ENTITY/]PROJECT; offline: write the "
        "files to the folder --output",
    )
    trust.add_options(parser)
    _add_selection(parser)
    _add_views(parser)
    return parser


def _add_selection(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--select",
        choices=["dev"],
        help="keep the variant with the best dev score per task, encoder, strategy",
    )
    parser.add_argument(
        "--group-by",
        nargs="+",
        metavar="FIELD",
        help="group by record fields or resolved settings (such as optimizer.lr) instead of by variant",
    )
    parser.add_argument("--task", nargs="+", action="extend", metavar="NAME", help="show only these tasks")
    parser.add_argument(
        "--train-size",
        metavar="N",
        help="show only cells with N training examples; all: the largest training set of each task",
    )
    parser.add_argument("--partial", action="store_true", help="also show records of runs with a limit")
    parser.add_argument(
        "--skipped",
        choices=["show", "hide"],
        default="hide",
        help="show: add rows for skipped cells (invalid, or identical to another cell); hide (default): list "
        "only their reasons",
    )
    parser.add_argument(
        "--mix",
        action="store_true",
        help="merge records of different data and result versions of a task into one table, with a warning",
    )
    parser.add_argument(
        "--intervals",
        type=int,
        default=DEFAULT_INTERVALS,
        metavar="N",
        help="confidence intervals and tests for the best N rows per table (default: %(default)s)",
    )


def _add_views(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--baseline", metavar="ROW", help="relative error reduction against this row, with a paired test"
    )
    parser.add_argument("--compare", nargs="+", metavar="ROW", help="paired tests of all pairs of these rows")
    parser.add_argument(
        "--pair-seeds",
        action="store_true",
        help="with --compare: pair equal seeds instead of treating them as independent draws",
    )
    parser.add_argument(
        "--across",
        action="store_true",
        help="mean, interquartile mean, average rank, Friedman test over tasks",
    )
    parser.add_argument("--by-slice", action="store_true", help="scores on the examples of each tag")
    parser.add_argument(
        "--cost", action="store_true", help="seconds, memory, parameters and storage, with Pareto fronts"
    )
    parser.add_argument(
        "--curve", action="store_true", help="learning curves: score against training-set size"
    )
    parser.add_argument(
        "--budget",
        metavar="COST=MAX,...",
        help="the best row within a budget, such as train_seconds=60,storage_mb=10",
    )
