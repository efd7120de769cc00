"""The command line: dispatch, error messages, and the subcommands list, status, show and rm."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from harness.cli.main import main
from harness.cli.status import collect
from harness.records.lease import Leases
from harness.records.record import Record, read_record, write_record
from tests.helpers.cell_runners import make_cell


def run(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "harness", *arguments],
        cwd=cwd, capture_output=True, text=True, env={**os.environ, **environment}, timeout=120,
    )  # fmt: skip


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HYDRA_FULL_ERROR", raising=False)


def put(results: Path, cell: str, *, seed: int = 0, status: str = "complete", reason: str = "") -> Path:
    folder = make_cell(results, cell, seed=seed).folder
    record = Record(status=status, task="t", encoder="e", strategy="s", cell=cell, seed=seed, reason=reason)
    record.metric, record.dev = "accuracy", {"accuracy": 0.5}
    write_record(folder, record)
    return folder


def test_help_is_fast_and_imports_nothing_heavy(tmp_path: Path) -> None:
    begun = time.monotonic()
    shown = run("--help", cwd=tmp_path)
    # measured: 0.1 s on an idle core, 0.2 s on a busy one; the limit leaves room for slower machines
    assert time.monotonic() - begun < 1.5
    assert shown.returncode == 0
    assert "leaderboard" in shown.stdout
    code = (
        "import harness.cli.main, sys; assert not {'torch', 'hydra', 'rich', 'omegaconf'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)


def test_a_closed_pipe_ends_the_command_with_exit_code_141(tmp_path: Path) -> None:
    """``harness -m ... | head`` stops early, so the exit code must not be 0."""
    read, write = os.pipe()
    os.close(read)
    run = subprocess.run([sys.executable, "-m", "harness", "list"], stdout=write, stderr=write, check=False)
    os.close(write)
    assert run.returncode == 128 + signal.SIGPIPE


def test_an_unwritable_path_is_reported_in_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    put(tmp_path / "results", "a")
    (tmp_path / "folder.csv").mkdir()
    assert main(["leaderboard", "results", "--format", "csv", "--output", "folder.csv"]) == 2
    assert "folder.csv" in capsys.readouterr().err

    def full(path: Path, data: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr("harness.leaderboard.command.write_atomic", full)
    assert main(["leaderboard", "results", "--format", "md", "--output", "board.md"]) == 2
    assert "board.md: No space left on device" in capsys.readouterr().err


def test_list_imports_neither_torch_nor_hydra(tmp_path: Path) -> None:
    code = (
        "import harness.cli.main, sys; assert harness.cli.main.main(['list']) == 0; "
        "assert not {'torch', 'hydra'} & set(sys.modules)"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code], check=True, cwd=tmp_path, capture_output=True, text=True
    )
    assert "frozen" in shown.stdout


def test_list_includes_config_dir(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine" / "encoder").mkdir(parents=True)
    (tmp_path / "mine" / "encoder" / "own.yaml").write_text("about: {family: own, size: 3 MB}\n")
    assert main(["list", "encoders", "--config-dir", "mine"]) == 0
    assert "own" in capsys.readouterr().out.split()
    assert main(["list", "encoders", "--config-dir", "none"]) == 2
    for before in (["--config-dir", "mine"], ["--config-dir=mine"]):
        capsys.readouterr()
        assert main([*before, "list", "encoders"]) == 0
        assert "own" in capsys.readouterr().out.split()
    assert main(["-m", "status"]) == 2
    assert "write harness status" in capsys.readouterr().err


def test_files_of_the_current_directory_are_never_imported(tmp_path: Path) -> None:
    for name in ("tasks", "yaml", "hydra", "omegaconf", "torch", "rich", "filelock"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported from the current directory')\n")
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "config.yaml").write_text("a: [\n")
    plain = [sys.executable, "-m", "harness", "--cfg", "job", "--package", "trainer"]
    shown = subprocess.run(plain, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert shown.returncode == 0, shown.stderr
    assert "epochs" in shown.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["statsu"], "did you mean status?"),
        (["leaderbord", "x"], "did you mean leaderboard?"),
        (["-m", "seed"], "seed: not key=value"),
        (["strategy=frzen"], "did you mean frozen?"),
        (["strategy=2014"], "strategy=2014: there is no strategy 2014"),
        (["stratgy=frozen"], "did you mean strategy"),
        (["optimizer.lrr=1"], "did you mean optimizer.lr"),
        (["lr=1"], "did you mean optimizer.lr"),
        (["fooo=1"], "fooo: unknown key; valid: "),
        (["hydra.swep.dir=x"], "or hydra.sweep.dir?"),
        (["trainer.epochs=[1"], "invalid value"),
        (["seed=0,1"], "add -m"),
        (["+seed=1"], "without the +"),
        (["hydra/launcher=locl"], "did you mean local?"),
        (["-m", "hydra.launcher.slot=2", "seed=0,1"], "did you mean hydra.launcher.slots"),
        (["-m", "strategy=frzen,full"], "did you mean frozen?"),
        (["x@y=3"], "unknown group"),
        (["--cfg", "job", "-m", "seed=0,1"], "omit -m"),
    ],
)
def test_mistakes_are_explained_in_one_line_with_a_suggestion(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    err = capsys.readouterr().err
    assert message in err
    assert "Traceback" not in err
    assert len(err.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_missing_value_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["task.name=???"]) == 2
    assert "task.name" in capsys.readouterr().err


def test_full_errors_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    from hydra.errors import HydraException

    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    with pytest.raises(HydraException):
        main(["strategy=frzen"])
    assert os.environ["HYDRA_FULL_ERROR"] == "1"


def test_text_values_reach_the_configuration_unchanged(capsys: pytest.CaptureFixture[str]) -> None:
    import yaml

    assert (
        main(["--cfg", "job", "task.name=3E120", "encoder.path=runs/epoch=1.ckpt", "optimizer.lr=1e-5"]) == 0
    )
    job = yaml.safe_load(capsys.readouterr().out.replace("1.0e-05", "0.00001"))
    assert job["task"]["name"] == "3E120"
    assert job["encoder"]["path"] == "runs/epoch=1.ckpt"
    assert job["optimizer"]["lr"] == 1e-5


@pytest.mark.parametrize(("limits", "option"), [((8, 8), " --partial"), ((8, None), "")])
def test_a_sweep_with_a_limit_suggests_the_partial_leaderboard(
    limits: tuple[int | None, int | None], option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from harness.cli.run import print_summary
    from harness.sweeps.state import SweepState

    records = {
        str(n): Record("complete", "t", "e", "s", "c", seed=n, partial=limit)
        for n, limit in enumerate(limits)
    }
    state = SweepState(records=records, results_dirs={tmp_path / "results": None}, requested=set(records))
    assert print_summary(state) == 0
    assert capsys.readouterr().out.endswith(f"harness leaderboard results{option}\n")


def test_status_shows_counts_running_cells_and_failures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = tmp_path / "results"
    put(results, "a")
    put(results, "b", status="failed", reason="ValueError: boom\nmore")
    put(results, "c", status="skipped", reason="same as a")
    running = make_cell(results, "d").folder
    running.mkdir(parents=True)
    make_cell(results, "e").folder.mkdir(parents=True)
    (put(results, "f") / "record.json").write_text("{")
    put(results / ".archive" / "x", "old")
    lease = Leases().take(running)
    assert lease is not None
    report = collect(results)
    assert main(["status", "results", "--json"]) == 0
    lease.release()
    assert json.loads(capsys.readouterr().out)["counts"] == report["counts"]
    counts = {"complete": 1, "failed": 1, "skipped": 1, "running": 1, "unfinished": 1, "damaged": 1}
    assert report["counts"] == counts
    assert report["groups"] == {"t/e/s": counts}
    owner = report["running"][0]
    assert (owner["cell"], owner["pid"]) == ("t/e/s/d/seed-0", os.getpid())
    assert report["failures"][0] == {
        "cell": "t/e/s/b/seed-0",
        "status": "failed",
        "reason": "ValueError: boom\nmore",
    }
    assert main(["status"]) == 0
    assert "failed: ValueError: boom\n" in capsys.readouterr().out
    assert main(["status", "results/t", "--json"]) == 0
    of_one = json.loads(capsys.readouterr().out)["groups"]["t/e/s"]
    assert of_one == {"complete": 1, "failed": 1, "skipped": 1, "unfinished": 2, "damaged": 1}
    assert main(["status", "nowhere"]) == 2


def test_status_of_many_cells_is_fast(tmp_path: Path) -> None:
    record = Record("complete", "t", "e", "s", "c", 0, dev_history=[0.5] * 30, warnings=["x" * 300])
    text = json.dumps(asdict(record))
    for n in range(1000):
        folder = tmp_path / "t" / "e" / "s" / f"{n:012x}" / "seed-0"
        folder.mkdir(parents=True)
        (folder / "record.json").write_text(text)
    begun = time.monotonic()
    assert collect(tmp_path)["counts"] == {"complete": 1000}
    # measured: about 0.2 s; the limit leaves room for a busy machine
    assert time.monotonic() - begun < 1.0


def test_status_applies_the_same_record_checks_as_other_commands(tmp_path: Path) -> None:
    whole = asdict(Record("complete", "t", "e", "s", "c", 0))
    wrong: list[dict[str, Any]] = [
        {"test": [1]}, {"seed": "zero"}, {"costs": None}, {"versions": None}, {"schema": 99},
    ]  # fmt: skip
    for n, change in enumerate([{}, *wrong]):
        folder = tmp_path / "t" / "e" / "s" / str(n) / "seed-0"
        folder.mkdir(parents=True)
        (folder / "record.json").write_text(json.dumps(whole | change))
    report = collect(tmp_path)
    assert report["counts"] == {"complete": 1, "damaged": len(wrong)}
    assert "record.json" in report["failures"][0]["reason"]


def test_rm_archives_by_path_title_or_start_of_the_id(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = tmp_path / "results"
    for cell, seed in (("abc1", 0), ("abc1", 1), ("abd2", 0), ("fff3", 0)):
        put(results, cell, seed=seed)
    assert main(["rm", "ab"]) == 2
    assert "2 ids start with this" in capsys.readouterr().err
    assert main(["rm", "abc1", "t/e/s/nothing"]) == 2
    assert (results / "t/e/s/abc1/seed-0/record.json").exists()
    assert main(["rm", "t/e/s/abc1/seed-1", "abd", "results/t/e/s/fff3"]) == 0
    left = sorted(str(p.parent.relative_to(results)) for p in results.glob("*/*/*/*/*/record.json"))
    assert left == ["t/e/s/abc1/seed-0"]
    archived = list((results / ".archive").glob("*/t/e/s/*/*/record.json"))
    assert len(archived) == 3
    assert read_record(archived[0].parent).status == "complete"


@pytest.mark.parametrize(("name", "seeds"), [("t", 3), ("t/e", 3), ("t/e/s/", 3), ("results/t/e", 3)])
def test_rm_of_a_task_encoder_or_strategy_reports_the_number_of_seeds(
    name: str, seeds: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = tmp_path / "results"
    for cell, seed in (("abc1", 0), ("abc1", 1), ("abd2", 0)):
        put(results, cell, seed=seed)
    assert main(["show", name]) == 2
    assert "t/e/s/abc1\n  t/e/s/abd2" in capsys.readouterr().err
    assert main(["rm", name]) == 0
    assert f"archived {seeds} seeds of {name}" in capsys.readouterr().out
    assert [p.name for p in results.iterdir()] == [".archive"]
    (stamp,) = (results / ".archive").iterdir()
    assert main(["rm", str(stamp / "t")]) == 2
    assert main(["rm", str(stamp / "t/e/s/abd2")]) == 2
    assert "is already archived" in capsys.readouterr().err
    (stamp / "t").rename(results / "t")
    assert collect(results)["counts"] == {"complete": 3}


def test_an_unknown_cell_is_reported_with_similar_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(tmp_path / "results", "abcdef012345")
    put(tmp_path / "results", "999999999999")
    for wrong in ("abcdef012354", "t/e/x/abcdef012345"):
        assert main(["show", wrong]) == 2
        assert "similar cells:\n  t/e/s/abcdef012345" in capsys.readouterr().err
    assert main(["rm", "results"]) == 2
    assert main(["rm", "x", "--results", "nowhere"]) == 2
    assert "the folder does not exist" in capsys.readouterr().err


def test_rm_rejects_a_name_that_is_both_a_task_and_the_start_of_an_id(tmp_path: Path) -> None:
    put(tmp_path / "results", "tabc")
    put(tmp_path / "results", "x")
    assert main(["rm", "t"]) == 2
    assert collect(tmp_path / "results")["counts"] == {"complete": 2}


def test_rm_and_rerun_reject_a_running_cell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = put(tmp_path / "results", "a")
    lease = Leases().take(folder)
    assert lease is not None
    assert main(["rm", "a"]) == 2
    assert main(["rerun", "a"]) == 2
    lease.release()
    assert "running" in capsys.readouterr().err
    assert (folder / "record.json").exists()


def test_show_prints_the_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(tmp_path / "results", "abc", status="failed", reason="first\nsecond")
    assert main(["show", "abc"]) == 0
    out = capsys.readouterr().out
    assert "status: failed" in out
    assert "accuracy: 0.5" in out
    assert "files: record.json" in out
    assert main(["show", "zzz"]) == 2
