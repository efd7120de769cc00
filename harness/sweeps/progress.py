"""Progress of a sweep: live lines on a terminal, otherwise one line per finished cell.

Everything here is printed to standard error; standard output is reserved for results.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TextColumn
from rich.text import Text

from harness.core.events import WARNING
from harness.core.files import tail
from harness.core.redaction import printable
from harness.processes.slots import DeviceSlot
from harness.processes.worker import REFUSED
from harness.records.cell import Cell
from harness.records.record import LOG, Record

REFRESH_SECONDS = 0.2
WIDE = 130  # terminals with fewer columns get no progress bars


@dataclass(slots=True)
class SweepCounts:
    """Progress of a sweep in numbers of cells.

    Attributes:
        total: cells to run.
        already_complete, skipped: cells that needed no run.
        slots: cells that run at the same time.
        complete, failed: outcomes so far; timeouts count as failed.
        seconds: duration of each finished cell.
    """

    total: int
    already_complete: int = 0
    skipped: int = 0
    slots: int = 1
    complete: int = 0
    failed: int = 0
    seconds: list[float] = field(default_factory=list)

    @property
    def left(self) -> int:
        return self.total - self.complete - self.failed

    @property
    def seconds_left(self) -> float | None:
        """Estimate from the mean duration of the finished cells; None before the first."""
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
        parts = [
            f"{self.complete + self.already_complete} done",
            f"{self.failed} failed",
            f"{self.skipped} skipped",
        ]
        parts.append(f"{self.left} left")
        if self.left and self.seconds_left is not None:
            parts.append(f"about {duration(self.seconds_left)} remaining")
        return ", ".join(parts)


class PlainDisplay:
    """Prints one line per finished cell, and each warning once."""

    def __init__(self, counts: SweepCounts) -> None:
        self.counts = counts
        self._warned: set[str] = set()
        self._start_times: dict[str, float] = {}

    def started(self, cell: Cell, slot: DeviceSlot) -> None:
        self._start_times[cell.title] = time.monotonic()

    def event(self, cell: Cell, event: Mapping[str, object]) -> None:
        """Print warnings; progress is shown by live lines only."""
        message = str(event.get("message") or "")
        if message.startswith(WARNING):
            self._warn(cell, message.removeprefix(WARNING))

    def _warn(self, cell: Cell, text: str) -> None:
        if text not in self._warned:
            self.note(f"warning: {text} ({cell.title})")
        self._warned.add(text)

    def finished(self, cell: Cell, record: Record | None) -> None:
        now = time.monotonic()
        seconds = now - self._start_times.pop(cell.title, now)
        if record is None:
            self.note(f"stopped  {cell.title}")
            return
        self.counts.add(record, seconds)
        if record.status != "complete":
            self.note(failure_lines(cell, record))
        for text in record.warnings:
            self._warn(cell, text)
        self._complete(cell, record, seconds)

    def _complete(self, cell: Cell, record: Record, seconds: float) -> None:
        if record.status == "complete":
            position = self.counts.complete + self.counts.failed
            scores = score_text(record)
            self.note(f"[{position}/{self.counts.total}] {cell.title}  {scores}  {duration(seconds)}")

    def note(self, text: str) -> None:
        print(printable(text), file=sys.stderr, flush=True)

    def tick(self) -> None:
        """No-op."""

    def close(self) -> None:
        """No-op."""


class _ElapsedColumn(ProgressColumn):
    """Elapsed time of a cell; empty on the sweep's line."""

    def render(self, task: Task) -> Text:
        return Text("" if task.fields.get("sweep") else duration(task.elapsed or 0.0), style="dim")


class LiveDisplay(PlainDisplay):
    """One line for the sweep and one per running cell, redrawn in place."""

    def __init__(self, counts: SweepCounts, console: Console | None = None) -> None:
        super().__init__(counts)
        console = console or Console(stderr=True)
        bar = [BarColumn(bar_width=20)] if console.width >= WIDE else []
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            *bar,
            TextColumn("{task.fields[now]}", markup=False),
            _ElapsedColumn(),
            console=console,
            auto_refresh=False,
            transient=True,
        )
        self._lines: dict[str, TaskID] = {}
        self._drawn = 0.0
        self._sweep = self._progress.add_task(
            "sweep", total=counts.total or None, now=counts.line(), sweep=True
        )
        self._progress.start()

    def started(self, cell: Cell, slot: DeviceSlot) -> None:
        super().started(cell, slot)
        self._lines[cell.title] = self._progress.add_task(cell.title, total=None, now=slot.label)

    def event(self, cell: Cell, event: Mapping[str, object]) -> None:
        super().event(cell, event)
        if cell.title in self._lines:
            self._progress.update(
                self._lines[cell.title],
                completed=_number(event, "done") or 0.0,
                total=_number(event, "total") or None,
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
        self._progress.console.print(printable(text), markup=False, highlight=False, soft_wrap=True)

    def tick(self) -> None:
        now = time.monotonic()
        if now - self._drawn >= REFRESH_SECONDS:
            self._drawn = now
            self._progress.refresh()

    def close(self) -> None:
        self._progress.stop()


class SilentDisplay(PlainDisplay):
    """Prints failures only; for workers of a cluster, where the launcher's process shows the progress."""

    def _complete(self, cell: Cell, record: Record, seconds: float) -> None:
        """Not printed."""

    def _warn(self, cell: Cell, text: str) -> None:
        """Not printed: they are in the record."""


def make_display(counts: SweepCounts) -> PlainDisplay:
    """Live lines if standard error is a terminal, otherwise plain ones."""
    return LiveDisplay(counts) if sys.stderr.isatty() else PlainDisplay(counts)


def event_text(event: Mapping[str, object]) -> str:
    """Format a cell's event: ``train  epoch 3/10  12/40  dev 0.7130  message``."""
    parts = [str(event.get("phase") or "")]
    if event.get("epochs"):
        parts.append(f"epoch {event.get('epoch')}/{event['epochs']}")
    if event.get("total"):
        parts.append(f"{event.get('done')}/{event['total']}")
    if (score := _number(event, "score")) is not None:
        parts.append(f"dev {score:.4f}")
    if event.get("message"):
        parts.append(str(event["message"]))
    return printable("  ".join(p for p in parts if p))


def _number(event: Mapping[str, object], key: str) -> float | None:
    value = event.get(key)
    return float(value) if isinstance(value, int | float) else None


def score_text(record: Record) -> str:
    """Format the scores: ``accuracy dev 0.8000 test 0.7900``, without splits that lack the metric."""
    parts = [record.metric or "no metric"]
    for split, scores in (("dev", record.dev), ("test", record.test)):
        value = scores.get(record.metric)
        if value is not None:
            parts.append(f"{split} {value:.4f}")
    return " ".join(parts)


def failure_lines(cell: Cell, record: Record) -> str:
    """Format a failure: the cell, the reason, the end of its log and the log's path."""
    reason = record.reason.strip().splitlines() or ["no reason given"]
    word = "TIMEOUT" if record.status == "timeout" else "FAILED"
    end = tail(cell.folder / LOG, 5 + len(reason))
    if any(line.startswith(f"{REFUSED}{reason[0]}"[:300]) for line in end):
        end = []  # an error that the user can fix: its sentence says what to do
    # the log usually ends with the reason: do not repeat those lines
    log = [line for line in end if not _is_in_reason(line, reason)][-5:]
    lines = [*(f"    {r}" for r in reason[:8]), *(f"    | {line}" for line in log)]
    return "\n".join([f"{word}  {cell.title}", *lines, f"    {cell.folder / LOG}"])


def _is_in_reason(line: str, reason: Sequence[str]) -> bool:
    return any(r.strip() and r.strip() in line for r in reason)


def duration(seconds: float) -> str:
    """Format a duration: ``4.2 s``, ``3:05`` or ``2:03:05``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def summary(records: Sequence[Record], *, already_complete: int, not_run: int) -> list[str]:
    """Final summary of a sweep: counts, reasons for skipped cells, and cells that were not run."""
    by = {s: [r for r in records if r.status == s] for s in ("complete", "failed", "timeout", "skipped")}
    before = f" ({already_complete} of them before)" if already_complete else ""
    parts = [f"{len(by['complete'])} complete{before}"]
    parts += [f"{len(by[s])} {word}" for s, word in (("failed", "failed"), ("timeout", "timed out")) if by[s]]
    parts += [f"{len(by['skipped'])} skipped"] if by["skipped"] else []
    parts += [f"{not_run} not run (repeat the command to run them)"] if not_run else []
    lines = [", ".join(parts)]
    reasons: dict[str, int] = {}
    for record in by["skipped"]:
        reasons[record.reason] = reasons.get(record.reason, 0) + 1
    return lines + [f"    skipped {n}: {reason}" for reason, n in reasons.items()]
