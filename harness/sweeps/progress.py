"""What a sweep shows while it runs: live lines on a terminal, one line a finished cell everywhere else.

All of it goes to standard error; standard output is for results.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

from harness.core.files import tail
from harness.processes.slots import Slot
from harness.records.cell import Cell
from harness.records.record import LOG, Record

REFRESH_SECONDS = 0.2
WIDE = 130  # columns of a terminal that has room for bars


@dataclass(slots=True)
class Counts:
    """Where a sweep stands. ``expect`` cells are to be run; ``earlier`` and ``skipped`` needed no run."""

    expect: int
    earlier: int = 0
    skipped: int = 0
    slots: int = 1
    complete: int = 0
    failed: int = 0
    seconds: list[float] = field(default_factory=list)

    @property
    def left(self) -> int:
        return self.expect - self.complete - self.failed

    @property
    def seconds_left(self) -> float | None:
        """From the mean of the cells run so far; None before there is one."""
        if not self.seconds:
            return None
        return sum(self.seconds) / len(self.seconds) * self.left / max(1, min(self.slots, self.left or 1))

    def add(self, record: Record, seconds: float) -> None:
        self.seconds.append(seconds)
        if record.status == "complete":
            self.complete += 1
        else:
            self.failed += 1

    def line(self) -> str:
        parts = [f"{self.complete + self.earlier} done", f"{self.failed} failed", f"{self.skipped} skipped"]
        parts.append(f"{self.left} left")
        if self.left and self.seconds_left is not None:
            parts.append(f"about {duration(self.seconds_left)} to go")
        return ", ".join(parts)


class PlainDisplay:
    """One line for each finished cell."""

    def __init__(self, counts: Counts) -> None:
        self.counts = counts
        self._begun: dict[str, float] = {}

    def started(self, cell: Cell, slot: Slot) -> None:
        self._begun[cell.title] = time.monotonic()

    def event(self, cell: Cell, event: dict[str, Any]) -> None:
        """Said by live lines only."""

    def finished(self, cell: Cell, record: Record | None) -> None:
        now = time.monotonic()
        seconds = now - self._begun.pop(cell.title, now)
        if record is None:
            self.note(f"stopped  {cell.title}")
            return
        self.counts.add(record, seconds)
        if record.status != "complete":
            self.note(failure_lines(cell, record))
        self._complete(cell, record, seconds)

    def _complete(self, cell: Cell, record: Record, seconds: float) -> None:
        if record.status == "complete":
            at = self.counts.complete + self.counts.failed
            scores = score_text(record)
            self.note(f"[{at}/{self.counts.expect}] {cell.title}  {scores}  {duration(seconds)}")

    def note(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def tick(self) -> None:
        """Nothing moves here."""

    def close(self) -> None:
        """Nothing to take down."""


class _Tail(ProgressColumn):
    """Seconds a cell has run; nothing for the sweep's own line."""

    def render(self, task: Task) -> Text:
        return Text("" if task.fields.get("sweep") else duration(task.elapsed or 0.0), style="dim")


class LiveDisplay(PlainDisplay):
    """A line for the sweep and one for every running cell, redrawn in place."""

    def __init__(self, counts: Counts, console: Console | None = None) -> None:
        super().__init__(counts)
        console = console or Console(stderr=True)
        bar = [BarColumn(bar_width=20)] if console.width >= WIDE else []
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            *bar,
            TextColumn("{task.fields[now]}", markup=False),
            _Tail(),
            console=console,
            auto_refresh=False,
            transient=True,
        )
        self._lines: dict[str, Any] = {}
        self._drawn = 0.0
        self._sweep = self._progress.add_task(
            "sweep", total=counts.expect or None, now=counts.line(), sweep=True
        )
        self._progress.start()

    def started(self, cell: Cell, slot: Slot) -> None:
        super().started(cell, slot)
        self._lines[cell.title] = self._progress.add_task(cell.title, total=None, now=slot.label)

    def event(self, cell: Cell, event: dict[str, Any]) -> None:
        if cell.title in self._lines:
            self._progress.update(
                self._lines[cell.title],
                completed=event.get("done") or 0,
                total=event.get("total") or None,
                now=event_text(event),
            )

    def finished(self, cell: Cell, record: Record | None) -> None:
        if cell.title in self._lines:
            self._progress.remove_task(self._lines.pop(cell.title))
        super().finished(cell, record)
        self._progress.update(
            self._sweep, completed=self.counts.complete + self.counts.failed, now=self.counts.line()
        )

    def note(self, text: str) -> None:
        self._progress.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def tick(self) -> None:
        now = time.monotonic()
        if now - self._drawn >= REFRESH_SECONDS:
            self._drawn = now
            self._progress.refresh()

    def close(self) -> None:
        self._progress.stop()


class SilentDisplay(PlainDisplay):
    """For cells that a cluster's launcher runs: the log is theirs; failures alone are said."""

    def _complete(self, cell: Cell, record: Record, seconds: float) -> None:
        """Not said."""


def make_display(counts: Counts) -> PlainDisplay:
    """Live lines where standard error is a terminal, plain ones elsewhere."""
    return LiveDisplay(counts) if sys.stderr.isatty() else PlainDisplay(counts)


def event_text(event: dict[str, Any]) -> str:
    """``train  epoch 3/10  12/40  dev 0.7130  message`` from a cell's event."""
    parts = [str(event.get("phase") or "")]
    if event.get("epochs"):
        parts.append(f"epoch {event.get('epoch')}/{event['epochs']}")
    if event.get("total"):
        parts.append(f"{event.get('done')}/{event['total']}")
    if event.get("score") is not None:
        parts.append(f"dev {event['score']:.4f}")
    if event.get("message"):
        parts.append(str(event["message"]))
    return "  ".join(p for p in parts if p)


def score_text(record: Record) -> str:
    """``accuracy dev 0.8000 test 0.7900``; a split without the metric is left out."""
    parts = [record.metric or "no metric"]
    for split, scores in (("dev", record.dev), ("test", record.test)):
        value = scores.get(record.metric)
        if value is not None:
            parts.append(f"{split} {value:.4f}")
    return " ".join(parts)


def failure_lines(cell: Cell, record: Record) -> str:
    """What failed, why, and where its log is."""
    reason = record.reason.strip().splitlines() or ["no reason given"]
    word = "TIMEOUT" if record.status == "timeout" else "FAILED"
    # what the log says beyond the reason; the reason's own lines are its end
    log = [line for line in tail(cell.folder / LOG, 5 + len(reason)) if not _said(line, reason)][-5:]
    lines = [*(f"    {r}" for r in reason[:8]), *(f"    | {line}" for line in log)]
    return "\n".join([f"{word}  {cell.title}", *lines, f"    {cell.folder / LOG}"])


def _said(line: str, reason: Sequence[str]) -> bool:
    return any(r.strip() and r.strip() in line for r in reason)


def duration(seconds: float) -> str:
    """``4.2 s``, ``3:05`` or ``2:03:05``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def summary(records: Sequence[Record], *, earlier: int, not_run: int) -> list[str]:
    """A sweep's last words: counts, why cells were skipped, and what is left."""
    by = {s: [r for r in records if r.status == s] for s in ("complete", "failed", "timeout", "skipped")}
    was = f" ({earlier} of them earlier)" if earlier else ""
    parts = [f"{len(by['complete'])} complete{was}"]
    parts += [f"{len(by[s])} {word}" for s, word in (("failed", "failed"), ("timeout", "timed out")) if by[s]]
    parts += [f"{len(by['skipped'])} skipped"] if by["skipped"] else []
    parts += [f"{not_run} not run: the same command again runs them"] if not_run else []
    lines = [", ".join(parts)]
    reasons: dict[str, int] = {}
    for record in by["skipped"]:
        reasons[record.reason] = reasons.get(record.reason, 0) + 1
    return lines + [f"    skipped {n}: {reason}" for reason, n in reasons.items()]
