"""The columns of a board as people read them: headings, and each row's text under them."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable

from harness.leaderboard.stats.comparisons import BOTH, EXAMPLES_ONLY
from harness.leaderboard.table.board import Table
from harness.leaderboard.table.rows import Row
from harness.leaderboard.views.view import p_text

Cell = Callable[[Row], str]


def clean(text: str) -> str:
    """One line, without control characters: what a name may put on a screen."""
    if text.isprintable():  # most are, and looking at each letter takes long
        return text
    text = text.replace("\r\n", " ").translate(dict.fromkeys(map(ord, "\n\r\t"), " "))
    return "".join(c for c in text if unicodedata.category(c) not in ("Cc", "Cs"))


def score_text(row: Row) -> str:
    """``0.812 ± 0.010``, or why there is none."""
    if row.mean is None:
        if row.state == "diverged":
            return f"diverged ({row.diverged} of {len(row.scores)})"
        return "no test split" if row.state == "untested" else row.state
    return _number(row.mean) + (f" ± {_number(row.std)}" if row.std is not None else "")


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.4f}" if abs(value) < 10 else f"{value:.2f}"


def interval_text(row: Row) -> str:
    """``0.79 to 0.83``; ``*`` behind one that is over examples only."""
    if row.ci is None:
        return ""
    mark = "" if row.ci_kind == BOTH else "*" if row.ci_kind == EXAMPLES_ONLY else "+"
    return f"{_number(row.ci[0])} to {_number(row.ci[1])}{mark}"


def tie_text(row: Row) -> str:
    """``tied`` with the best, nothing when a test told them apart, ``?`` where none could be made."""
    return "tied" if row.tied else "?" if row.untested else ""


def _reduction(row: Row) -> str:
    return "" if row.error_reduction is None else f"{100 * row.error_reduction:+.1f} %"


def _degenerate(row: Row) -> str:
    return f"{row.degenerate} of {len(row.complete)}" if row.degenerate else ""


def _span(row: Row) -> str:
    if row.std is None:
        return ""
    return f"{_number(min(row.scores))} to {_number(max(row.scores))}"


def _count(value: float | None) -> str:
    if value is None:
        return ""
    for size, token in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{token}"
    return f"{value:.0f}"


def _seconds(row: Row) -> str:
    value = row.average(lambda r: r.costs.train_seconds)
    return "several hosts" if len(row.hosts) > 1 else "" if value is None else f"{value:.1f}"


def _lost(row: Row) -> str:
    parts = [f"{n} {what}" for n, what in ((row.failed, "failed"), (row.skipped, "skipped")) if n]
    return ", ".join(parts)


def _label(name: str) -> Cell:
    return lambda row: row.labels.get(name, "")


def columns(table: Table, *, detail: bool) -> list[tuple[str, bool, Cell]]:
    """(heading, right-aligned, text of a row) of each column that says anything in this table."""
    rows = table.rows
    labels = list(dict.fromkeys(label for row in rows for label in row.labels))
    out: list[tuple[str, bool, Cell]] = [(label, False, _label(label)) for label in labels]
    out.append((table.metric or "score", True, score_text))
    more: list[tuple[str, bool, Cell, bool]] = [
        ("min to max", True, _span, detail),
        ("95 %", True, interval_text, True),
        ("best", False, tie_text, True),
        ("less error", True, _reduction, True),
        ("p", True, lambda row: "" if row.p_baseline is None else p_text(row.p_baseline), True),
        ("n", True, lambda row: str(len(row.scores)), True),
        ("dev", True, lambda row: _number(row.dev), True),
        ("tried", True, lambda row: "" if row.tried is None else str(row.tried), True),
        ("degenerate", False, _degenerate, True),
        ("lost", False, _lost, True),
        ("train s", True, _seconds, detail),
        ("parameters", True, lambda row: _count(row.average(lambda r: r.parameters)), detail),
        ("trained", True, lambda row: _count(row.average(lambda r: r.trained_parameters)), detail),
        ("note", False, lambda row: "; ".join(row.notes), True),
    ]
    out += [(name, right, cell) for name, right, cell, wanted in more if wanted]
    kept = ("encoder", "strategy", table.metric or "score", "n")
    return [(name, right, cell) for name, right, cell in out if name in kept or any(map(cell, rows))]
