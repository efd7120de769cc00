"""Runs cells as Ray tasks: Ray schedules each cell by its resources and reports its end."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from harness.errors import HarnessError
from harness.records.cell import Cell
from harness.records.record import Record
from harness.sweeps.clusters.task import CellTask, TaskFailure, gpus_of, require_package

if TYPE_CHECKING:
    from ray import ObjectRef

    Ref = ObjectRef[Any]

CHECK_SECONDS = 10.0
PATIENCE_SECONDS = 60.0
"""How long the remaining cells may be unschedulable before the sweep ends: a machine may come back."""
OBJECT_STORE_BYTES = 78_643_200
ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",  # no network access that the user has not requested
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # a cell without a GPU hides them itself
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
}
Resources = tuple[tuple[str, float], ...]
"""Names and amounts of the resources of a cell, sorted."""


class RayEngine:
    """A Ray cluster: an existing one, or one started for this sweep.

    Args:
        init: arguments of ``ray.init``; without ``address``, a cluster is started on this machine.
        remote: options of each task, as for ``ray.remote``; ``num_gpus`` is per device of a cell,
            ``auto`` = 1 if the cluster has GPUs.
        cells: the cells to run.
        wait_seconds: how long to wait for a growing cluster to have the resources of a cell.

    Raises:
        HarnessError: Ray is not installed or cannot start, or no machine has the resources of a cell.
    """

    name = "ray"
    limit: int | None = None

    def __init__(
        self,
        *,
        init: Mapping[str, object],
        remote: Mapping[str, Any],
        cells: Sequence[Cell],
        wait_seconds: float,
    ) -> None:
        require_package("ray", launcher="ray", extra="ray")
        self._ray, self._started_here = _connect(init)
        self._remote = {"max_retries": 0, "max_calls": 0, **remote}
        self._functions: dict[Resources, Any] = {}
        self._stuck_since: float | None = None
        self._checked = time.monotonic()
        try:
            self._check(cells, time.monotonic() + wait_seconds)
        except BaseException:
            self.close()
            raise

    def _check(self, cells: Sequence[Cell], until: float) -> None:
        while (shortage := self._shortage(cells)) and time.monotonic() < until:
            time.sleep(1.0)
        if shortage:
            raise HarnessError(f"{shortage}; nothing has been run")
        self.width = max(1, min(self._capacity(cell) for cell in cells))

    def _resources(self, cell: Cell) -> Resources:
        num_gpus = self._remote.get("num_gpus", 0)
        if num_gpus == "auto":
            num_gpus = 1 if self._ray.cluster_resources().get("GPU") else 0
        out = {
            "CPU": float(self._remote.get("num_cpus", 1)),
            "GPU": gpus_of(cell, float(num_gpus or 0)),
        }
        out |= {k: float(v) for k, v in (self._remote.get("resources") or {}).items()}
        if self._remote.get("memory"):
            out["memory"] = float(self._remote["memory"])
        return tuple(sorted((k, v) for k, v in out.items() if v > 0))

    def _nodes(self) -> list[dict[str, float]]:
        return [node["Resources"] for node in self._ray.nodes() if node["Alive"]]

    def _shortage(self, cells: Sequence[Cell]) -> str:
        """Why one of the cells can never be scheduled; empty if all can."""
        nodes = self._nodes()
        for resources in dict.fromkeys(map(self._resources, cells)):
            if not any(_fits(resources, node) for node in nodes):
                name, amount = next(
                    ((k, v) for k, v in resources if all(node.get(k, 0.0) < v for node in nodes)),
                    resources[0],
                )
                largest = max((node.get(name, 0.0) for node in nodes), default=0.0)
                key = {"GPU": "num_gpus", "CPU": "num_cpus"}.get(name, name)
                return (
                    f"hydra.launcher.ray.remote.{key}: a cell needs {amount:g} {name}, but the largest of "
                    f"{len(nodes)} machine{'s' * (len(nodes) != 1)} in the Ray cluster has {largest:g}; "
                    "request less, or connect to a larger cluster (hydra.launcher.ray.init.address)"
                )
        return ""

    def _capacity(self, cell: Cell) -> int:
        """How many such cells fit into the cluster at the same time."""
        resources = self._resources(cell)
        return sum(
            int(min((node.get(k, 0.0) // v for k, v in resources), default=1)) for node in self._nodes()
        )

    def submit(self, tasks: Sequence[CellTask]) -> list[Ref]:
        return [self._function(t).options(name=t.cell.title).remote(self._with_devices(t)) for t in tasks]

    def _with_devices(self, task: CellTask) -> CellTask:
        # a task without GPUs must not see any
        gpus = dict(self._resources(task.cell)).get("GPU", 0.0)
        return task if gpus else replace(task, devices="")

    def _function(self, task: CellTask) -> Any:
        resources = self._resources(task.cell)
        if resources not in self._functions:
            gpus = dict(resources).get("GPU", 0.0)
            self._functions[resources] = self._ray.remote(**{**self._remote, "num_gpus": gpus})(_run)
        return self._functions[resources]

    def poll(self, handles: Sequence[Ref], seconds: float) -> list[tuple[Ref, Record | TaskFailure | None]]:
        if not handles:
            time.sleep(seconds)
            return []
        self._check_remaining()
        done, _ = self._ray.wait(list(handles), num_returns=1, timeout=seconds)
        if done:
            done, _ = self._ray.wait(list(handles), num_returns=len(handles), timeout=0)
        return [(handle, self._result(handle)) for handle in done]

    def _result(self, handle: Ref) -> Record | TaskFailure | None:
        errors = self._ray.exceptions
        try:
            record: Record | None = self._ray.get(handle)
            return record
        except errors.TaskCancelledError:
            return None
        except errors.RayTaskError as e:
            return TaskFailure(f"the Ray worker failed: {str(e.cause or e).strip()[-1000:]}")
        except errors.OutOfMemoryError as e:
            return TaskFailure(f"killed by Ray because its machine was out of memory: {_first_line(e)}")
        except errors.RayError as e:
            return TaskFailure(f"the Ray worker died ({type(e).__name__}): {_first_line(e)}")

    def _check_remaining(self) -> None:
        """Detect tasks that no machine can run any more: they would wait forever.

        Raises:
            HarnessError: this has been the case for a minute.
        """
        now = time.monotonic()
        if now - self._checked < CHECK_SECONDS:
            return
        self._checked = now
        nodes = self._nodes()
        stuck = [r for r in self._functions if not any(_fits(r, node) for node in nodes)]
        self._stuck_since = (self._stuck_since or now) if stuck else None
        if self._stuck_since is not None and now - self._stuck_since > PATIENCE_SECONDS:
            amounts = ", ".join(f"{v:g} {k}" for k, v in stuck[0])
            raise HarnessError(
                f"the Ray cluster no longer has a machine with {amounts}; repeat the command to run the "
                "remaining cells"
            )

    def withdraw(self, handles: Sequence[Ref]) -> None:
        # a running task treats this as Ctrl-C: it finishes its cell and starts no other
        for handle in handles:
            self._ray.cancel(handle, force=False)

    def kill(self, handles: Sequence[Ref]) -> None:
        for handle in handles:
            self._ray.cancel(handle, force=True)

    def close(self) -> None:
        """Disconnect; shut the cluster down if it was started for this sweep."""
        if self._started_here:
            self._ray.shutdown()
            self._started_here = False


def _fits(resources: Resources, node: Mapping[str, float]) -> bool:
    return all(node.get(name, 0.0) >= amount for name, amount in resources)


def _run(task: CellTask) -> Record | None:
    return task()


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), "no reason given")[:500]


def _connect(init: Mapping[str, object]) -> tuple[ModuleType, bool]:
    """Connect to the cluster; returns the ray module, and whether this call started the cluster."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    arguments = {k: v for k, v in init.items() if v is not None}
    if "address" not in arguments:
        os.environ.setdefault("RAY_AUTH_MODE", "disabled")  # only this machine can reach it
        os.environ.setdefault("PYTHONSAFEPATH", "1")  # workers must not import from the current directory
        arguments.setdefault("object_store_memory", OBJECT_STORE_BYTES)
    else:
        for key in ("num_gpus", "num_cpus", "include_dashboard"):
            arguments.pop(key, None)  # valid only for a cluster that is started here
    import ray

    if ray.is_initialized():
        return ray, False
    init_ray: Any = ray.init
    try:
        # Ray adds the current directory to its workers' path; site-packages is on it already
        with contextlib.chdir(Path(ray.__file__).parents[1]):
            init_ray(**arguments)
    except Exception as e:
        raise HarnessError(
            f"hydra.launcher.ray.init: Ray could not be started or reached ({_first_line(e)})"
        ) from e
    return ray, True
