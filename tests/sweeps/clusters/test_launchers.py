"""Sweeps on Ray and through submitit, with fake resolving and running of cells."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.cli.main import main
from harness.config import resolve
from harness.errors import HarnessError
from harness.records import inputs
from harness.records.record import RECORD, Record, read_record, write_record
from harness.sweeps import launch
from harness.sweeps.clusters import pool as clusters
from harness.sweeps.clusters import ray, submitit
from harness.sweeps.clusters.pool import ClusterPool
from harness.sweeps.clusters.task import CellTask, TaskFailure, gpus_of, require_package
from harness.sweeps.progress import SilentDisplay, SweepCounts
from tests.helpers import cell_runners
from tests.helpers.paths import PYTHONPATH, ROOT

HELPERS = ROOT / "tests" / "helpers"
RAY = ("-m", "hydra/launcher=ray", "hydra.launcher.ray.init.num_gpus=2", "hydra.launcher.ray.init.num_cpus=2")
ray_here = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed")
submitit_here = pytest.mark.skipif(
    importlib.util.find_spec("submitit") is None, reason="submitit is not installed"
)


def harness(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a subprocess, in a folder with modules that must not be imported."""
    for name in ("tasks.py", "harness.py", "submitit.py"):
        (folder / name).write_text("raise SystemExit('the wrong module was imported')\n")
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH, "PYTHONSAFEPATH": "1"}
    environment.pop("CUDA_VISIBLE_DEVICES", None)
    command = [sys.executable, str(HELPERS / "cluster_runners.py"), *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=200)


def statuses(results: Path) -> dict[str, str]:
    return {
        f"{p.parents[1].name}/{p.parent.name}": json.loads(p.read_text())["status"]
        for p in sorted(results.glob("*/*/*/*/*/record.json"))
    }


@ray_here
@pytest.mark.timeout(240)
def test_ray_assigns_gpus_and_a_dead_worker_fails_one_cell(tmp_path: Path) -> None:
    done = harness(tmp_path, *RAY, "optimizer.lr=5", "encoder.path=roles", "seed=0,1,2,3")
    assert done.returncode == 1, done.stderr
    results = tmp_path / "results"
    assert statuses(results) == {
        "5/seed-0": "complete", "5/seed-1": "complete", "5/seed-2": "failed", "5/seed-3": "failed",
    }  # fmt: skip
    folders = [results / "t" / "e" / "s" / "5" / f"seed-{n}" for n in range(4)]
    environments = [json.loads((f / "here.json").read_text()) for f in folders[:2]]
    assert sorted(t["CUDA_VISIBLE_DEVICES"] for t in environments) == ["0", "1"]
    assert [(f / "met").read_text() for f in folders[:2]] == ["True", "True"]
    assert "SIGSEGV" in read_record(folders[2]).reason
    assert "Ray worker died" in read_record(folders[3]).reason
    assert "2 complete, 2 failed" in done.stdout


@ray_here
@pytest.mark.timeout(240)
def test_requesting_more_gpus_than_ray_has_is_rejected(tmp_path: Path) -> None:
    before = time.monotonic()
    done = harness(tmp_path, *RAY, "hydra.launcher.ray.remote.num_gpus=4", "optimizer.lr=1,2")
    assert done.returncode == 2, done.stderr
    assert "a cell needs 4 GPU, but the largest of 1 machine in the Ray cluster has 2" in done.stderr
    assert "nothing has been run" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "results").exists()
    assert time.monotonic() - before < 120


@submitit_here
@pytest.mark.timeout(240)
def test_submitit_runs_cells_and_repeating_the_command_runs_failed_ones(tmp_path: Path) -> None:
    command = ("-m", "hydra/launcher=slurm_local", "optimizer.lr=1,5,2")
    done = harness(tmp_path, *command, "encoder.path=raise")
    assert done.returncode == 1, done.stderr
    results = tmp_path / "results"
    assert statuses(results) == {"1/seed-0": "complete", "2/seed-0": "complete", "5/seed-0": "failed"}
    assert "boom-5" in read_record(results / "t" / "e" / "s" / "5" / "seed-0").reason
    assert "FAILED  t/e/s/5/seed-0" in done.stderr
    assert "2 complete, 1 failed" in done.stdout
    assert not list(results.rglob(".lease"))
    (results / "runs").unlink()
    done = harness(tmp_path, *command, "encoder.path=ok")
    assert done.returncode == 0, done.stderr
    assert (results / "runs").read_text() == "5 0\n"


@pytest.fixture
def workdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to an empty directory; the id of a cell is its ``optimizer.lr``."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(resolve, "prepare", cell_runners.prepare)
    monkeypatch.setattr(inputs, "read_data", cell_runners.read_data)
    monkeypatch.setattr(launch, "RUNNER", "tests.helpers.cell_runners:act")
    monkeypatch.setattr(launch, "PRELOAD", ("tests.helpers.cell_runners",))
    return tmp_path


@pytest.mark.parametrize("launcher", ["ray", "slurm", "slurm_local"])
def test_one_invalid_job_rejects_the_sweep_before_connecting(
    workdir: Path, launcher: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for engine in (ray, submitit):
        monkeypatch.setattr(engine, "require_package", lambda *_, **__: pytest.fail("connected to a cluster"))
    assert main(["-m", f"hydra/launcher={launcher}", "optimizer.lr=1,-1"]) == 2
    assert "in the job optimizer.lr=-1" in capsys.readouterr().err
    assert list(workdir.iterdir()) == []


@pytest.mark.parametrize("launcher", ["ray", "slurm", "slurm_local"])
def test_a_dry_run_does_not_connect(workdir: Path, launcher: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-m", f"hydra/launcher={launcher}", "optimizer.lr=1,2", "dry_run=true"]) == 0
    assert "2 cells: 2 to run" in capsys.readouterr().out
    assert list(workdir.iterdir()) == []


def test_a_missing_package_is_named_with_its_extra() -> None:
    with pytest.raises(HarnessError, match=r"hydra/launcher=ray: .*pip install 'transfer-harness\[ray\]'"):
        require_package("no_such_package", launcher="ray", extra="ray")


@submitit_here
def test_missing_slurm_is_reported(workdir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-m", "hydra/launcher=slurm", "optimizer.lr=1"]) == 2
    err = capsys.readouterr().err
    assert "hydra/launcher=slurm: rejected by submitit" in err
    assert "Traceback" not in err


@submitit_here
def test_too_few_gpus_are_reported(workdir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["-m", "hydra/launcher=slurm_local", "hydra.launcher.gpus_per_node=1", "optimizer.lr=1"]
    assert main(command) == 2
    assert "a cell needs 1 GPU, but this machine has 0" in capsys.readouterr().err


class FakeEngine:
    """Runs the tasks in this process, one per poll; ``failures`` selects those that end without a record."""

    name, width, limit = "fake", 1, None

    def __init__(self, failures: dict[str, TaskFailure] | None = None) -> None:
        self.failures = failures or {}
        self.withdrawn: list[str] = []
        self.tasks: list[CellTask] = []

    def submit(self, tasks: Sequence[CellTask]) -> list[Any]:
        self.tasks += tasks
        return list(range(len(self.tasks) - len(tasks), len(self.tasks)))

    def poll(self, handles: Sequence[Any], seconds: float) -> list[tuple[Any, Record | TaskFailure | None]]:
        if self.withdrawn:
            return [(h, None) for h in handles]
        return [(h, self._result(self.tasks[h])) for h in handles[:1]]

    def _result(self, task: CellTask) -> Record | TaskFailure:
        if task.cell.id in self.failures:
            return self.failures[task.cell.id]
        return cell_runners.act(task.cell, lambda event: None)

    def withdraw(self, handles: Sequence[Any]) -> None:
        self.withdrawn = [self.tasks[h].cell.id for h in handles]

    def kill(self, handles: Sequence[Any]) -> None:
        self.withdraw(handles)

    def close(self) -> None: ...


def pool(engine: FakeEngine, **options: Any) -> ClusterPool:
    display = SilentDisplay(SweepCounts(total=1))
    return ClusterPool(engine=engine, display=display, runner="tests.helpers.cell_runners:act", **options)


def test_a_lost_worker_leaves_a_record_with_reason_and_status(tmp_path: Path) -> None:
    cells = [cell_runners.make_cell(tmp_path, name) for name in "abc"]
    for cell in cells:
        cell.folder.mkdir(parents=True)
    engine = FakeEngine({"b": TaskFailure("the machine is gone"), "c": TaskFailure("TIMEOUT", "timeout")})
    records = pool(engine).run(cells)
    assert [records[str(c.folder)].status for c in cells] == ["complete", "failed", "timeout"]
    assert read_record(cells[1].folder).reason == "the machine is gone"
    assert (cells[1].folder / "config.yaml").exists()


def test_a_record_written_before_the_worker_was_lost_counts(tmp_path: Path) -> None:
    cell = cell_runners.make_cell(tmp_path, "a")
    old = Record(status="failed", task="t", encoder="e", strategy="s", cell="a", seed=0, reason="old")
    write_record(cell.folder, old)

    class Late(FakeEngine):
        def _result(self, task: CellTask) -> Record | TaskFailure:
            cell_runners.act(task.cell, lambda event: None)
            return TaskFailure("gone after its work was done")

    assert pool(Late()).run([cell])[str(cell.folder)].status == "complete"
    write_record(cell.folder, old)
    assert pool(FakeEngine({"a": TaskFailure("new")})).run([cell])[str(cell.folder)].reason == "new"


def test_fail_fast_withdraws_tasks_that_have_not_started(tmp_path: Path) -> None:
    cells = [cell_runners.make_cell(tmp_path, name) for name in "abc"]
    for cell in cells:
        cell.folder.mkdir(parents=True)
    engine = FakeEngine({"a": TaskFailure("boom")})
    running = pool(engine, fail_fast=True)
    assert [r.status for r in running.run(cells).values()] == ["failed"]
    assert engine.withdrawn == ["b", "c"]
    assert running.stopping
    assert not (cells[1].folder / RECORD).exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_tasks_are_killed_without_being_withdrawn_first(tmp_path: Path, number: signal.Signals) -> None:
    """Ray does not kill a task by force while it is being cancelled gently."""
    cells = [cell_runners.make_cell(tmp_path, name) for name in "ab"]

    calls: list[str] = []

    class Slow(FakeEngine):
        def poll(
            self, handles: Sequence[Any], seconds: float
        ) -> list[tuple[Any, Record | TaskFailure | None]]:
            if "kill" in calls:
                return [(h, None) for h in handles]
            os.kill(os.getpid(), number)
            return []

        def withdraw(self, handles: Sequence[Any]) -> None:
            calls.append("withdraw")

        def kill(self, handles: Sequence[Any]) -> None:
            calls.append("kill")

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    running = pool(Slow())
    assert running.run(cells) == {}
    signal.signal(signal.SIGINT, before)
    assert running.interrupts == 2
    assert calls == (["kill"] if number == signal.SIGTERM else ["withdraw", "kill"])


def test_an_unshared_results_folder_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cell = cell_runners.make_cell(tmp_path / "nowhere", "a")
    with pytest.raises(HarnessError, match="must be a directory shared by all machines"):
        CellTask(cell, "tests.helpers.cell_runners:act", ())()
    monkeypatch.setattr(clusters, "SHARED_SECONDS", 0.0)

    class Elsewhere(FakeEngine):
        def _result(self, task: CellTask) -> Record | TaskFailure:
            return Record(status="complete", task="t", encoder="e", strategy="s", cell="a", seed=0)

    with pytest.raises(HarnessError, match="one directory shared by all machines"):
        pool(Elsewhere()).run([cell])


def test_cpu_cells_get_no_gpus(tmp_path: Path) -> None:
    cell = cell_runners.make_cell(tmp_path, "a", trainer={"accelerator": "cpu"})
    engine = FakeEngine()
    cell.folder.mkdir(parents=True)
    pool(engine).run([cell])
    assert engine.tasks[0].devices == ""


@pytest.mark.parametrize(
    ("trainer", "per_device", "gpus"),
    [({}, 0.5, 0.5), ({"devices": 2}, 0.5, 2.0), ({"devices": 2}, 1, 2.0), ({"accelerator": "cpu"}, 1, 0.0)],
)
def test_gpus_of_a_cell(tmp_path: Path, trainer: dict[str, Any], per_device: float, gpus: float) -> None:
    assert gpus_of(cell_runners.make_cell(tmp_path, "a", trainer=trainer), per_device) == gpus
