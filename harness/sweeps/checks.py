"""Pre-flight checks of a sweep: folders, loggers and data. Imports neither torch nor Hydra.

An error in any job rejects the whole command before anything is computed.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from harness.core.fingerprint import data_fingerprint
from harness.core.redaction import printable
from harness.encoders.facts import EncoderFacts
from harness.errors import HarnessError
from harness.loggers import factory
from harness.processes.slots import hardware_problems
from harness.records import inputs
from harness.records.cell import Cell
from harness.sweeps.plan import SweepPlan
from harness.task import Splits


def check_writable(results_dir: str | Path, *, key: str = "results_dir") -> Path:
    """Return a folder for results as an absolute path; nothing is created.

    Args:
        results_dir: the folder.
        key: the setting that names it, for messages.

    Raises:
        HarnessError: it cannot be created or written; the message names the path that prevents it.
    """
    folder = Path(results_dir).expanduser().absolute()
    existing = folder
    while not existing.exists() and existing != existing.parent:
        if existing.is_symlink():
            raise HarnessError(
                f"{key}={folder}: {existing} is a link to {os.readlink(existing)}, which does not exist"
            )
        existing = existing.parent
    if not existing.is_dir():
        raise HarnessError(f"{key}={folder}: {existing} is a file, not a folder")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise HarnessError(f"{key}={folder}: {existing} is not writable; choose another {key}")
    try:
        # also a read-only or special file system, for which the permissions say nothing
        tempfile.TemporaryDirectory(prefix=".harness-", dir=existing).cleanup()
    except OSError as e:
        raise HarnessError(
            f"{key}={folder}: nothing can be written to {existing} ({e.strerror or e}); choose another {key}"
        ) from e
    return folder


def warn_of_missing_outputs(plan: SweepPlan) -> None:
    """Warn if complete cells lack an optional output that the command requests.

    Saved weights and logs do not change results, so they are not part of the cell id.
    """
    missing: dict[tuple[str, str], list[Cell]] = {}
    for cell in plan.complete:
        for key, name in _optional_outputs(cell):
            if not (cell.folder / name).exists():
                missing.setdefault((key, name), []).append(cell)
    for (key, name), cells in missing.items():
        warn(
            f"{key}: {len(cells)} complete cells have no {name} and are not run again (first: "
            f"{cells[0].title}); overwrite=always runs them again"
        )


def _optional_outputs(cell: Cell) -> Iterator[tuple[str, str]]:
    """Keys and the file or folder beside the record that each requests."""
    if cell.trainer.save:
        yield "trainer.save", "model.safetensors"
    logger = factory.logger_class(cell)
    if logger is not None and logger.output:
        yield "logger.name", logger.output


def check_cells(cells: Sequence[Cell], *, local: bool = True) -> None:
    """Check everything that can be checked before the first cell runs; a dry run does the same.

    Args:
        cells: that are to run.
        local: they run on this machine, which must have the devices that they ask for.

    Raises:
        HarnessError: a line for each problem: of devices, loggers and data. No cell has been run.
    """
    hardware = {(t.accelerator, t.devices, t.precision) for t in (cell.trainer for cell in cells) if local}
    problems = [
        line
        for accelerator, devices, precision in sorted(hardware)
        for line in hardware_problems(accelerator=accelerator, devices=devices, precision=precision)
    ]
    refuse([*problems, *encoder_problems(cells), *factory.problems(cells), *data_problems(cells)])


def check_data(cells: Sequence[Cell]) -> None:
    """Raise HarnessError for the first lines of :func:`data_problems`."""
    refuse(data_problems(cells))


def refuse(problems: Iterable[str]) -> None:
    """Raise HarnessError with a line for each distinct problem, if there are any."""
    lines = list(dict.fromkeys(problems))
    more = len(lines) - MAX_PROBLEMS
    if lines:
        further = [f"{more} more problems of this kind"] if more > 0 else []
        raise HarnessError("\n".join([*lines[:MAX_PROBLEMS], *further]))


MAX_PROBLEMS = 20


def encoder_problems(cells: Sequence[Cell]) -> Iterator[str]:
    """Check the files of each encoder once, and the layers and precision that each cell requests of it.

    Yields:
        a line for each encoder that could not be loaded or used as requested.
    """
    checked: dict[str, EncoderFacts | None] = {}
    for cell in cells:
        encoder = cell.encoder
        key = data_fingerprint([encoder.content(), cell.files.get("encoder"), encoder.check_function])
        try:
            if key not in checked:
                checked[key] = None  # a problem is reported once
                checked[key] = encoder.check(cell.cache_dir)
            facts = checked[key]
            if facts is not None:
                facts.check(encoder.name, layers=encoder.layers, precision=cell.trainer.precision)
        except HarnessError as e:
            yield f"{e} (in cell {cell.title}; nothing has been run)"


def data_problems(cells: Sequence[Cell]) -> Iterator[str]:
    """Read each data set once, so that a wrong column fails early, and print the notes on the data.

    Yields:
        a line for each data set that cannot be read or trained on.
    """
    checked: set[str] = set()
    printed: set[str] = set()
    for cell in cells:
        parts = [asdict(cell.task), cell.options.limit, cell.trainer.select, cell.files.get("task")]
        key = data_fingerprint(parts)
        if key in checked:
            continue
        checked.add(key)
        try:
            task, splits = inputs.read_data(cell)
        except HarnessError as e:
            yield f"{e} (in cell {cell.title}; nothing has been run)"
            continue
        for part in data_report(task.name, splits):
            if part not in printed:  # training sizes and other options read the same files again
                warn(part)
            printed.add(part)


def data_report(name: str, splits: Splits) -> Iterator[str]:
    """Yield the parts of the data card, the notes and the warnings of a data set for the terminal."""
    if splits.card is not None:
        yield from (f"{name}: " + "\n  ".join(group) for group in splits.card.groups())
    yield from (f"{name}: {note}" for note in splits.notes)
    yield from (f"{name}: warning: {warning}" for warning in splits.warnings)


def warn(text: str) -> None:
    """Print to standard error."""
    print(printable(text), file=sys.stderr)
