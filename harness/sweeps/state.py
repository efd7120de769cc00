"""The state of one command over all batches that Hydra hands to the launcher."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from harness.records.record import Record


@dataclass(slots=True)
class SweepState:
    """Outcome of a command so far. Folders are seed folders, as text.

    Attributes:
        records: records by folder.
        already_complete: folders whose record was complete before the command.
        results_dirs: results folders in the order of their first cell (keys of a dict).
        requested: folders of all requested cells.
        sweep_dir: Hydra's folder for this sweep.
        sweep_name: the same when the command is given again, see :func:`harness.sweeps.launch.sweep_name`.
        error: the error that prevented a single job from running.
        stopped: no further batch is to be run.
        interrupted: the user pressed Ctrl-C.
    """

    records: dict[str, Record] = field(default_factory=dict)
    already_complete: set[str] = field(default_factory=set)
    results_dirs: dict[Path, None] = field(default_factory=dict)
    requested: set[str] = field(default_factory=set)
    sweep_dir: Path | None = None
    sweep_name: str | None = None
    error: Exception | None = None
    stopped: bool = False
    interrupted: bool = False

    @property
    def failed(self) -> bool:
        """Whether a cell failed or timed out."""
        return any(r.status in ("failed", "timeout") for r in self.records.values())
