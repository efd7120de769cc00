"""Sweeps through the real command line, with fake resolving and running of cells."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.cli.main import main
from harness.config import resolve, stored
from harness.core import fingerprint
from harness.errors import HarnessError
from harness.processes.slots import DeviceSlot
from harness.records import inputs
from harness.records.record import Record, read_record, write_config, write_record
from harness.sweeps import launch
from harness.sweeps.checks import check_writable
from harness.sweeps.progress import LiveDisplay, SweepCounts, duration, event_text
from tests.helpers import cell_runners
from tests.helpers.cell_runners import make_cell

Cli = Callable[..., int]


@pytest.fixture
def harness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Run a command in an empty directory; the id of a cell is its ``optimizer.lr``."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.delenv("HYDRA_FULL_ERROR", raising=False)
    monkeypatch.setattr(resolve, "prepare", cell_runners.prepare)
    monkeypatch.setattr(inputs, "read_data", cell_runners.read_data)
    monkeypatch.setattr(launch, "RUNNER", "tests.helpers.cell_runners:act")
    monkeypatch.setattr(launch, "PRELOAD", ("tests.helpers.cell_runners",))
    return lambda *arguments: main(list(arguments))


def records(results: Path) -> dict[str, str]:
    return {
        f"{p.parents[1].name}/{p.parent.name}": json.loads(p.read_text())["status"]
        for p in sorted(results.glob("*/*/*/*/*/record.json"))
    }


def ran(results: Path) -> list[str]:
    path = results / "runs"
    return path.read_text().splitlines() if path.exists() else []


def test_a_failure_is_reported_at_once_and_the_sweep_continues(
    harness: Cli, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = harness("-m", "optimizer.lr=1,5,2", "encoder.path=raise", "hydra.launcher.slots=1")
    out, err = capsys.readouterr()
    assert code == 1
    assert records(tmp_path / "results") == {
        "1/seed-0": "complete", "5/seed-0": "failed", "2/seed-0": "complete",
    }  # fmt: skip
    assert err.index("FAILED  t/e/s/5/seed-0") < err.index("t/e/s/2/seed-0")
    assert "ValueError: boom-5" in err
    assert "log.txt" in err
    assert "2 complete, 1 failed" in out
    assert "harness leaderboard results" in out


def test_repeating_a_command_runs_failed_cells_and_leaves_others_unchanged(
    harness: Cli, tmp_path: Path
) -> None:
    command = ("-m", "optimizer.lr=1,5,2", "encoder.path=raise")
    assert harness(*command) == 1
    results = tmp_path / "results"
    before = {p: p.stat().st_mtime_ns for c in "12" for p in results.glob(f"t/e/s/{c}/seed-0/*")}
    (results / "runs").unlink()
    assert harness(*command) == 1
    assert ran(results) == ["5 0"]
    assert {p: p.stat().st_mtime_ns for p in before} == before
    assert harness(*command[:2], "encoder.path=ok") == 0
    assert harness("-m", "optimizer.lr=3,1") == 0
    assert ran(results) == ["5 0", "5 0", "3 0"]


@pytest.mark.parametrize(
    ("policy", "rerun"),
    [
        ((), ["5 0", "6 0"]),
        (("retry=failed",), ["5 0"]),
        (("retry=timeout",), ["6 0"]),
        (("retry=none",), []),
        (("retry=none", "overwrite=failed"), ["5 0", "6 0"]),
        (("retry=none", "overwrite=always"), ["1 0", "5 0", "6 0"]),
    ],
)
def test_retry_and_overwrite_select_the_cells_that_run_again(
    harness: Cli, tmp_path: Path, policy: tuple[str, ...], rerun: list[str]
) -> None:
    results = tmp_path / "results"
    for name, status in (("1", "complete"), ("5", "failed"), ("6", "timeout")):
        folder = results / "t" / "e" / "s" / name / "seed-0"
        write_record(folder, Record(status=status, task="t", encoder="e", strategy="s", cell=name, seed=0))
    code = harness("-m", "optimizer.lr=1,5,6", "encoder.path=ok", "hydra.launcher.slots=1", *policy)
    assert ran(results) == rerun
    assert code == (0 if {"5 0", "6 0"} <= set(rerun) else 1), "a kept failure is still a failure"
    archived = list(results.glob(".archive/*/t/e/s/*/seed-0/record.json"))
    assert len(archived) == ("1 0" in rerun)


def test_a_dry_run_shows_the_grid_and_writes_nothing(
    harness: Cli, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert harness("-m", "optimizer.lr=1", "seed=0,1") == 0
    before = sorted(tmp_path.rglob("*"))
    capsys.readouterr()
    assert harness("-m", "optimizer.lr=1,2,0", "seed=1,2", "dry_run=true") == 0
    out = capsys.readouterr().out.splitlines()
    assert sorted(tmp_path.rglob("*")) == before
    assert out[0].startswith("t/e/s/1  complete: seed 1; to run: seed 2")
    assert "6 cells: 1 complete, 3 to run, 2 skipped" in out
    assert "    skipped 2: makes no sense" in out
    assert out[-1].startswith("about ")
    assert harness("optimizer.lr=7", "dry_run=true") == 0
    assert "t/e/s/7  to run: seed 0" in capsys.readouterr().out
    assert sorted(tmp_path.rglob("*")) == before


def test_an_unreadable_record_fails_only_its_cell(
    harness: Cli, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    blocked = tmp_path / "results" / "t" / "e" / "s" / "1" / "seed-0" / "record.json"
    blocked.mkdir(parents=True)
    assert harness("-m", "optimizer.lr=1,2") == 1
    assert ran(tmp_path / "results") == ["2 0"]
    assert f"{blocked}: cannot be read (Is a directory)" in "".join(capsys.readouterr())
    assert harness("leaderboard", "results", "--partial") == 0
    assert "cannot be read (Is a directory)" in "".join(capsys.readouterr())
    assert harness("status", "results") == 0


def with_stored_cell(harness: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create a results folder with one complete cell and its stored configuration."""
    monkeypatch.setattr(stored, "prepare", cell_runners.prepare)
    assert harness("optimizer.lr=1") == 0
    results = tmp_path / "results"
    config = {"optimizer": {"lr": 1}, "encoder": {"path": "ok"}, "seed": 0, "results_dir": "elsewhere"}
    keys = ("timeout", "fail_fast", "limit", "trainer", "retry", "overwrite", "dry_run")
    write_config(results / "t" / "e" / "s" / "1" / "seed-0", {**config, **dict.fromkeys(keys)})
    return results


def test_rerun_uses_the_stored_configuration(
    harness: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    results = with_stored_cell(harness, tmp_path, monkeypatch)
    assert harness("rerun", "1") == 0
    assert ran(results) == ["1 0", "1 0"]
    assert len(list(results.glob(".archive/*/t/e/s/1/seed-0/record.json"))) == 1
    assert "1 complete" in capsys.readouterr().out


def test_rerun_rejects_a_cell_whose_id_has_changed(
    harness: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(stored, "prepare", cell_runners.prepare)
    folder = tmp_path / "results" / "t" / "e" / "s" / "1" / "seed-0"
    config = {"optimizer": {"lr": 2}, "encoder": {"path": "ok"}, "seed": 0, "results_dir": "elsewhere"}
    keys = ("timeout", "fail_fast", "limit", "trainer", "retry", "overwrite", "dry_run")
    write_config(folder, {**config, **dict.fromkeys(keys)})
    assert harness("rerun", "1") == 2
    assert "the cell id is now 2" in capsys.readouterr().err


def test_seeds_share_a_composition_and_equal_jobs_are_one_cell(harness: Cli, tmp_path: Path) -> None:
    assert harness("-m", "seed=0,1,2", "optimizer.lr=1,1.0") == 0
    assert sorted(ran(tmp_path / "results")) == sorted(f"{c} {s}" for c in ("1", "1.0") for s in range(3))
    assert harness("-m", "seed=7,7", "optimizer.lr=4") == 0
    assert ran(tmp_path / "results").count("4 7") == 1


def test_skipped_cells_are_recorded_with_the_reason(
    harness: Cli, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert harness("-m", "optimizer.lr=0,1") == 0
    record = read_record(tmp_path / "results" / "t" / "e" / "s" / "0" / "seed-0")
    assert (record.status, record.reason) == ("skipped", "makes no sense")
    assert "skipped 1: makes no sense" in capsys.readouterr().out
    assert ran(tmp_path / "results") == ["1 0"]


def test_one_invalid_job_rejects_the_sweep_before_any_cell_runs(
    harness: Cli, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert harness("-m", "optimizer.lr=1,-1") == 2
    err = capsys.readouterr().err
    assert "optimizer.lr=-1: a rate is a number" in err
    assert "in the job" in err
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


def test_fail_fast_does_not_run_the_remaining_cells(
    harness: Cli, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert harness("-m", "optimizer.lr=5,1,2", "encoder.path=raise", "fail_fast=true") == 1
    assert ran(tmp_path / "results") == ["5 0"]
    assert "2 not run (repeat the command" in capsys.readouterr().out


def test_a_timeout_fails_the_command(harness: Cli, tmp_path: Path) -> None:
    assert harness("-m", "optimizer.lr=5", "encoder.path='sleep:60'", "timeout=0.5") == 1
    assert records(tmp_path / "results") == {"5/seed-0": "timeout"}


def test_a_single_run_behaves_like_a_sweep(
    harness: Cli, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert harness("optimizer.lr=1") == 0
    assert "accuracy dev 0.5000 test 0.2500" in capsys.readouterr().out
    assert harness("run", "optimizer.lr=1") == 0
    assert ran(tmp_path / "results") == ["1 0"]
    assert harness("optimizer.lr=5", "encoder.path=segfault") == 1
    assert "SIGSEGV" in capsys.readouterr().err
    assert harness("optimizer.lr=-1") == 2


def test_hydras_basic_launcher_writes_the_same_records(harness: Cli, tmp_path: Path) -> None:
    assert harness("-m", "hydra/launcher=basic", "optimizer.lr=1,5", "encoder.path=raise") == 1
    assert records(tmp_path / "results") == {"1/seed-0": "complete", "5/seed-0": "failed"}


def test_a_failed_cell_raises_in_the_process_of_another_launcher(harness: Cli, tmp_path: Path) -> None:
    from omegaconf import OmegaConf

    config = {
        "optimizer": {"lr": 5}, "encoder": {"path": "raise"}, "results_dir": str(tmp_path / "r"), "seed": 0,
        "timeout": None, "fail_fast": False, "limit": None, "trainer": {},
    }  # fmt: skip
    with pytest.raises(launch.CellFailed, match="boom-5"):
        launch.run_job(OmegaConf.create(config))
    config["optimizer"] = {"lr": 1}
    assert launch.run_job(OmegaConf.create(config)) == 0.5


@pytest.mark.parametrize("arguments", [("optimizer.lr=1",), ("-m", "optimizer.lr=1,2")])
def test_an_impossible_results_folder_is_rejected_first(
    harness: Cli, tmp_path: Path, arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert harness(*arguments, "results_dir=file/results") == 2
    err = capsys.readouterr().err
    assert str(tmp_path / "file") in err
    assert "Traceback" not in err
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_folder_without_write_permission_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from harness.errors import HarnessError

    # the tests may run as root, which ignores file modes
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(HarnessError, match="is not writable"):
        check_writable(tmp_path / "results")
    assert list(tmp_path.iterdir()) == []


def test_a_broken_link_is_rejected_as_results_folder(
    harness: Cli, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "link").symlink_to("nowhere")
    (tmp_path / "ring").symlink_to("ring")
    for name, target in (("link", "nowhere"), ("ring", "ring")):
        assert harness("optimizer.lr=1", f"results_dir={name}") == 2
        err = capsys.readouterr().err
        assert f"is a link to {target}, which does not exist" in err
        assert "Traceback" not in err


def test_rerun_checks_that_the_folder_is_writable_before_archiving(
    harness: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    results = with_stored_cell(harness, tmp_path, monkeypatch)
    with monkeypatch.context() as only:
        only.setattr(os, "access", lambda *_: False)
        assert harness("rerun", "1") == 2
    assert "is not writable" in capsys.readouterr().err
    assert not (results / ".archive").exists()


def test_an_interrupted_rerun_names_the_archive_of_earlier_results(tmp_path: Path) -> None:
    from harness.cli.run import _archived
    from harness.records.record import Record
    from harness.sweeps.state import SweepState

    cells = [tmp_path / "results" / "t" / "e" / "s" / name / "seed-0" for name in ("a", "b")]
    for cell in cells:
        (tmp_path / "results" / ".archive" / "then" / cell.relative_to(tmp_path / "results")).mkdir(
            parents=True
        )
    done = {str(cells[0]): Record("complete", "t", "e", "s", "a", 0)}
    requested = {str(c) for c in cells}
    state = SweepState(records=done, results_dirs={tmp_path / "results": None}, requested=requested)
    (line,) = _archived(state)
    assert line.startswith("1 cell without a new result: the earlier results are in ")
    state.records[str(cells[1])] = Record("complete", "t", "e", "s", "b", 0)
    assert _archived(state) == []


def test_long_names_get_distinct_folders(tmp_path: Path) -> None:
    names = ["x" * 300 + "_1", "x" * 300 + "_2", "실험" * 60]
    slugs = {fingerprint.slug(n) for n in names}
    assert len(slugs) == 3
    assert all(len(s.encode()) <= 255 for s in slugs)


def test_the_driver_does_not_import_torch(tmp_path: Path) -> None:
    code = (
        "import harness.sweeps.launch, harness.cli.run, sys; assert not {'torch', 'hydra'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)


def test_a_damaged_record_is_set_aside_and_its_cell_runs_again(harness: Cli, tmp_path: Path) -> None:
    assert harness("-m", "optimizer.lr=1,2") == 0
    folder = tmp_path / "results" / "t" / "e" / "s" / "1" / "seed-0"
    (folder / "record.json").write_text("{")
    assert harness("-m", "optimizer.lr=1,2") == 0
    assert read_record(folder).status == "complete"
    assert [p.read_text() for p in folder.glob("record.json.damaged-*")] == ["{"]
    assert ran(tmp_path / "results") == ["1 0", "2 0", "1 0"]


@pytest.mark.parametrize("sweeping", [(), ("-m",)])
def test_unreadable_data_reject_the_command_before_any_cell_runs(
    harness: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    sweeping: tuple[str, ...],
) -> None:  # fmt: skip
    def broken(cell: Any) -> None:
        raise HarnessError("a.csv: there is no column lable; did you mean label?")

    monkeypatch.setattr(inputs, "read_data", broken)
    assert harness(*sweeping, "optimizer.lr=1") == 2
    err = capsys.readouterr().err
    assert "did you mean label?" in err
    assert "Traceback" not in err
    assert ran(tmp_path / "results") == []
    assert records(tmp_path / "results") == {}


def test_notes_on_the_data_are_printed_once(harness: Cli, capsys: pytest.CaptureFixture[str]) -> None:
    assert harness("-m", "optimizer.lr=1,2", "seed=0,1") == 0
    assert capsys.readouterr().err.count("dev: 10 % cut from train") == 1


def test_live_lines_show_cells_and_print_failures(tmp_path: Path) -> None:
    import io

    from rich.console import Console

    console = Console(file=io.StringIO(), force_terminal=True, width=200)
    display = LiveDisplay(SweepCounts(total=2, already_complete=3, slots=2), console)
    cell = make_cell(tmp_path, "a")
    display.started(cell, DeviceSlot("0", 1))
    display.event(cell, {"phase": "train", "done": 3, "total": 10, "epoch": 1, "epochs": 2, "score": 0.5})
    display.tick()
    record = Record(status="failed", task="t", encoder="e", strategy="s", cell="a", seed=0, reason="boom [x]")
    display.finished(cell, record)
    display.close()
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "train  epoch 1/2  3/10  dev 0.5000" in shown
    assert "boom [x]" in shown
    assert "3 done, 1 failed, 0 skipped, 1 left" in shown


def test_durations_and_events_are_formatted() -> None:
    assert [duration(s) for s in (4.21, 185, 7385)] == ["4.2 s", "3:05", "2:03:05"]
    assert event_text({"phase": "read", "message": "file"}) == "read  file"


@pytest.mark.parametrize("multirun", [("-m",), ()])
def test_outputs_that_a_complete_cell_lacks_are_noted(
    harness: Cli, capsys: pytest.CaptureFixture[str], multirun: tuple[str, ...]
) -> None:
    """Weights and logs are not part of the cell id, so the cell does not run again for them."""
    assert harness(*multirun, "optimizer.lr=1") == 0
    capsys.readouterr()
    assert harness(*multirun, "optimizer.lr=1", "trainer.save=true") == 0
    assert "trainer.save: 1 complete cells have no model.safetensors" in capsys.readouterr().err
