"""``harness leaderboard DIR --wandb [ENTITY/]PROJECT``: publish tables, plots and the report.

The records on disk are the source of truth: everything is computed from them each time, and nothing is read
back. One run of the project, ``leaderboard``, has a table of rows and one of seeds, a plot of score against
training seconds per task, and an artifact with the report and the leaderboard as HTML, JSON, CSV and
Markdown. With ``wandb-workspaces`` a workspace and a report of the project are added. Offline, the same files
and a description of plots, workspace and report are written to a folder instead.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Protocol, TypedDict
from urllib.parse import urlparse

from harness.core.files import write_atomic
from harness.core.wandb_server import has_api_key
from harness.errors import HarnessError
from harness.leaderboard.html import page
from harness.leaderboard.html.schema import ReportData
from harness.leaderboard.render import data as plain
from harness.leaderboard.render import text as render
from harness.leaderboard.table.board import Board

RUN = "leaderboard"
HOST = "https://api.wandb.ai"
INSTALL = "pip install 'transfer-harness[wandb]'"


class SeedScores(TypedDict):
    """One complete cell, as a row of the table of seeds."""

    task: str
    row: str
    metric: str
    seed: int
    score: float | None
    dev: float | None
    train_seconds: float
    cell: str
    partial: bool


class Dashboard(Protocol):
    """A workspace or report of wandb-workspaces that is not saved yet."""

    @property
    def url(self) -> str: ...

    def save(self) -> object: ...


def publish(board: Board, data: ReportData, project: str, *, folder: Path) -> int:
    """Send a leaderboard, or write the files to ``folder`` if they cannot be sent.

    Args:
        board: the leaderboard.
        data: of its report, from :func:`harness.leaderboard.html.data.report`.
        project: ``PROJECT`` or ``ENTITY/PROJECT``.
        folder: for the files if they cannot be sent.

    Raises:
        HarnessError: wandb is not installed, the project's name is invalid, or the server reports an error.
    """
    entity, name = _split_name(project)
    if importlib.util.find_spec("wandb") is None:
        raise HarnessError(f"--wandb {project}: the package wandb is not installed; {INSTALL}")
    reason = offline_reason()
    contents = files(board, data)
    if reason:
        write(contents, plan(board, entity=entity, project=name), folder)
        print(f"wandb: nothing was sent ({reason}); the files are in {folder}")
        return 0
    try:
        links = send(board, contents, entity=entity, project=name)
    except Exception as e:
        raise HarnessError(
            f"--wandb {project}: {type(e).__name__}: {e}; WANDB_MODE=offline writes the files to a folder"
        ) from e
    for link in links:
        print(f"wandb: {link}")
    return 0


def _split_name(project: str) -> tuple[str | None, str]:
    entity, _, name = project.rpartition("/")
    if not name or "/" in entity or any(c in project for c in "\\#?%:"):
        raise HarnessError(f"--wandb {project!r}: expected PROJECT or ENTITY/PROJECT")
    return entity or None, name


def offline_reason() -> str:
    """Why nothing can be sent; "" if it can."""
    mode = os.environ.get("WANDB_MODE", "").lower()
    if mode in ("offline", "disabled", "dryrun"):
        return f"WANDB_MODE={mode}"
    base = os.environ.get("WANDB_BASE_URL", HOST)
    url = urlparse(base)
    if not has_api_key(url.hostname or ""):
        return "no API key: run wandb login, or set WANDB_API_KEY"
    try:
        with socket.create_connection((url.hostname or "", url.port or 443), timeout=5):
            return ""
    except OSError as e:
        return f"{base} cannot be reached: {e}"


def files(board: Board, data: ReportData) -> dict[str, str]:
    """The artifact's files by name."""
    return {
        "report.html": page.page(data),
        "leaderboard.json": plain.as_json(board),
        "leaderboard.csv": plain.as_csv(board),
        "leaderboard.md": render.markdown(board),
        "seeds.json": json.dumps(seeds(board), ensure_ascii=False, indent=1, allow_nan=False) + "\n",
    }


def seeds(board: Board) -> list[SeedScores]:
    """One entry per complete cell."""
    return [
        {
            "task": row.task,
            "row": row.name,
            "metric": table.metric,
            "seed": r.seed,
            "score": r.test.get(table.metric),
            "dev": r.dev.get(table.metric),
            "train_seconds": r.costs.train_seconds,
            "cell": r.cell,
            "partial": table.partial,
        }
        for table in board.tables
        for row in table.rows
        for r in row.complete
    ]


def plan(board: Board, *, entity: str | None, project: str) -> dict[str, object]:
    """Description of the run, plots, workspace and report, as plain data."""
    tasks = list(dict.fromkeys(table.task for table in board.tables))
    return {
        "entity": entity,
        "project": project,
        "run": {"name": RUN, "job_type": RUN, "tables": ["rows", "seeds"], "artifact": RUN},
        "plots": [{"key": f"cost/{task}", "x": "train_seconds", "y": "mean"} for task in tasks],
        "workspace": {"name": "Leaderboard", "sections": ["Tables", "Score and cost"]},
        "report": {"title": "Leaderboard", "blocks": [render.markdown(board), "rows", "seeds"]},
    }


def write(contents: Mapping[str, str], planned: Mapping[str, object], folder: Path) -> None:
    """Write the files and the plan, each atomically."""
    for name, text in contents.items():
        write_atomic(folder / name, text.encode())
    write_atomic(folder / "plan.json", (json.dumps(planned, ensure_ascii=False, indent=1) + "\n").encode())


def send(board: Board, contents: Mapping[str, str], *, entity: str | None, project: str) -> list[str]:
    """Log the run and its artifact; save workspace and report if wandb-workspaces is installed.

    Returns:
        URLs, and a sentence on what was left out.
    """
    wandb = importlib.import_module("wandb")
    run = wandb.init(entity=entity, project=project, name=RUN, job_type=RUN, settings={"silent": True})
    try:
        rows = plain.as_rows(board)
        run.log({"rows": _table(wandb, rows), "seeds": _table(wandb, seeds(board)), **_plots(wandb, rows)})
        artifact = wandb.Artifact(RUN, type=RUN)
        for name, text in contents.items():
            with artifact.new_file(name, encoding="utf-8") as f:
                f.write(text)
        run.log_artifact(artifact)
        run.log({"report": wandb.Html(contents["report.html"], inject=False)})
        links, entity = [str(run.url)], entity or str(run.entity)
    finally:
        run.finish()
    if importlib.util.find_spec("wandb_workspaces") is None:
        return [*links, f"no workspace and report: wandb-workspaces is not installed; {INSTALL}"]
    workspace, report = dashboards(board, entity=entity, project=project)
    workspace.save()
    report.save()
    return [*links, str(workspace.url), str(report.url)]


def _table(wandb: ModuleType, rows: Sequence[Mapping[str, object]]) -> object:
    """A ``wandb.Table`` with the columns of all rows."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    table = wandb.Table(columns=columns, allow_mixed_types=True)
    for row in rows:
        table.add_data(*(row.get(c) for c in columns))
    return table


def _plots(wandb: ModuleType, rows: Sequence[Mapping[str, object]]) -> dict[str, object]:
    """A scatter plot of score against training seconds per task with at least one such row."""
    out = {}
    for task in dict.fromkeys(row["task"] for row in rows):
        plotted = [r for r in rows if r["task"] == task and None not in (r["mean"], r["train_seconds"])]
        if plotted:
            points = [
                {
                    "row": f"{r['encoder']}/{r['strategy']}",
                    **{k: r[k] for k in ("mean", "train_seconds", "n")},
                }
                for r in plotted
            ]
            title = f"{task}: score against training seconds"
            out[f"cost/{task}"] = wandb.plot.scatter(
                _table(wandb, points), "train_seconds", "mean", title=title
            )
    return out


def dashboards(board: Board, *, entity: str, project: str) -> tuple[Dashboard, Dashboard]:
    """Workspace and report of wandb-workspaces, not saved yet."""
    wr = importlib.import_module("wandb_workspaces.reports.v2")
    ws = importlib.import_module("wandb_workspaces.workspaces")
    tables = [wr.WeavePanelSummaryTable(table_name=name) for name in ("rows", "seeds")]
    tasks = list(dict.fromkeys(table.task for table in board.tables))
    plots = [wr.CustomChart(query={"summary": [f"cost/{task}_table"]}) for task in tasks]
    workspace = ws.Workspace(
        entity=entity,
        project=project,
        name="Leaderboard",
        sections=[
            ws.Section(name="Tables", panels=tables, is_open=True),
            ws.Section(name="Score and cost", panels=plots),
        ],
    )
    report = wr.Report(
        entity=entity,
        project=project,
        title="Leaderboard",
        description="Computed from the records on disk by `harness leaderboard --wandb`.",
        blocks=[
            wr.MarkdownBlock(render.markdown(board)),
            wr.PanelGrid(
                runsets=[wr.Runset(entity=entity, project=project)],
                panels=[wr.WeavePanelSummaryTable(table_name=name) for name in ("rows", "seeds")],
            ),
        ],
    )
    return workspace, report
