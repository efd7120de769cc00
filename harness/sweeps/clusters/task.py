"""One cell as a task of a cluster: plain data that an engine sends to a worker, which calls it."""

from __future__ import annotations

import contextlib
import os
import sys
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from harness.core.provenance import host
from harness.core.redaction import PLACES
from harness.encoders.config import EncoderConfig
from harness.errors import HarnessError
from harness.processes.slots import DeviceSlot, cpu_share
from harness.records.cell import Cell
from harness.records.record import Record
from harness.sweeps.pool import LocalPool
from harness.sweeps.progress import SilentDisplay, SweepCounts


@dataclass(frozen=True, slots=True)
class TaskFailure:
    """A task that ended without returning a record.

    Attributes:
        reason: why it ended.
        status: status of the cell's record: failed or timeout.
    """

    reason: str
    status: str = "failed"


@dataclass(frozen=True, slots=True)
class CellTask:
    """One cell as plain data; calling it on a worker runs the cell.

    Attributes:
        cell: with absolute paths.
        runner, preload: see :class:`harness.sweeps.base_pool.BasePool`.
        force_rerun: run the cell even if it is complete.
        devices: CUDA_VISIBLE_DEVICES; "" hides all devices, None = as set by the cluster.
        threads: CPU threads; None = all that the worker may use.
    """

    cell: Cell
    runner: str
    preload: tuple[str, ...]
    force_rerun: bool = False
    devices: str | None = None
    threads: int | None = None

    def __call__(self) -> Record | None:
        """Run the cell; return its record, which is also in its folder, or None if the cell was stopped.

        Raises:
            HarnessError: this machine cannot see the results folder.
        """
        root = self.cell.results_dir
        if not root.is_dir():
            raise HarnessError(
                f"{root} does not exist on {host()}: results_dir must be a directory shared by all machines"
            )
        devices = os.environ.get("CUDA_VISIBLE_DEVICES") if self.devices is None else self.devices
        pool = LocalPool(
            slots=[DeviceSlot(devices, self.threads or _available_threads())],
            display=SilentDisplay(SweepCounts(total=1)),
            runner=self.runner,
            preload=self.preload,
            force_rerun={str(self.cell.folder)} if self.force_rerun else frozenset(),
        )
        with _empty_main_module():
            return pool.run([self.cell]).get(str(self.cell.folder))

    def checkpoint(self) -> object:
        """Called by submitit when a job is preempted: the cell starts again once the job is requeued."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


def with_absolute_paths(cell: Cell) -> Cell:
    """Make paths absolute, because a worker may run in another directory.

    Neither the cell id nor the results depend on paths.
    """
    sections = {group: _absolute(cell.resolved.get(group), is_path=False) for group in ("encoder", "task")}
    return replace(
        cell,
        encoder=_absolute_encoder(cell.encoder),
        task=replace(cell.task, options=_absolute_options(cell.task.options)),
        resolved={**cell.resolved, **{group: s for group, s in sections.items() if s is not None}},
    )


def _absolute_encoder(encoder: EncoderConfig) -> EncoderConfig:
    members = {name: _absolute_encoder(member) for name, member in encoder.members.items()}
    return replace(encoder, options=_absolute_options(encoder.options), members=members)


def _absolute_options(options: Mapping[str, object]) -> dict[str, object]:
    return {key: _absolute(value, is_path=key in PLACES) for key, value in options.items()}


def _absolute(value: object, *, is_path: bool) -> object:
    if isinstance(value, Mapping):
        return {k: _absolute(v, is_path=is_path or k in PLACES) for k, v in value.items()}
    if isinstance(value, list):
        return [_absolute(v, is_path=is_path) for v in value]
    if not is_path or not isinstance(value, str) or not value:
        return value
    path = Path(value).expanduser()
    return str(path.absolute()) if path.exists() else value


def gpus_of(cell: Cell, per_device: float) -> float:
    """Number of GPUs that a cell needs.

    ``per_device`` for each of its devices, rounded up to whole GPUs if it has several; 0 on the CPU.
    """
    devices = cell.trainer.devices
    if cell.trainer.accelerator == "cpu":
        return 0.0
    return float(per_device) if devices == 1 else float(-(-per_device // 1)) * devices


def require_package(package: str, *, launcher: str, extra: str) -> None:
    """Raise HarnessError if the package that a launcher needs is not installed."""
    import importlib.util

    if importlib.util.find_spec(package) is None:
        raise HarnessError(
            f"hydra/launcher={launcher}: the package {package} is missing; "
            f"pip install 'transfer-harness[{extra}]'"
        )


def _available_threads() -> int:
    allocated = os.environ.get("SLURM_CPUS_PER_TASK", "")
    return min(cpu_share(1), int(allocated)) if allocated.isdecimal() and int(allocated) else cpu_share(1)


@contextlib.contextmanager
def _empty_main_module() -> Iterator[None]:
    """Replace ``__main__``, so that the cells' processes do not import that of the engine's worker."""
    main, sys.modules["__main__"] = sys.modules["__main__"], types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
