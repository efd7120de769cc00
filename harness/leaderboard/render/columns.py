"""Columns of a table for people: headings, and the text of each row."""

from __future__ import annotations

from collections.abc import Callable

from harness.core.redaction import printable
from harness.leaderboard.stats.comparisons import BOTH, EXAMPLES_ONLY
from harness.leaderboard.table.board import TaskTable
from harness.leaderboard.table.rows import BoardRow
from harness.leaderboard.table.run_warnings import MARK, has_warnings
from harness.leaderboard.views.view import p_text

Cell = Callable[[BoardRow], str]
INTERVAL, ERROR_REDUCTION = "95 % CI", "relative error reduction"
FAILED_OR_SKIPPED, TRAIN_SECONDS = "failed or skipped", "training (s)"


def clean(text: str) -> str:
    """The text on one line with control characters escaped, safe for a terminal."""
    if text.isprintable():  # fast path: most names are, and checking every character is slow
        return text
    return printable(text.replace("\r\n", " ").translate(dict.fromkeys(map(ord, "\n\r\t"), " ")))


def score_text(row: BoardRow) -> str:
    """``0.812 ± 0.010`` (mean and standard deviation; ``!`` if runs have warnings), or why there is no
    score."""
    if row.mean is None:
        if row.state == "diverged":
            return f"diverged ({row.diverged} of {len(row.scores)})"
        return "no test score" if row.state == "untested" else row.state
    deviation = f" ± {_number(row.std)}" if row.std is not None else ""
    return _number(row.mean) + deviation + (f" {MARK}" if has_warnings(row) else "")


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.4f}" if abs(value) < 10 else f"{value:.2f}"


def interval_text(row: BoardRow) -> str:
    """``0.79 to 0.83``; followed by ``*`` if it is over examples only, by ``+`` if it is Wilson's."""
    if row.ci is None:
        return ""
    mark = "" if row.ci_kind == BOTH else "*" if row.ci_kind == EXAMPLES_ONLY else "+"
    return f"{_number(row.ci[0])} to {_number(row.ci[1])}{mark}"


def tie_text(row: BoardRow) -> str:
    """``tied`` with the best row, empty if significantly worse, ``?`` if no test was possible."""
    return "tied" if row.tied else "?" if row.untested else ""


def _reduction(row: BoardRow) -> str:
    return "" if row.error_reduction is None else f"{100 * row.error_reduction:+.1f} %"


def _degenerate(row: BoardRow) -> str:
    return f"{row.degenerate} of {len(row.complete)}" if row.degenerate else ""


def _span(row: BoardRow) -> str:
    if row.std is None:
        return ""
    return f"{_number(min(row.scores))} to {_number(max(row.scores))}"


def _count(value: float | None) -> str:
    if value is None:
        return ""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.0f}"


def _seconds(row: BoardRow) -> str:
    value = row.average(lambda r: r.costs.train_seconds)
    return "several hosts" if len(row.hosts) > 1 else "" if value is None else f"{value:.1f}"


def failed_or_skipped(row: BoardRow) -> str:
    """``1 failed, 2 skipped``; empty if all its cells are complete."""
    return ", ".join(f"{n} {name}" for n, name in ((row.failed, "failed"), (row.skipped, "skipped")) if n)


def _label(name: str) -> Cell:
    return lambda row: row.labels.get(name, "")


def columns(table: TaskTable, *, detail: bool) -> list[tuple[str, bool, Cell]]:
    """(heading, right-aligned, text of a row) of each column that is not empty in this table.

    ``detail`` adds the columns that a narrow screen has no room for."""
    rows = table.rows
    labels = list(dict.fromkeys(label for row in rows for label in row.labels))
    out: list[tuple[str, bool, Cell]] = [(label, False, _label(label)) for label in labels]
    out.append((table.metric or "score", True, score_text))
    more: list[tuple[str, bool, Cell, bool]] = [
        ("min to max", True, _span, detail),
        (INTERVAL, True, interval_text, True),
        ("best", False, tie_text, True),
        (ERROR_REDUCTION, True, _reduction, True),
        ("p", True, lambda row: "" if row.p_baseline is None else p_text(row.p_baseline), True),
        ("n", True, lambda row: str(len(row.scores)), True),
        ("dev", True, lambda row: _number(row.dev), True),
        ("tried", True, lambda row: "" if row.tried is None else str(row.tried), True),
        ("degenerate", False, _degenerate, True),
        (FAILED_OR_SKIPPED, False, failed_or_skipped, True),
        (TRAIN_SECONDS, True, _seconds, detail),
        ("parameters", True, lambda row: _count(row.average(lambda r: r.parameters)), detail),
        ("trained parameters", True, lambda row: _count(row.average(lambda r: r.trained_parameters)), detail),
        ("note", False, lambda row: "; ".join(row.notes), True),
    ]
    out += [(name, right, cell) for name, right, cell, shown in more if shown]
    always = ("encoder", "strategy", table.metric or "score", "n")
    return [(name, right, cell) for name, right, cell in out if name in always or any(map(cell, rows))]
