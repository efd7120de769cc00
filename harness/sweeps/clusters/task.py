"""One cell as a task of a cluster: plain data that an engine carries to a worker, which calls it."""

from __future__ import annotations

import contextlib
import os
import sys
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.core.provenance import host
from harness.core.redaction import PLACES
from harness.errors import HarnessError
from harness.processes.slots import Slot, cpu_share
from harness.records.cell import Cell
from harness.records.record import Record
from harness.sweeps.pool import Pool
from harness.sweeps.progress import Counts, SilentDisplay


@dataclass(frozen=True, slots=True)
class Death:
    """A task that ended without an answer: why, and the status its cell gets."""

    reason: str
    status: str = "failed"


@dataclass(frozen=True, slots=True)
class Work:
    """One cell for a worker, as plain data; called, it runs the cell.

    Attributes:
        cell: with absolute paths.
        runner, preload: as in :class:`harness.sweeps.pool.Pool`.
        again: run it although it is complete.
        devices: CUDA_VISIBLE_DEVICES, "" hides all, None = what the cluster gave.
        threads: CPU threads; None = all the worker may use.
    """

    cell: Cell
    runner: str
    preload: tuple[str, ...]
    again: bool = False
    devices: str | None = None
    threads: int | None = None

    def __call__(self) -> Record | None:
        """The record, which also lies in the cell's folder; None when the cell was stopped.

        Raises:
            HarnessError: the results folder is not there on this machine.
        """
        root = self.cell.folder.parents[4]
        if not root.is_dir():
            raise HarnessError(
                f"{root} is not there on {host()}: results_dir must be a directory all machines see"
            )
        devices = os.environ.get("CUDA_VISIBLE_DEVICES") if self.devices is None else self.devices
        pool = Pool(
            slots=[Slot(devices, self.threads or _share())],
            display=SilentDisplay(Counts(expect=1)),
            runner=self.runner,
            preload=self.preload,
            again={str(self.cell.folder)} if self.again else frozenset(),
        )
        with _own_main():
            return pool.run([self.cell]).get(str(self.cell.folder))

    def checkpoint(self) -> Any:
        """submitit asks this of a job that is preempted: the cell begins anew when it is queued again."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


def anchored(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration with absolute paths: a worker may stand elsewhere. Neither the cell's id nor its
    results depend on places."""
    out = dict(config)
    for group in ("encoder", "task"):
        if isinstance(out.get(group), Mapping):
            out[group] = _anchor(out[group])
    return out


def _anchor(value: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _anchored(value[key], place=key in PLACES) for key in value}


def _anchored(value: Any, *, place: bool) -> Any:
    if isinstance(value, Mapping):
        return {k: _anchored(v, place=place or k in PLACES) for k, v in value.items()}
    if isinstance(value, list):
        return [_anchored(v, place=place) for v in value]
    if not place or not isinstance(value, str) or not value:
        return value
    path = Path(value).expanduser()
    return str(path.absolute()) if path.exists() else value


def gpus_of(cell: Cell, per_device: float) -> float:
    """GPUs that a cell takes: ``per_device`` for each of its devices, whole ones when it has several; none on
    the CPU."""
    trainer = cell.config.get("trainer") or {}
    devices = int(trainer.get("devices") or 1)
    if trainer.get("accelerator") == "cpu":
        return 0.0
    return float(per_device) if devices == 1 else float(-(-per_device // 1)) * devices


def need(package: str, *, launcher: str, extra: str) -> None:
    """Raises HarnessError when what a launcher runs on is not installed."""
    import importlib.util

    if importlib.util.find_spec(package) is None:
        raise HarnessError(
            f"hydra/launcher={launcher}: the package {package} is missing; "
            f"pip install 'transfer-harness[{extra}]'"
        )


def _share() -> int:
    told = os.environ.get("SLURM_CPUS_PER_TASK", "")
    return min(cpu_share(1), int(told)) if told.isdecimal() and int(told) else cpu_share(1)


@contextlib.contextmanager
def _own_main() -> Iterator[None]:
    """The cells' processes must not import the main module of the engine's worker."""
    main, sys.modules["__main__"] = sys.modules["__main__"], types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
