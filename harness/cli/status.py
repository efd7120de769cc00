"""``harness status DIR``: count the cells of a results folder; show running and failed ones with reasons."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TypedDict

from harness.cli.find_cells import is_running
from harness.core.redaction import json_text, printable
from harness.errors import HarnessError
from harness.records.lease import Holder, holder
from harness.records.record import STATUSES, read_record
from harness.records.stored_files import seed_folders

ABOUT = "Count the cells of a results folder by status; show running cells, and failed ones with reasons."
COUNTED = (*STATUSES, "running", "unfinished", "damaged")


class RunningCell(TypedDict, total=False):
    """A cell that is running; host, process id and start are missing if the lease is released meanwhile."""

    cell: str
    host: str
    pid: int
    since: str


class StatusReport(TypedDict):
    """The output of ``harness status --json``.

    ``counts`` are by status, ``groups`` by task/encoder/strategy and status, ``failures`` have the keys cell,
    status and reason.
    """

    results: str
    cells: int
    counts: dict[str, int]
    groups: dict[str, dict[str, int]]
    running: list[RunningCell]
    failures: list[dict[str, str]]


def main(argv: list[str]) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="harness status", description=ABOUT)
    parser.add_argument(
        "results",
        type=Path,
        metavar="DIR",
        nargs="?",
        default=Path("results"),
        help="results folder, or the folder of a task in it (default: results)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--watch",
        type=_seconds,
        nargs="?",
        const=2.0,
        metavar="SECONDS",
        help="repeat every SECONDS (default: 2) until Ctrl-C",
    )
    args = parser.parse_args(argv)
    if not args.results.is_dir():
        raise HarnessError(f"{args.results}: no such results folder")
    while True:
        report = _report(args.results)
        output = json_text(report, indent=1) if args.json else printable("\n".join(text(report)))
        if args.watch and sys.stdout.isatty():
            output = f"\033[H\033[2J{output}"  # clear the screen first
        print(output, flush=True)
        if not args.watch:
            return 0
        time.sleep(args.watch)


def _seconds(value: str) -> float:
    seconds = float(value)
    if not 0.1 <= seconds <= 86400:
        raise ValueError
    return seconds


def _report(results: Path) -> StatusReport:
    report = collect(results)
    if not report["cells"] and any(results.glob("*/*/*/seed-*")):
        task = results.absolute()
        report = collect(task.parent, task=task.name)
    return report


def collect(results: Path, *, task: str | None = None) -> StatusReport:
    """Collect the status of all cells, or of those of one task.

    A folder without a record is ``running`` while a sweep holds its lease, and otherwise ``unfinished``.
    """
    total: Counter[str] = Counter()
    groups: dict[str, Counter[str]] = {}
    failures: list[dict[str, str]] = []
    running: list[RunningCell] = []
    folders, refused = seed_folders(results, task=task)
    for folder in folders:
        title = str(folder)[len(str(results)) :].strip("/")
        status, reason = _state(folder)
        total[status] += 1
        groups.setdefault(title.rsplit("/", 2)[0], Counter())[status] += 1
        if status == "running":
            running.append(_running_cell(title, folder))
        elif status in ("failed", "timeout", "damaged"):
            failures.append({"cell": title, "status": status, "reason": reason})
    failures += [{"cell": "", "status": "refused", "reason": str(e)} for e in refused]
    return {
        "results": str(results),
        "cells": sum(total.values()),
        "counts": {s: total[s] for s in COUNTED if total[s]},
        "groups": {g: {s: c[s] for s in COUNTED if c[s]} for g, c in sorted(groups.items())},
        "running": running,
        "failures": failures,
    }


def _running_cell(title: str, folder: Path) -> RunningCell:
    owner = holder(folder)
    if owner is None:
        return {"cell": title}
    return {"cell": title, "host": owner.host, "pid": owner.pid, "since": owner.since}


def _state(folder: Path) -> tuple[str, str]:
    try:
        record = read_record(folder)
    except FileNotFoundError:
        return ("running" if is_running(folder) else "unfinished"), ""
    except (HarnessError, OSError) as e:
        return "damaged", str(e)
    if record.status not in STATUSES:
        return "damaged", f"status {record.status}"
    return record.status, record.reason


def text(report: StatusReport) -> list[str]:
    """Format a report as lines: counts, a table by group, running cells, failures."""
    counts = ", ".join(f"{n} {s}" for s, n in report["counts"].items()) or "none"
    lines = [f"{report['results']}: {report['cells']} cells: {counts}"]
    statuses = [s for s in COUNTED if s in report["counts"]]
    if report["groups"]:
        width = max(len(g) for g in report["groups"])
        lines += ["", " " * width + "".join(f"  {s:>10}" for s in statuses)]
        lines += [
            f"{group:<{width}}" + "".join(f"  {c.get(s, 0) or '':>10}" for s in statuses)
            for group, c in report["groups"].items()
        ]
    if report["running"]:
        lines += ["", "running:"]
        for cell in report["running"]:
            owner = Holder(cell["host"], cell["pid"], cell["since"]) if "host" in cell else ""
            lines.append(f"  {cell['cell']}  {owner}".rstrip())
    if report["failures"]:
        lines += ["", "failed:"]
        for failure in report["failures"]:
            reason = failure["reason"].strip().splitlines() or [""]
            lines.append(f"  {failure['cell']}  {failure['status']}: {reason[0]}")
    return lines
