"""Cells as Slurm jobs through submitit, and the same on one machine without Slurm, to try it."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.errors import HarnessError
from harness.processes.slots import cuda_devices
from harness.records.cell import Cell
from harness.records.record import Record
from harness.sweeps.clusters.task import Death, Work, gpus_of, need

SHARED = (
    "timeout_min", "cpus_per_task", "gpus_per_node", "tasks_per_node", "mem_gb", "nodes", "name",
    "stderr_to_stdout",
)  # fmt: skip
"""Parameters that submitit has for every kind of executor; others get its prefix."""
POLL_SECONDS = {"slurm": 2.0, "local": 0.1}
LAUNCHER = {"slurm": "slurm", "local": "slurm_local"}


class SubmititEngine:
    """submitit's executors.

    Args:
        cluster: ``slurm`` or ``local``.
        folder: for submitit's own files; absolute, on the shared directory.
        parameters: as submitit and hydra-submitit-launcher name them. ``gpus_per_node`` is for each device of
            a cell; ``array_parallelism`` is how many cells run at once.
        cells: what is to run.

    Raises:
        HarnessError: submitit or Slurm is missing, or this machine has fewer GPUs than a cell asks for.
    """

    def __init__(
        self, *, cluster: str, folder: Path, parameters: Mapping[str, Any], cells: Sequence[Cell]
    ) -> None:
        need("submitit", launcher=LAUNCHER[cluster], extra="slurm")
        self.name, self._cluster, self._folder = LAUNCHER[cluster], cluster, folder
        self._parameters = {k: v for k, v in parameters.items() if v is not None}
        self._gpus = self._parameters.pop("gpus_per_node", 0)
        self.width = int(self._parameters.get("array_parallelism", 1))
        self.limit: int | None = None
        self._free: list[str] = []
        self._given: dict[Any, str] = {}
        self._killed: set[Any] = set()
        if cluster == "local":
            self._parameters.pop("array_parallelism", None)
            self._share_devices(cells)
        self._executor(0)  # what submitit refuses, it refuses now

    def _share_devices(self, cells: Sequence[Cell]) -> None:
        """submitit's local mode gives every job the same devices; here each running cell has its own."""
        most = int(max(gpus_of(cell, self._gpus) for cell in cells))
        names = cuda_devices() if most else []
        if most > len(names):
            raise HarnessError(
                f"hydra.launcher.gpus_per_node={self._gpus}: a cell takes {most} GPU, and this machine has "
                f"{len(names)}; nothing has been run"
            )
        if most:
            self._free = [",".join(names[i : i + most]) for i in range(0, len(names) - most + 1, most)]
            self.width = min(self.width, len(self._free))
        self.limit = self.width

    def _executor(self, gpus: int) -> Any:
        import submitit

        given = {**self._parameters, **({"gpus_per_node": gpus} if gpus and self._cluster == "slurm" else {})}
        first = {f"{self._cluster}_{k}": given.pop(k) for k in ("max_num_timeout",) if k in given}
        if self._cluster == "slurm":
            given["setup"] = [*(given.get("setup") or ()), "export PYTHONSAFEPATH=1"]
        named = {k if k in SHARED else f"{self._cluster}_{k}": v for k, v in given.items()}
        try:
            executor = submitit.AutoExecutor(folder=str(self._folder / "%j"), cluster=self._cluster, **first)
            executor.update_parameters(**named)
        except Exception as e:  # submitit raises what comes: RuntimeError without Slurm, TypeError, NameError
            raise HarnessError(f"hydra/launcher={self.name}: submitit refuses it ({e})") from e
        return executor

    def submit(self, works: Sequence[Work]) -> list[Any]:
        """One array a number of GPUs."""
        handles: list[Any] = [None] * len(works)
        wanted = [int(gpus_of(w.cell, self._gpus)) for w in works]
        for gpus in dict.fromkeys(wanted):
            executor = self._executor(gpus)
            mine = [n for n, g in enumerate(wanted) if g == gpus]
            placed = [self._placed(works[n], gpus) for n in mine]
            try:
                with _for_children(), executor.batch():
                    jobs = [executor.submit(work) for work in placed]
            except Exception as e:
                raise HarnessError(f"hydra/launcher={self.name}: the jobs were refused ({e})") from e
            for n, job, work in zip(mine, jobs, placed, strict=True):
                handles[n] = job
                self._given[job] = work.devices or ""
        return handles

    def _placed(self, work: Work, gpus: int) -> Work:
        if not gpus:
            # on Slurm null leaves it to other settings, such as gres
            return (
                work if self._cluster == "slurm" and "gres" in self._parameters else replace(work, devices="")
            )
        return replace(work, devices=self._free.pop(0)) if self._cluster == "local" else work

    def poll(self, handles: Sequence[Any], seconds: float) -> list[tuple[Any, Record | Death | None]]:
        time.sleep(max(seconds, POLL_SECONDS[self._cluster]))
        done = [job for job in handles if job.done()]
        for job in done:
            devices = self._given.pop(job, "")
            if devices and self._cluster == "local":
                self._free.append(devices)
        # submitit waits for an answer of each job, and one that was killed gives none
        return [(job, None if job in self._killed else self._answer(job)) for job in done]

    def _answer(self, job: Any) -> Record | Death | None:
        from submitit.core.utils import FailedJobError, UncompletedJobError

        try:
            return job.results()[0]
        except UncompletedJobError:
            state = str(job.state).upper()
            if state.startswith("CANCELLED"):
                return None
            status = "timeout" if state.startswith("TIMEOUT") else "failed"
            return Death(
                f"job {job.job_id} ended without an answer ({state}); its log: {job.paths.stderr}", status
            )
        except FailedJobError as e:
            lines = [line for line in str(e).splitlines() if line.strip(" -\t")]
            return Death(f"job {job.job_id} failed: {lines[-1][:1000] if lines else 'no reason given'}")
        except Exception as e:
            return Death(f"job {job.job_id} failed: {e}")

    def withdraw(self, handles: Sequence[Any]) -> None:
        for job in handles if self._cluster == "slurm" else ():
            if str(job.state).upper() in ("PENDING", "UNKNOWN", "READY"):
                job.cancel(check=False)

    def kill(self, handles: Sequence[Any]) -> None:
        self._killed.update(handles)
        for job in handles:
            if self._cluster == "slurm":
                job.cancel(check=False)
            else:
                _kill_tree(int(job.job_id))

    def close(self) -> None:
        """Nothing is left open."""


@contextlib.contextmanager
def _for_children() -> Iterator[None]:
    """Jobs that are started here inherit that nothing is imported from the current directory, and that a
    Ctrl-C at the terminal is the driver's business."""
    before = os.environ.get("PYTHONSAFEPATH")
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        handler: Any = signal.signal(signal.SIGINT, signal.SIG_IGN)
    except ValueError:
        handler = None
    try:
        yield
    finally:
        if handler is not None:
            signal.signal(signal.SIGINT, handler)
        if before is None:
            del os.environ["PYTHONSAFEPATH"]
        else:
            os.environ["PYTHONSAFEPATH"] = before


def _kill_tree(pid: int) -> None:
    import psutil

    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        for one in [process, *process.children(recursive=True)]:
            with contextlib.suppress(psutil.Error):
                one.kill()
