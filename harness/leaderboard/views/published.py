"""Published figures of the works this harness re-runs, beside ours and never among them.

``papers.json`` holds, of each figure, the work, its table, data set, split, system, the metric and value as
printed, and the same value on our scale (``our_metric``, ``our_value``: 3.6 % error is an accuracy of 0.964).
``read`` of a work says where the figure was read. Table 2 of Peters, Ruder and Smith 2019 (arXiv 1903.05987)
is not there: its figures were found in no text that could be checked.

A figure stands beside the rows of the same data set (by the task's name) whose encoder and strategy are those
of the published system. Data, splits and training differ: the two are not the same experiment.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

from harness.leaderboard.table.board import Board, Table
from harness.leaderboard.table.rows import Row
from harness.leaderboard.views.view import View, text

NOTE = (
    "published figures are copied from the works named, not re-run here: other code, often other splits and "
    "other tuning; they take no part in ranks, ties or tests"
)


@cache
def bundled() -> dict[str, Any]:
    """``works`` by key and the list of ``figures``."""
    data = json.loads((files("harness.leaderboard") / "papers.json").read_text(encoding="utf-8"))
    return dict(data)


def beside(board: Board) -> list[dict[str, Any]]:
    """The figures on data of this board, in its order, each with our rows that answer to it."""
    out = []
    for table in board.tables:
        for figure in bundled()["figures"]:
            if _same_task(table.task, figure["tasks"]):
                out.append(_line(table, figure))
    return out


def view(board: Board) -> View:
    """The figures as a view; a note where there are none for these tasks."""
    shown = View("papers", "Published figures, beside ours", beside(board), [NOTE])
    if not shown.rows:
        known = sorted({f["dataset"] for f in bundled()["figures"]})
        shown.notes = [f"no published figures for these tasks; there are some for {', '.join(known)}"]
    return shown


def _same_task(task: str, names: list[str]) -> bool:
    """Whether a task goes by one of these names, exactly: ``trec_fine`` is not ``trec``."""
    return task.lower().replace("-", "_") in names


def _line(table: Table, figure: dict[str, Any]) -> dict[str, Any]:
    work = bundled()["works"][figure["work"]]
    spread = f" ± {figure['spread']:g}" if "spread" in figure else ""
    runs = f" (mean of {figure['runs']} runs)" if "runs" in figure else ""
    comparable = figure["our_metric"] == table.metric and figure["split"].startswith("test")
    rows = [row for row in table.rows if _answers(row, figure)] if comparable else []
    return {
        "task": table.task,
        "system": figure["system"],
        "printed": f"{figure['metric']} {figure['value']:g}{spread}{runs}",
        "on_our_scale": figure["our_value"],
        "metric": figure["our_metric"],
        "split": figure["split"],
        "ours": [_ours(row) for row in rows[:3]],
        "source": f"{work['cite']}, {figure['table']}",
        "url": work["url"],
    }


def _answers(row: Row, figure: dict[str, Any]) -> bool:
    """Whether a row is an encoder of that kind under that strategy, with a score."""
    encoder, strategy = row.labels.get("encoder", ""), row.labels.get("strategy", "")
    return (
        row.mean is not None
        and any(encoder == name or encoder.startswith(f"{name}_") for name in figure["encoders"])
        and (not figure["strategies"] or strategy in figure["strategies"])
    )


def _ours(row: Row) -> str:
    interval = f" ({text(row.ci[0])} to {text(row.ci[1])})" if row.ci else ""
    return f"{row.name} {text(row.mean)}{interval}, n = {len(row.scores)}"
