"""One cell as a task of a cluster: plain data that an engine sends to a worker, which calls it."""

from __future__ import annotations

import contextlib
import os
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass

from harness.core.provenance import host
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
    """

    cell: Cell
    runner: str
    preload: tuple[str, ...]
    force_rerun: bool = False
    devices: str | None = None

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
            slots=[DeviceSlot(devices, _available_threads())],
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
