"""Records before and after a run: reading the existing one, and writing that of a cell that failed."""

from __future__ import annotations

import contextlib
import platform
import signal
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from harness.core.files import remove_outward_links, remove_temporary, tail, utc_now
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


def load_record_or_none(cell: Cell) -> Record | None:
    """Read the record in the cell's folder, if there is one.

    A damaged record is renamed to ``record.json.damaged-<time>``, so that the cell can run again without
    losing the file.

    Raises:
        HarnessError: the record cannot be read, or a damaged one cannot be renamed.
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
        except FileNotFoundError:  # renamed by another sweep
            pass
        except OSError as e:
            raise HarnessError(f"{path}: is damaged and cannot be renamed ({e.strerror or e})") from e
        return None
    except OSError as e:
        raise HarnessError(f"{path}: cannot be read ({e.strerror or e})") from e


def archive_previous(cell: Cell, record: Record | None) -> None:
    """Clear the cell's folder before it runs; its lease must be held.

    The files of a complete run go to the archive; of any other run, the record and temporary files are
    removed.

    Args:
        cell: the cell.
        record: what :func:`load_record_or_none` returned.

    Raises:
        OSError: a file cannot be moved or removed.
        HarnessError: the archive is a link.
    """
    remove_temporary(cell.folder)
    remove_outward_links(cell.folder)
    if record is None:
        return
    if record.status != "complete":
        (cell.folder / RECORD).unlink(missing_ok=True)
        return
    stamp = datetime.now().strftime("%Y-%m-%d_%H-%M-%S-%f")
    target = archive_folder(cell.results_dir) / stamp / cell.folder.relative_to(cell.results_dir)
    target.mkdir(parents=True, exist_ok=True)
    # the record first: if only half of the files are moved, the cell must not look complete
    for path in sorted(cell.folder.iterdir(), key=lambda p: p.name != RECORD):
        if path.name != LEASE:
            path.rename(target / path.name)


def archive_folder(results_dir: Path) -> Path:
    """Return the archive of a results folder, which need not exist.

    Raises:
        HarnessError: it is a link.
    """
    folder = results_dir / ARCHIVE
    if folder.is_symlink():
        raise HarnessError(f"{folder}: a link; remove it")
    return folder


def skipped(cell: Cell) -> Record:
    """Return the record of a cell that is not run."""
    return failure(cell, status="skipped", reason=cell.skip or "")


def failure(
    cell: Cell, *, status: str, reason: str, started: str | None = None, seconds: float = 0.0
) -> Record:
    """Return a record without scores.

    Args:
        cell: the cell.
        status: failed, skipped or timeout.
        reason: for the reader.
        started: UTC; None = now.
        seconds: wall time that the cell took.
    """
    record = Record(
        status=status,
        task=cell.task.name,
        encoder=cell.encoder.name,
        strategy=cell.strategy.name,
        cell=cell.id,
        seed=cell.seed,
        kind=cell.task.kind,
        reason=reason,
        variant=dict(cell.variant),
        partial=cell.options.limit,
        started=started or utc_now(),
        finished=utc_now(),
    )
    record.costs.total_seconds = round(seconds, 3)
    record.costs.host = platform.node()
    return record


def write_record_or_warn(cell: Cell, record: Record, *, warn: Callable[[str], None]) -> None:
    """Write the record and, if it is missing, the configuration. A disk error is only a warning, because the
    next sweep runs the cell again."""
    try:
        if not (cell.folder / CONFIG).exists():
            write_config(cell.folder, cell.resolved)
        write_record(cell.folder, record)
    except (OSError, HarnessError) as e:
        warn(f"{cell.title}: its record cannot be written ({e})")


def describe_exit(exitcode: int, *, folder: Path) -> str:
    """Describe why a worker ended without a record or an error message, with the last lines of its log.

    Args:
        exitcode: as multiprocessing reports it; -N = killed by signal N.
        folder: the cell's folder, which contains ``log.txt``.
    """
    if exitcode < 0:
        with contextlib.suppress(ValueError):
            name = signal.Signals(-exitcode).name
            meaning = _MEANING.get(name)
            cause = f"{name}: {meaning}" if meaning else f"killed by {name}"
            return _with_log(cause, folder / LOG)
    cause = "ended without a record" if exitcode == 0 else f"the process ended with exit code {exitcode}"
    if exitcode == 255:  # multiprocessing's value when the exit code is unknown
        cause += ": the server that the workers are forked from was killed (out of memory?)"
    return _with_log(cause, folder / LOG)


def _with_log(cause: str, log: Path) -> str:
    return "\n".join([cause, *tail(log)])
