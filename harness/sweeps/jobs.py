"""From the jobs that Hydra composes to cells, and the name of a sweep. Imports neither torch nor Hydra."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.config import resolve
from harness.config.composer import Job
from harness.core.fingerprint import data_fingerprint
from harness.errors import HarnessError
from harness.loggers import factory
from harness.records.cell import Cell
from harness.records.parts import RunOptions
from harness.sweeps.checks import check_writable, refuse
from harness.sweeps.state import SweepState

if TYPE_CHECKING:
    from omegaconf import DictConfig


def sweep_name(config: DictConfig) -> str:
    """Return a name that is the same when the command is given again to complete the sweep: the results
    folder and a hash of what it sweeps over."""
    from omegaconf import OmegaConf

    folder = Path(str(config.results_dir)).expanduser().absolute()
    ignored = {f.name for f in fields(RunOptions)} - {"limit"}
    given = [str(o) for o in config.hydra.overrides.task]
    kept = sorted(
        o
        for o in given
        if (key := o.lstrip("+~").partition("=")[0]) not in ignored and key.partition(".")[0] != "logger"
    )
    params = OmegaConf.to_container(config.hydra.sweeper, resolve=False)
    return f"{folder.name}-{data_fingerprint([str(folder), kept, params])[:8]}"


def prepare_all(
    jobs: Sequence[Job], job_overrides: Sequence[Sequence[str]], *, state: SweepState | None
) -> list[Cell]:
    """Resolve the jobs of a sweep.

    Raises:
        HarnessError: a line for each distinct problem, with the first job that has it.
    """
    cells: list[Cell] = []
    problems: dict[str, list[str]] = {}
    for (job, given), differing in zip(jobs, job_overrides, strict=True):
        try:
            cells.append(prepare(job, given=given, state=state))
        except HarnessError as e:
            problems.setdefault(str(e), []).append(" ".join(differing))
    refuse(_in_jobs(text, names) for text, names in problems.items())
    return cells


def _in_jobs(problem: str, jobs: Sequence[str]) -> str:
    more = f" and {len(jobs) - 1} more" if len(jobs) > 1 else ""
    return f"{problem} (in the job {jobs[0]}{more}; nothing has been run)" if jobs[0] else problem


def prepare(job: dict[str, Any], *, given: Sequence[str], state: SweepState | None) -> Cell:
    """Resolve a job; ``given``: all overrides of the command."""
    check_writable(str(job.get("results_dir") or "results"))
    factory.fill_in(job, sweep=None if state is None else state.sweep_name)
    return resolve.prepare(job, overrides=given)
