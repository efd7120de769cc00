"""The record of a cell that could not write its own: skipped, timed out, failed or killed."""

from __future__ import annotations

import contextlib
import platform
import signal
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from harness.core.files import remove_temporary, tail, utc_now
from harness.errors import HarnessError, NewerSchema
from harness.records.cell import Cell
from harness.records.lease import LEASE
from harness.records.record import CONFIG, LOG, RECORD, Record, read_record, write_config, write_record

ARCHIVE = ".archive"
_MEANING = {
    "SIGKILL": "killed (out of memory?)",
    "SIGSEGV": "segmentation fault",
    "SIGABRT": "aborted",
    "SIGBUS": "bus error",
    "SIGTERM": "terminated",
}


def previous(cell: Cell) -> Record | None:
    """The record in the cell's folder, if there is one. A damaged one is set aside as
    ``record.json.damaged-<time>``, so that the cell can run again and nothing is lost.

    Raises:
        HarnessError: what lies there is no file, or cannot be read.
    """
    path = cell.folder / RECORD
    try:
        return read_record(cell.folder)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except NewerSchema:
        raise
    except HarnessError:
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
        try:
            path.rename(path.with_name(f"{RECORD}.damaged-{stamp}"))
        except FileNotFoundError:  # another sweep was first
            pass
        except OSError as e:
            raise HarnessError(f"{path}: is damaged and cannot be set aside ({e.strerror or e})") from e
        return None
    except OSError as e:
        raise HarnessError(f"{path}: cannot be read ({e.strerror or e})") from e


def make_room(cell: Cell, record: Record | None) -> None:
    """Before a cell runs, its lease being held: of a complete run everything goes to the archive, of any
    other the record and what was half written go.

    Raises:
        OSError: it cannot be moved or removed.
    """
    remove_temporary(cell.folder)
    if record is None:
        return
    if record.status != "complete":
        (cell.folder / RECORD).unlink(missing_ok=True)
        return
    results = cell.folder.parents[4]
    stamp = datetime.now().strftime("%Y-%m-%d_%H-%M-%S-%f")
    target = results / ARCHIVE / stamp / cell.folder.relative_to(results)
    target.mkdir(parents=True, exist_ok=True)
    # the record first: a cell whose files were moved by halves must not look complete
    for path in sorted(cell.folder.iterdir(), key=lambda p: p.name != RECORD):
        if path.name != LEASE:
            path.rename(target / path.name)


def skipped(cell: Cell) -> Record:
    """The record of a cell that is not to be run."""
    return failure(cell, status="skipped", reason=cell.skip or "")


def failure(
    cell: Cell, *, status: str, reason: str, started: str | None = None, seconds: float = 0.0
) -> Record:
    """A record without scores, named as the cell is."""
    task, encoder, strategy = (
        _name(cell, key, at=n) for n, key in enumerate(("task", "encoder", "strategy"))
    )
    record = Record(
        status=status,
        task=task,
        encoder=encoder,
        strategy=strategy,
        cell=cell.id,
        seed=cell.seed,
        kind=str((cell.config.get("task") or {}).get("kind") or ""),
        reason=reason,
        variant=dict(cell.variant),
        partial=cell.config.get("limit"),
        started=started or utc_now(),
        finished=utc_now(),
    )
    record.costs.total_seconds = round(seconds, 3)
    record.costs.host = platform.node()
    return record


def store(cell: Cell, record: Record, *, warn: Callable[[str], None]) -> None:
    """Write the record and, where the cell did not come so far, its configuration. A full disk is a warning:
    the cell is run again next time."""
    try:
        if not (cell.folder / CONFIG).exists():
            write_config(cell.folder, cell.config)
        write_record(cell.folder, record)
    except OSError as e:
        warn(f"{cell.title}: its record cannot be written ({e})")


def cause_of_death(exitcode: int, *, folder: Path) -> str:
    """Why a child that left neither record nor error is gone, with the last lines of its log."""
    if exitcode < 0:
        with contextlib.suppress(ValueError):
            name = signal.Signals(-exitcode).name
            meaning = _MEANING.get(name)
            cause = f"{name}: {meaning}" if meaning else f"killed by {name}"
            return _with_log(cause, folder / LOG)
    what = "ended without a record" if exitcode == 0 else f"the process ended with exit code {exitcode}"
    if exitcode == 255:  # what multiprocessing says when it cannot know
        what += ": the server that the cells are forked from was killed (out of memory?)"
    return _with_log(what, folder / LOG)


def _with_log(cause: str, log: Path) -> str:
    return "\n".join([cause, *tail(log)])


def _name(cell: Cell, key: str, *, at: int) -> str:
    section = cell.config.get(key)
    name = section.get("name") if isinstance(section, dict) else None
    return str(name) if name is not None else cell.folder.parts[-5:][at]
