"""Published results of the works this harness reproduces, beside our rows and never among them.

``papers.json`` has, for each figure, the work, its table, data set, split, system, the metric and value as
printed, and the same value on our scale (``our_metric``, ``our_value``: 3.6 % error is an accuracy of 0.964).
``read`` of a work is the page the figure was copied from. Table 2 of Peters, Ruder and Smith 2019 (arXiv
1903.05987) is missing: no text with its figures could be verified.

A figure is shown beside the rows of the same data set (by the task's name) with the encoder and strategy of
the published system. Data, splits and training differ, so it is not the same experiment.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import NotRequired, TypedDict

from harness.leaderboard.table.board import Board, TaskTable
from harness.leaderboard.table.rows import BoardRow
from harness.leaderboard.views.view import View, text

NOTE = (
    "published figures are copied from the cited works, not reproduced here: other code, often other splits "
    "and other tuning; they are not part of ranks, ties or tests"
)
MAX_ROWS = 3
"""Maximum number of our rows beside a figure."""


class Work(TypedDict):
    """A cited work."""

    cite: str
    url: str
    read: str


class Figure(TypedDict):
    """One published score; see the module's docstring."""

    work: str
    table: str
    dataset: str
    split: str
    system: str
    metric: str
    value: float
    our_metric: str
    our_value: float
    tasks: list[str]
    encoders: list[str]
    strategies: list[str]
    spread: NotRequired[float]
    runs: NotRequired[int]


class PublishedFigures(TypedDict):
    """Contents of ``papers.json``."""

    works: dict[str, Work]
    figures: list[Figure]


class FigureRow(TypedDict):
    """A published figure as a row of the view."""

    task: str
    system: str
    printed: str
    on_our_scale: float
    metric: str
    split: str
    ours: list[str]
    source: str
    url: str


@cache
def bundled() -> PublishedFigures:
    """The figures in ``papers.json``."""
    data: PublishedFigures = json.loads(
        (files("harness.leaderboard") / "papers.json").read_text(encoding="utf-8")
    )
    return data


def figures_beside(board: Board) -> list[FigureRow]:
    """The figures on data sets of this leaderboard, each with our rows of the same system."""
    return [
        _figure_row(table, figure)
        for table in board.tables
        for figure in bundled()["figures"]
        if _same_task(table.task, figure["tasks"])
    ]


def view(board: Board) -> View:
    """The figures as a view; a note if there are none for these tasks."""
    shown = View("papers", "Published figures, beside ours", [*figures_beside(board)], [NOTE])
    if not shown.rows:
        datasets = sorted({f["dataset"] for f in bundled()["figures"]})
        shown.notes = [f"no published figures for these tasks; available for {', '.join(datasets)}"]
    return shown


def _same_task(task: str, names: list[str]) -> bool:
    """Whether a task has exactly one of these names: ``trec_fine`` is not ``trec``."""
    return task.lower().replace("-", "_") in names


def _figure_row(table: TaskTable, figure: Figure) -> FigureRow:
    work = bundled()["works"][figure["work"]]
    spread = f" ± {figure['spread']:g}" if "spread" in figure else ""
    runs = f" (mean of {figure['runs']} runs)" if "runs" in figure else ""
    comparable = figure["our_metric"] == table.metric and figure["split"].startswith("test")
    rows = [row for row in table.rows if _matches(row, figure)] if comparable else []
    return {
        "task": table.task,
        "system": figure["system"],
        "printed": f"{figure['metric']} {figure['value']:g}{spread}{runs}",
        "on_our_scale": figure["our_value"],
        "metric": figure["our_metric"],
        "split": figure["split"],
        "ours": [_our_score(row) for row in rows[:MAX_ROWS]],
        "source": f"{work['cite']}, {figure['table']}",
        "url": work["url"],
    }


def _matches(row: BoardRow, figure: Figure) -> bool:
    """Whether a row has a score, and the encoder and strategy of the figure."""
    encoder, strategy = row.labels.get("encoder", ""), row.labels.get("strategy", "")
    return (
        row.mean is not None
        and any(encoder == name or encoder.startswith(f"{name}_") for name in figure["encoders"])
        and (not figure["strategies"] or strategy in figure["strategies"])
    )


def _our_score(row: BoardRow) -> str:
    interval = f" ({text(row.ci[0])} to {text(row.ci[1])})" if row.ci else ""
    return f"{row.name} {text(row.mean)}{interval}, n = {len(row.scores)}"
