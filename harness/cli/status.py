"""``harness status DIR``: what a results folder holds, what is running, what failed and why."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from harness.cli.find_cells import is_running
from harness.errors import HarnessError
from harness.records.lease import Holder, holder
from harness.records.record import STATUSES, read_record

COUNTED = (*STATUSES, "running", "unfinished", "damaged")


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="harness status", description=__doc__)
    parser.add_argument(
        "results",
        type=Path,
        metavar="DIR",
        nargs="?",
        default=Path("results"),
        help="results folder, or a task's in it (default: results)",
    )
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.add_argument(
        "--watch",
        type=_seconds,
        nargs="?",
        const=2.0,
        metavar="SECONDS",
        help="show it again every so many seconds (2) until Ctrl-C",
    )
    args = parser.parse_args(argv)
    if not args.results.is_dir():
        raise HarnessError(f"{args.results}: no such results folder")
    while True:
        report = _report(args.results)
        shown = json.dumps(report, ensure_ascii=False, indent=1) if args.json else "\n".join(text(report))
        if args.watch and sys.stdout.isatty():
            shown = f"\033[H\033[2J{shown}"
        print(shown, flush=True)
        if not args.watch:
            return 0
        time.sleep(args.watch)


def _seconds(value: str) -> float:
    seconds = float(value)
    if not 0.1 <= seconds <= 86400:
        raise ValueError
    return seconds


def _report(results: Path) -> dict[str, Any]:
    report = collect(results)
    if not report["cells"] and any(results.glob("*/*/*/seed-*")):
        task = results.absolute()
        report = collect(task.parent, task=task.name)
    return report


def collect(results: Path, *, task: str | None = None) -> dict[str, Any]:
    """Counts by status, in all and by task/encoder/strategy; failures with reasons; cells that run now.

    ``task`` leaves the folders of all other tasks out.

    A folder without a record is ``running`` while a sweep holds its lease and ``unfinished`` otherwise.
    """
    total: Counter[str] = Counter()
    groups: dict[str, Counter[str]] = {}
    failures: list[dict[str, str]] = []
    running: list[dict[str, Any]] = []
    for folder in seed_folders(results, task=task):
        title = folder[len(str(results)) :].strip("/")
        status, reason = _state(folder)
        total[status] += 1
        groups.setdefault(title.rsplit("/", 2)[0], Counter())[status] += 1
        if status == "running":
            owner = holder(Path(folder))
            running.append({"cell": title, **(asdict(owner) if owner else {})})
        elif status in ("failed", "timeout", "damaged"):
            failures.append({"cell": title, "status": status, "reason": reason})
    return {
        "results": str(results),
        "cells": sum(total.values()),
        "counts": {s: total[s] for s in COUNTED if total[s]},
        "groups": {g: {s: c[s] for s in COUNTED if c[s]} for g, c in sorted(groups.items())},
        "running": running,
        "failures": failures,
    }


def seed_folders(results: Path, *, task: str | None = None) -> Iterator[str]:
    """Paths of ``<task>/<encoder>/<strategy>/<id>/seed-<n>`` below ``results``, in order; hidden ones are not
    looked into."""
    level = _subfolders(str(results)) if task is None else [os.path.join(results, task)]
    for _ in range(3):
        level = [child for folder in level for child in _subfolders(folder)]
    for folder in level:
        yield from (f for f in _subfolders(folder) if os.path.basename(f).startswith("seed-"))


def _subfolders(folder: str) -> list[str]:
    with os.scandir(folder) as entries:
        return sorted(e.path for e in entries if not e.name.startswith(".") and e.is_dir())


def _state(folder: str) -> tuple[str, str]:
    try:
        record = read_record(Path(folder))
    except FileNotFoundError:
        return ("running" if is_running(Path(folder)) else "unfinished"), ""
    except (HarnessError, OSError) as e:
        return "damaged", str(e)
    if record.status not in STATUSES:
        return "damaged", f"status {record.status}"
    return record.status, record.reason


def text(report: dict[str, Any]) -> list[str]:
    """The report as lines: counts, a table by group, running cells, failures."""
    counts = ", ".join(f"{n} {s}" for s, n in report["counts"].items()) or "nothing"
    lines = [f"{report['results']}: {report['cells']} cells: {counts}"]
    shown = [s for s in COUNTED if s in report["counts"]]
    if report["groups"]:
        width = max(len(g) for g in report["groups"])
        lines += ["", " " * width + "".join(f"  {s:>10}" for s in shown)]
        lines += [
            f"{group:<{width}}" + "".join(f"  {c.get(s, 0) or '':>10}" for s in shown)
            for group, c in report["groups"].items()
        ]
    if report["running"]:
        lines += ["", "running"]
        for cell in report["running"]:
            owner = Holder(cell["host"], cell["pid"], cell["since"]) if "host" in cell else ""
            lines.append(f"  {cell['cell']}  {owner}".rstrip())
    if report["failures"]:
        lines += ["", "failed"]
        for failure in report["failures"]:
            reason = failure["reason"].strip().splitlines() or [""]
            lines.append(f"  {failure['cell']}  {failure['status']}: {reason[0]}")
    return lines
