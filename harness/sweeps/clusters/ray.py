"""Cells as Ray tasks: Ray knows the machines, places each cell by what it asks for, and tells of its end."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.errors import HarnessError
from harness.records.cell import Cell
from harness.records.record import Record
from harness.sweeps.clusters.task import Death, Work, gpus_of, need

CHECK_SECONDS = 10.0
PATIENCE_SECONDS = 60.0
"""How long what is left may be impossible to place before the sweep ends: a machine may come back."""
OBJECT_STORE_BYTES = 78_643_200
ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",  # a sweep uses no network that it was not told to
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # a cell without a GPU hides them itself
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
}
Needs = tuple[tuple[str, float], ...]


class RayEngine:
    """A Ray cluster, or one that lives as long as this sweep.

    Args:
        init: arguments of ``ray.init``; without ``address`` a cluster on this machine is started.
        remote: options of each task, as ``ray.remote`` takes them; ``num_gpus`` is for each device of a cell,
            ``auto`` = one where the cluster has any.
        cells: what is to run.
        wait_seconds: how long to wait for a cluster that grows to have what a cell needs.

    Raises:
        HarnessError: Ray is missing or cannot start, or no machine has what a cell asks for.
    """

    name = "ray"
    limit: int | None = None

    def __init__(
        self,
        *,
        init: Mapping[str, Any],
        remote: Mapping[str, Any],
        cells: Sequence[Cell],
        wait_seconds: float,
    ) -> None:
        need("ray", launcher="ray", extra="ray")
        self._ray, self._ours = _start(init)
        self._remote = {"max_retries": 0, "max_calls": 0, **remote}
        self._functions: dict[Needs, Any] = {}
        self._short_since: float | None = None
        self._checked = time.monotonic()
        try:
            self._check(cells, time.monotonic() + wait_seconds)
        except BaseException:
            self.close()
            raise

    def _check(self, cells: Sequence[Cell], until: float) -> None:
        while (short := self._shortage(cells)) and time.monotonic() < until:
            time.sleep(1.0)
        if short:
            raise HarnessError(f"{short}; nothing has been run")
        self.width = max(1, min(self._room(cell) for cell in cells))

    def _needs(self, cell: Cell) -> Needs:
        asked = self._remote.get("num_gpus", 0)
        per_device = (1 if self._ray.cluster_resources().get("GPU") else 0) if asked == "auto" else asked or 0
        out = {"CPU": float(self._remote.get("num_cpus", 1)), "GPU": gpus_of(cell, float(per_device))}
        out |= {k: float(v) for k, v in (self._remote.get("resources") or {}).items()}
        if self._remote.get("memory"):
            out["memory"] = float(self._remote["memory"])
        return tuple(sorted((k, v) for k, v in out.items() if v > 0))

    def _nodes(self) -> list[dict[str, float]]:
        return [node["Resources"] for node in self._ray.nodes() if node["Alive"]]

    def _shortage(self, cells: Sequence[Cell]) -> str:
        """Why one of the cells can never be placed; empty when all can."""
        nodes = self._nodes()
        for needs in dict.fromkeys(map(self._needs, cells)):
            if not any(all(node.get(k, 0.0) >= v for k, v in needs) for node in nodes):
                name, wanted = next(
                    ((k, v) for k, v in needs if all(node.get(k, 0.0) < v for node in nodes)), needs[0]
                )
                most = max((node.get(name, 0.0) for node in nodes), default=0.0)
                key = {"GPU": "num_gpus", "CPU": "num_cpus"}.get(name, name)
                return (
                    f"hydra.launcher.ray.remote.{key}: a cell takes {wanted:g} {name}, and the largest of "
                    f"{len(nodes)} machine{'s' * (len(nodes) != 1)} in the Ray cluster has {most:g}; ask for "
                    "less, or connect to a larger cluster (hydra.launcher.ray.init.address)"
                )
        return ""

    def _room(self, cell: Cell) -> int:
        needs = self._needs(cell)
        return sum(int(min((node.get(k, 0.0) // v for k, v in needs), default=1)) for node in self._nodes())

    def submit(self, works: Sequence[Work]) -> list[Any]:
        return [self._function(w).options(name=w.cell.title).remote(self._given(w)) for w in works]

    def _given(self, work: Work) -> Work:
        from dataclasses import replace

        # a task that was given no GPU shall see none
        gpus = dict(self._needs(work.cell)).get("GPU", 0.0)
        return work if gpus else replace(work, devices="")

    def _function(self, work: Work) -> Any:
        needs = self._needs(work.cell)
        if needs not in self._functions:
            gpus = dict(needs).get("GPU", 0.0)
            self._functions[needs] = self._ray.remote(**{**self._remote, "num_gpus": gpus})(_run)
        return self._functions[needs]

    def poll(self, handles: Sequence[Any], seconds: float) -> list[tuple[Any, Record | Death | None]]:
        if not handles:
            time.sleep(seconds)
            return []
        self._watch()
        done, _ = self._ray.wait(list(handles), num_returns=1, timeout=seconds)
        if done:
            done, _ = self._ray.wait(list(handles), num_returns=len(handles), timeout=0)
        return [(handle, self._answer(handle)) for handle in done]

    def _answer(self, handle: Any) -> Record | Death | None:
        errors = self._ray.exceptions
        try:
            return self._ray.get(handle)
        except errors.TaskCancelledError:
            return None
        except errors.RayTaskError as e:
            return Death(f"the Ray worker failed: {str(e.cause or e).strip()[-1000:]}")
        except errors.OutOfMemoryError as e:
            return Death(f"ended by Ray, whose machine was out of memory: {_first(e)}")
        except errors.RayError as e:
            return Death(f"the Ray worker died ({type(e).__name__}): {_first(e)}")

    def _watch(self) -> None:
        """Tasks that no machine can take any more would wait forever.

        Raises:
            HarnessError: it has been so for a minute.
        """
        now = time.monotonic()
        if now - self._checked < CHECK_SECONDS:
            return
        self._checked = now
        nodes = self._nodes()
        stuck = [n for n in self._functions if not any(all(m.get(k, 0.0) >= v for k, v in n) for m in nodes)]
        self._short_since = (self._short_since or now) if stuck else None
        if self._short_since is not None and now - self._short_since > PATIENCE_SECONDS:
            wanted = ", ".join(f"{v:g} {k}" for k, v in stuck[0])
            raise HarnessError(
                f"the Ray cluster has no machine with {wanted} any more; the same command runs what is left"
            )

    def withdraw(self, handles: Sequence[Any]) -> None:
        # what runs already takes it for a Ctrl-C: it ends its cell and begins no other
        for handle in handles:
            self._ray.cancel(handle, force=False)

    def kill(self, handles: Sequence[Any]) -> None:
        for handle in handles:
            self._ray.cancel(handle, force=True)

    def close(self) -> None:
        """Leave the cluster; end it if it is this sweep's."""
        if self._ours:
            self._ray.shutdown()
            self._ours = False


def _run(work: Work) -> Record | None:
    return work()


def _first(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), "no reason given")[:500]


def _start(init: Mapping[str, Any]) -> tuple[Any, bool]:
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    arguments = {k: v for k, v in init.items() if v is not None}
    if "address" not in arguments:
        os.environ.setdefault("RAY_AUTH_MODE", "disabled")  # nobody else is to find it
        os.environ.setdefault(
            "PYTHONSAFEPATH", "1"
        )  # nor shall its workers import from the current directory
        arguments.setdefault("object_store_memory", OBJECT_STORE_BYTES)
    else:
        for key in ("num_gpus", "num_cpus", "include_dashboard"):
            arguments.pop(key, None)  # for a cluster that is started here
    import ray

    if ray.is_initialized():
        return ray, False
    try:
        # Ray puts the current directory on its workers' path; this one is on it already
        with contextlib.chdir(Path(ray.__file__).parents[1]):
            ray.init(**arguments)
    except Exception as e:
        raise HarnessError(
            f"hydra.launcher.ray.init: Ray could not be started or reached ({_first(e)})"
        ) from e
    return ray, True
