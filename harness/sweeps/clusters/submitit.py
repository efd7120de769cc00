"""Runs cells as Slurm jobs through submitit, or as local jobs without Slurm, to try the setup."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import HarnessError
from harness.processes.forkserver import environment
from harness.processes.slots import cuda_devices
from harness.records.cell import Cell
from harness.records.record import Record
from harness.sweeps.clusters.task import CellTask, TaskFailure, gpus_of, require_package

if TYPE_CHECKING:
    from submitit import AutoExecutor
    from submitit import Job as SubmititJob

    CellJob = SubmititJob[Record | None]

COMMON_PARAMETERS = (
    "timeout_min", "cpus_per_task", "gpus_per_node", "tasks_per_node", "mem_gb", "nodes", "name",
    "stderr_to_stdout",
)  # fmt: skip
"""Parameters that all submitit executors share; submitit expects the others with the cluster as a prefix."""
POLL_SECONDS = {"slurm": 2.0, "local": 0.1}
LAUNCHER = {"slurm": "slurm", "local": "slurm_local"}


class SubmititEngine:
    """Jobs submitted through submitit's executors.

    Args:
        cluster: ``slurm`` or ``local``.
        folder: for submitit's own files; absolute, in the shared directory.
        parameters: named as in submitit and hydra-submitit-launcher. ``gpus_per_node`` is per device of a
            cell; ``array_parallelism`` is the number of cells that run at the same time.
        cells: the cells to run.

    Raises:
        HarnessError: submitit or Slurm is missing, or this machine has fewer GPUs than a cell needs.
    """

    def __init__(
        self, *, cluster: str, folder: Path, parameters: Mapping[str, object], cells: Sequence[Cell]
    ) -> None:
        require_package("submitit", launcher=LAUNCHER[cluster], extra="slurm")
        self.name, self._cluster, self._folder = LAUNCHER[cluster], cluster, folder
        self._parameters: dict[str, Any] = {k: v for k, v in parameters.items() if v is not None}
        self._gpus = self._parameters.pop("gpus_per_node", 0)
        self.width = int(self._parameters.get("array_parallelism", 1))
        self.limit: int | None = None
        self._free_devices: list[str] = []
        self._devices_of: dict[CellJob, str] = {}
        self._killed: set[CellJob] = set()
        if cluster == "local":
            self._parameters.pop("array_parallelism", None)
            self._split_devices(cells)
        self._executor(0)  # fails now if submitit rejects the parameters

    def _split_devices(self, cells: Sequence[Cell]) -> None:
        """Give each running cell its own GPUs: submitit's local mode gives all jobs the same ones."""
        per_cell = int(max(gpus_of(cell, self._gpus) for cell in cells))
        names = cuda_devices() if per_cell else []
        if per_cell > len(names):
            raise HarnessError(
                f"hydra.launcher.gpus_per_node={self._gpus}: a cell needs {per_cell} GPU, "
                f"but this machine has {len(names)}; nothing has been run"
            )
        if per_cell:
            starts = range(0, len(names) - per_cell + 1, per_cell)
            self._free_devices = [",".join(names[i : i + per_cell]) for i in starts]
            self.width = min(self.width, len(self._free_devices))
        self.limit = self.width

    def _executor(self, gpus: int) -> AutoExecutor:
        import submitit

        parameters = dict(self._parameters)
        if gpus and self._cluster == "slurm":
            parameters["gpus_per_node"] = gpus
        options = {f"{self._cluster}_{k}": parameters.pop(k) for k in ("max_num_timeout",) if k in parameters}
        if self._cluster == "slurm":
            parameters["setup"] = [*(parameters.get("setup") or ()), "export PYTHONSAFEPATH=1"]
        named = {k if k in COMMON_PARAMETERS else f"{self._cluster}_{k}": v for k, v in parameters.items()}
        try:
            executor = submitit.AutoExecutor(
                folder=str(self._folder / "%j"), cluster=self._cluster, **options
            )
            executor.update_parameters(**named)
        except Exception as e:  # RuntimeError without Slurm; TypeError or NameError for a parameter
            raise HarnessError(f"hydra/launcher={self.name}: rejected by submitit ({e})") from e
        return executor

    def submit(self, tasks: Sequence[CellTask]) -> list[CellJob]:
        """Submit one job array per number of GPUs."""
        jobs: dict[int, CellJob] = {}
        gpus_needed = [int(gpus_of(t.cell, self._gpus)) for t in tasks]
        for gpus in dict.fromkeys(gpus_needed):
            executor = self._executor(gpus)
            batch = {n: self._with_devices(tasks[n], gpus) for n, g in enumerate(gpus_needed) if g == gpus}
            try:
                with _job_environment(), executor.batch():
                    submitted = [executor.submit(task) for task in batch.values()]
            except Exception as e:
                raise HarnessError(f"hydra/launcher={self.name}: the jobs were rejected ({e})") from e
            for (n, task), job in zip(batch.items(), submitted, strict=True):
                jobs[n] = job
                self._devices_of[job] = task.devices or ""
        return [jobs[n] for n in range(len(tasks))]

    def _with_devices(self, task: CellTask, gpus: int) -> CellTask:
        if gpus:
            return replace(task, devices=self._free_devices.pop(0)) if self._cluster == "local" else task
        # gres may allocate GPUs on Slurm although gpus_per_node is null
        allocated_by_gres = self._cluster == "slurm" and "gres" in self._parameters
        return task if allocated_by_gres else replace(task, devices="")

    def poll(
        self, handles: Sequence[CellJob], seconds: float
    ) -> list[tuple[CellJob, Record | TaskFailure | None]]:
        time.sleep(max(seconds, POLL_SECONDS[self._cluster]))
        done = [job for job in handles if job.done()]
        for job in done:
            devices = self._devices_of.pop(job, "")
            if devices and self._cluster == "local":
                self._free_devices.append(devices)
        # submitit waits for the result of a job, and a killed job has none
        return [(job, None if job in self._killed else _result(job)) for job in done]

    def withdraw(self, handles: Sequence[CellJob]) -> None:
        for job in handles if self._cluster == "slurm" else ():
            if str(job.state).upper() in ("PENDING", "UNKNOWN", "READY"):
                job.cancel(check=False)

    def kill(self, handles: Sequence[CellJob]) -> None:
        self._killed.update(handles)
        for job in handles:
            if self._cluster == "slurm":
                job.cancel(check=False)
            else:
                _kill_tree(int(job.job_id))

    def close(self) -> None:
        """No-op: nothing stays open."""


def _result(job: CellJob) -> Record | TaskFailure | None:
    from submitit.core.utils import FailedJobError, UncompletedJobError

    try:
        return job.results()[0]
    except UncompletedJobError:
        state = str(job.state).upper()
        if state.startswith("CANCELLED"):
            return None
        status = "timeout" if state.startswith("TIMEOUT") else "failed"
        return TaskFailure(
            f"job {job.job_id} ended without a result ({state}); its log: {job.paths.stderr}", status
        )
    except FailedJobError as e:
        lines = [line for line in str(e).splitlines() if line.strip(" -\t")]
        return TaskFailure(f"job {job.job_id} failed: {lines[-1][:1000] if lines else 'no reason given'}")
    except Exception as e:
        return TaskFailure(f"job {job.job_id} failed: {e}")


@contextlib.contextmanager
def _job_environment() -> Iterator[None]:
    """Settings that jobs inherit: no imports from the current directory, and Ctrl-C is left to the driver."""
    with environment({"PYTHONSAFEPATH": "1"}):
        try:
            handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
        except ValueError:  # not in the main thread
            handler = None
        try:
            yield
        finally:
            if handler is not None:
                signal.signal(signal.SIGINT, handler)


def _kill_tree(pid: int) -> None:
    import psutil

    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        for member in [process, *process.children(recursive=True)]:
            with contextlib.suppress(psutil.Error):
                member.kill()
