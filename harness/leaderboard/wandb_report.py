"""``harness leaderboard DIR --wandb [ENTITY/]PROJECT``: tables, plots and the report to Weights & Biases.

Disk stays the source of truth: what is published is made of the records anew each time, and nothing is read
back. One run of the project, ``leaderboard``, holds a table of rows and one of seeds, a plot of score against
training seconds for each task, and an artifact with the report and the board as HTML, JSON, csv and Markdown.
With ``wandb-workspaces`` there are a workspace and a report of the project on top. Offline the same files and
the descriptions of plots, workspace and report are written to a folder instead.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from harness.core.files import write_atomic
from harness.core.wandb_server import has_api_key
from harness.errors import HarnessError
from harness.leaderboard.html import page
from harness.leaderboard.render import data as plain
from harness.leaderboard.render import text as render
from harness.leaderboard.table.board import Board

RUN = "leaderboard"
HOST = "https://api.wandb.ai"
INSTALL = "pip install 'transfer-harness[wandb]'"


def publish(board: Board, data: dict[str, Any], project: str, *, folder: Path) -> int:
    """Send a board, or write what would be sent to ``folder``.

    Args:
        board: what is published.
        data: of its report, from :func:`harness.leaderboard.html.data.report`.
        project: ``PROJECT`` or ``ENTITY/PROJECT``.
        folder: for what cannot be sent.

    Raises:
        HarnessError: wandb is not installed, the project's name is none, or the server refuses.
    """
    entity, name = _named(project)
    if importlib.util.find_spec("wandb") is None:
        raise HarnessError(f"--wandb {project}: the package wandb is not installed; {INSTALL}")
    why = offline()
    parts = files(board, data)
    if why:
        write(parts, plan(board, entity=entity, project=name), folder)
        print(f"wandb: nothing was sent ({why}); what would be sent is in {folder}")
        return 0
    try:
        links = send(board, parts, entity=entity, project=name)
    except Exception as e:
        raise HarnessError(
            f"--wandb {project}: {type(e).__name__}: {e}; WANDB_MODE=offline writes what would be sent"
        ) from e
    for link in links:
        print(f"wandb: {link}")
    return 0


def _named(project: str) -> tuple[str | None, str]:
    entity, _, name = project.rpartition("/")
    if not name or "/" in entity or any(c in project for c in "\\#?%:"):
        raise HarnessError(f"--wandb {project!r}: PROJECT or ENTITY/PROJECT is wanted")
    return entity or None, name


def offline() -> str:
    """Why nothing can be sent, "" when it can."""
    mode = os.environ.get("WANDB_MODE", "").lower()
    if mode in ("offline", "disabled", "dryrun"):
        return f"WANDB_MODE={mode}"
    base = os.environ.get("WANDB_BASE_URL", HOST)
    if not has_api_key(urlparse(base).hostname or ""):
        return "no API key: wandb login, or WANDB_API_KEY"
    place = urlparse(base)
    try:
        with socket.create_connection((place.hostname or "", place.port or 443), timeout=5):
            return ""
    except OSError as e:
        return f"{base} cannot be reached: {e}"


def files(board: Board, data: dict[str, Any]) -> dict[str, str]:
    """The artifact's files by name."""
    return {
        "report.html": page.page(data),
        "leaderboard.json": plain.as_json(board),
        "leaderboard.csv": plain.as_csv(board),
        "leaderboard.md": render.markdown(board),
        "seeds.json": json.dumps(seeds(board), ensure_ascii=False, indent=1, allow_nan=False) + "\n",
    }


def seeds(board: Board) -> list[dict[str, Any]]:
    """One line a complete cell: what the dots of the report are made of."""
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


def plan(board: Board, *, entity: str | None, project: str) -> dict[str, Any]:
    """What is built of the files: run, plots, workspace and report, as plain data."""
    tasks = list(dict.fromkeys(table.task for table in board.tables))
    return {
        "entity": entity,
        "project": project,
        "run": {"name": RUN, "job_type": RUN, "tables": ["rows", "seeds"], "artifact": RUN},
        "plots": [{"key": f"cost/{task}", "x": "train_seconds", "y": "mean"} for task in tasks],
        "workspace": {"name": "Leaderboard", "sections": ["Tables", "Score and cost"]},
        "report": {"title": "Leaderboard", "blocks": [_block(board), "rows", "seeds"]},
    }


def _block(board: Board) -> str:
    return render.markdown(board)


def write(parts: dict[str, str], planned: dict[str, Any], folder: Path) -> None:
    """Files and plan, each written whole or not at all."""
    for name, text in parts.items():
        write_atomic(folder / name, text.encode())
    write_atomic(folder / "plan.json", (json.dumps(planned, ensure_ascii=False, indent=1) + "\n").encode())


def send(board: Board, parts: dict[str, str], *, entity: str | None, project: str) -> list[str]:
    """Log the run and its artifact; build workspace and report where wandb-workspaces is there.

    Returns:
        addresses, and a sentence on what was left out.
    """
    wandb = importlib.import_module("wandb")
    run = wandb.init(entity=entity, project=project, name=RUN, job_type=RUN, settings={"silent": True})
    try:
        rows = plain.as_rows(board)
        run.log({"rows": _table(wandb, rows), "seeds": _table(wandb, seeds(board)), **_plots(wandb, rows)})
        artifact = wandb.Artifact(RUN, type=RUN)
        for name, text in parts.items():
            with artifact.new_file(name, encoding="utf-8") as f:
                f.write(text)
        run.log_artifact(artifact)
        run.log({"report": wandb.Html(parts["report.html"], inject=False)})
        links, entity = [str(run.url)], entity or str(run.entity)
    finally:
        run.finish()
    if importlib.util.find_spec("wandb_workspaces") is None:
        return [*links, f"no workspace and no report: wandb-workspaces is not installed; {INSTALL}"]
    workspace, report = dashboards(board, entity=entity, project=project)
    workspace.save()
    report.save()
    return [*links, str(workspace.url), str(report.url)]


def _table(wandb: Any, rows: list[dict[str, Any]]) -> Any:
    """A table whose columns are of one type each: numbers, or text."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    table = wandb.Table(columns=columns, allow_mixed_types=True)
    for row in rows:
        table.add_data(*(row.get(c) for c in columns))
    return table


def _plots(wandb: Any, rows: list[dict[str, Any]]) -> dict[str, Any]:
    out = {}
    for task in dict.fromkeys(row["task"] for row in rows):
        known = [r for r in rows if r["task"] == task and None not in (r["mean"], r["train_seconds"])]
        if known:
            points = [
                {
                    "row": f"{r['encoder']}/{r['strategy']}",
                    **{k: r[k] for k in ("mean", "train_seconds", "n")},
                }
                for r in known
            ]
            title = f"{task}: score and training seconds"
            out[f"cost/{task}"] = wandb.plot.scatter(
                _table(wandb, points), "train_seconds", "mean", title=title
            )
    return out


def dashboards(board: Board, *, entity: str, project: str) -> tuple[Any, Any]:
    """Workspace and report of wandb-workspaces, not yet saved."""
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
        description="Made of the records on disk by harness leaderboard --wandb; the records decide.",
        blocks=[
            wr.MarkdownBlock(_block(board)),
            wr.PanelGrid(
                runsets=[wr.Runset(entity=entity, project=project)],
                panels=[wr.WeavePanelSummaryTable(table_name=name) for name in ("rows", "seeds")],
            ),
        ],
    )
    return workspace, report
