"""The output of each logger, read back from its files."""

from __future__ import annotations

import csv
import importlib.util
import json
import os
import re
import shutil
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from harness.cli.main import main
from harness.core import wandb_server
from harness.core.redaction import refuse_secrets, shown_config
from harness.errors import HarnessError
from harness.loggers import wandb, wandb_files
from harness.records.predictions import read_predictions
from harness.records.record import read_record
from harness.sweeps import launch
from harness.training.run import run_cell
from tests.helpers.cells import make_cell

KEY = "0123456789abcdef0123456789abcdef01234567"
CELL = ("debug=fast", "task=mini_topic", "encoder=mini_static", "strategy=frozen", "trainer.threads=1")
needs_wandb = pytest.mark.skipif(importlib.util.find_spec("wandb") is None, reason="wandb is not installed")
needs_tensorboard = pytest.mark.skipif(
    importlib.util.find_spec("tensorboard") is None, reason="tensorboard is not installed"
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to an empty directory, with an API key that must not be written anywhere."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    return tmp_path


def runs(results: Path) -> list[Path]:
    return sorted(results.glob("*/*/*/*/*/wandb/*run-*/run-*.wandb"))


def content(file: Path) -> dict[str, Any]:
    """Read a run's file: the run, its configuration, points, summary and exit code.

    Another process writes the file and may finish after the process that ended the run.
    """
    until = time.monotonic() + 10
    while time.monotonic() < until and not any(r.HasField("exit") for r in wandb_files.read_run(file)):
        time.sleep(0.1)
    out: dict[str, Any] = {"config": {}, "summary": {}, "points": wandb_files.read_curve(file), "exit": None}
    for record in wandb_files.read_run(file):
        if record.HasField("run"):
            out["run"] = record.run
            out["config"] |= {u.key: json.loads(u.value_json) for u in record.run.config.update}
        if record.HasField("config"):
            out["config"] |= {u.key: json.loads(u.value_json) for u in record.config.update}
        if record.HasField("summary"):
            out["summary"] |= {
                "/".join(u.nested_key) or u.key: json.loads(u.value_json) for u in record.summary.update
            }
        if record.HasField("exit"):
            out["exit"] = record.exit.exit_code
    return out


def predictions(results: Path) -> list[Any]:
    return [read_predictions(p.parent) for p in sorted(results.glob("*/*/*/*/*/predictions.parquet"))]


@needs_wandb
@pytest.mark.timeout(300)
def test_each_cell_is_one_wandb_run_and_results_do_not_depend_on_the_mode(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """O15: offline, three run folders; disabled, none; without network and key, as offline. Results are the
    same in all modes."""
    command = ["-m", *CELL, "seed=0,1,2", "logger=wandb"]
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert main([*command, "results_dir=offline"]) == 0
    # a cell is lost and the command given again: the run is in the group of the others
    (lost,) = (folder / "offline").glob("*/*/*/*/seed-1")
    shutil.rmtree(lost)
    assert main([*command, "results_dir=offline", "retry=failed"]) == 0
    found = [content(f) for f in runs(folder / "offline")]
    (group,) = {f["run"].run_group for f in found}
    assert re.fullmatch(r"offline-[0-9a-f]{8}", group)
    assert len({f["run"].run_id for f in found}) == len(found) == 3
    assert sorted(f["config"]["seed"] for f in found) == [0, 1, 2]
    for logged in found:
        _check_run(logged, folder / "offline")
    assert not [p for p in (folder / "offline").rglob("*") if p.is_file() and KEY.encode() in p.read_bytes()]

    monkeypatch.setenv("WANDB_MODE", "disabled")
    assert main([*command, "results_dir=disabled"]) == 0
    assert not list((folder / "disabled").rglob("*wandb*"))

    for name in ("WANDB_MODE", "WANDB_API_KEY"):
        monkeypatch.delenv(name)
    assert main([*command[:-2], "seed=0", "logger=wandb", "results_dir=unset"]) == 0
    assert len(runs(folder / "unset")) == 1
    offline = predictions(folder / "offline")
    assert len(offline) == 3
    assert predictions(folder / "disabled") == offline
    assert predictions(folder / "unset") == offline[:1]


def _check_run(logged: dict[str, Any], results: Path) -> None:
    run, summary, config = logged["run"], logged["summary"], logged["config"]
    cell, _, seed = run.run_id.rpartition("-")
    record = read_record(results / "mini_topic" / "mini_static" / "frozen" / cell / f"seed-{seed}")
    assert (run.job_type, run.project) == ("frozen", "transfer-harness")
    assert set(run.tags) == {"mini_topic", "mini_static", "frozen"}
    assert logged["exit"] == 0
    assert summary["status"] == "complete"
    assert summary["test/accuracy"] == record.test["accuracy"]
    assert summary["dev/accuracy"] == record.dev["accuracy"]
    assert summary["cost/train_seconds"] == pytest.approx(record.costs.train_seconds)
    assert {f"coverage/{k}" for k in record.coverage} <= set(summary)
    keys = {k for point in logged["points"] for k in point}
    assert {"loss", "train_loss", "dev/accuracy", "lr/task"} <= keys
    devs = [p["dev/accuracy"] for p in logged["points"] if "dev/accuracy" in p]
    assert devs == record.dev_history
    assert config["strategy"]["name"] == "frozen"
    assert not {"results_dir", "cache_dir", "logger"} & set(config)
    assert str(results) not in json.dumps({k: v for k, v in config.items() if k != "_wandb"})


@needs_wandb
@pytest.mark.timeout(200)
def test_a_cell_that_runs_again_continues_the_same_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cell = make_cell(folder, *CELL, "logger=wandb", "logger.mode=offline")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("harness.training.run.assemble", _no_data)
        with pytest.raises(HarnessError):
            run_cell(cell)
    (failed,) = [content(f) for f in runs(folder / "results")]
    assert (failed["exit"], failed["summary"]["status"]) == (1, "failed")
    assert failed["summary"]["reason"] == "a.csv, line 3: no label"
    run_cell(cell)
    (again,) = [content(f) for f in runs(folder / "results")]
    assert again["exit"] == 0
    assert again["run"].run_id == failed["run"].run_id


def _no_data(*_: Any, **__: Any) -> None:
    raise HarnessError("a.csv, line 3: no label")


@needs_wandb
@pytest.mark.timeout(200)
@pytest.mark.parametrize(("runner", "losses"), [("killed", [1.0, 0.5, 1 / 3]), ("killed_at_once", [])])
def test_the_run_of_a_killed_cell_is_finished_with_the_reason(
    folder: Path, monkeypatch: pytest.MonkeyPatch, runner: str, losses: list[float]
) -> None:
    monkeypatch.setattr(launch, "RUNNER", f"tests.helpers.logger_runners:{runner}")
    monkeypatch.setattr(launch, "PRELOAD", ())
    assert main(["-m", *CELL, "seed=0", "logger=wandb"]) == 1
    (logged,) = [content(f) for f in runs(folder / "results")]
    assert logged["exit"] == 1
    assert logged["summary"]["status"] == "failed"
    assert "SIGKILL" in logged["summary"]["reason"]
    assert [p["loss"] for p in logged["points"]] == losses
    assert logged["config"]["task"]["name"] == "mini_topic"


@needs_tensorboard
def test_tensorboard_gets_the_curves(folder: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    cell = make_cell(folder, *CELL, "logger=tensorboard")
    record = run_cell(cell)
    events = EventAccumulator(str(cell.folder / "tensorboard"))
    events.Reload()
    tags = set(events.Tags()["scalars"])
    assert {"loss", "train_loss", "dev/accuracy", "lr/task", "final/test/accuracy"} <= tags
    assert [e.value for e in events.Scalars("dev/accuracy")] == pytest.approx(record.dev_history)
    steps = [e.step for e in events.Scalars("dev/accuracy")]
    assert [e.step for e in events.Scalars("train_loss")] == steps
    assert [e.step for e in events.Scalars("final/test/accuracy")] == steps[-1:]


def test_csv_gets_the_curves_and_none_writes_nothing(folder: Path) -> None:
    cell = make_cell(folder, *CELL, "logger=csv")
    record = run_cell(cell)
    with (cell.folder / "metrics.csv").open() as f:
        points = list(csv.DictReader(f))
    assert {"loss", "train_loss", "dev/accuracy", "dev/macro_f1", "dev/mcc", "lr/task"} <= set(points[0])
    steps = {k: [p["step"] for p in points if p[k]] for k in ("train_loss", "dev/accuracy", "loss")}
    n_steps = -(-record.n_train // cell.trainer.batch_size)
    assert (
        steps["train_loss"] == steps["dev/accuracy"] == [str(n_steps * (n + 1)) for n in range(record.epochs)]
    )
    assert not [w for w in record.warnings if "not empty" in w]
    bare = make_cell(folder / "bare", *CELL)
    assert run_cell(bare).test == record.test
    assert not {"metrics.csv", "wandb", "tensorboard"} & {p.name for p in bare.folder.iterdir()}


def test_a_missing_package_is_named_with_its_extra(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name == "wandb" else found(name, *a)
    )
    assert main(["-m", *CELL, "seed=0", "logger=wandb"]) == 2
    assert "pip install 'transfer-harness[wandb]'" in capsys.readouterr().err
    assert not (folder / "results").exists()


@pytest.mark.parametrize("argument", ["+logger.api_key={}", "logger.entity={}", "+task.token={}"])
def test_secrets_are_rejected_and_never_printed(
    folder: Path, argument: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["-m", *CELL, "seed=0", "logger=wandb", argument.format(KEY)]) == 2
    logged = capsys.readouterr()
    assert "do not put a secret into the configuration" in logged.err
    assert KEY not in logged.err + logged.out
    assert list(folder.iterdir()) == []


def test_a_secret_in_a_configuration_file_is_rejected(folder: Path) -> None:
    with pytest.raises(HarnessError, match=r"logger\.api_key: do not put a secret") as caught:
        make_cell(folder, *CELL, "+logger.api_key=abc")
    assert "abc" not in str(caught.value)
    refuse_secrets(["encoder.tokenizer=x", "logger.project=keys", "logger=wandb"])


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("hydra.job.env_set.WANDB_API_KEY=abc", "do not put a secret"),
        ("+hydra.job.env_set={HF_TOKEN: abc}", "do not put a secret"),
        ("logger.project=${oc.env:WANDB_API_KEY}", "do not put a secret"),
        ("logger.project=${oc.env:'MY_TOKEN',none}", "do not put a secret"),
        ("encoder.url=https://me:abc@host/file", "do not put a password into a URL"),
    ],
)
def test_other_ways_of_storing_a_secret_are_rejected(argument: str, message: str) -> None:
    with pytest.raises(HarnessError, match=message) as caught:
        refuse_secrets([argument])
    assert "abc" not in str(caught.value)


def test_secrets_from_the_environment_or_a_file_are_rejected(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In YAML, where no argument shows them: an interpolation, Hydra's env_set, and a resolved value."""
    monkeypatch.setenv("SERVICE_PASSWORD", "correct horse battery")
    (folder / "conf" / "experiment").mkdir(parents=True)
    path = folder / "conf" / "experiment" / "mine.yaml"
    for content in (
        "logger: {project: '${oc.env:SERVICE_PASSWORD}'}",
        "hydra: {job: {env_set: {SERVICE_PASSWORD: correct horse battery}}}",
        "task: {name: correct horse battery}",
    ):
        path.write_text(f"# @package _global_\n{content}\n")
        # a single run stores nothing of Hydra's own configuration
        for many in (["-m"],) if "hydra" in content else (["-m"], []):
            added = ["--config-dir", str(folder / "conf"), "experiment=mine"]
            assert main([*many, *added, *CELL, "seed=0"]) == 2
            logged = capsys.readouterr()
            assert "do not put a secret" in logged.err
            assert "horse" not in logged.err + logged.out
    assert not (folder / "results").exists()
    refuse_secrets(["task.path=${oc.env:HOME}/x", "encoder.url=https://host/a@b:c", "encoder.keys=1"])


def test_online_logging_without_key_or_connection_is_rejected(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: name if name == "wandb" else found(name, *a)
    )
    for name in (*wandb_server.PROXIES, *map(str.lower, wandb_server.PROXIES)):
        monkeypatch.delenv(name, raising=False)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    monkeypatch.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{port}")
    command = ["-m", *CELL, "seed=0", "logger=wandb", "logger.mode=online"]
    assert main(command) == 2
    assert "127.0.0.1 cannot be reached" in capsys.readouterr().err
    monkeypatch.delenv("WANDB_API_KEY")
    monkeypatch.setenv("NETRC", os.devnull)
    assert main(command) == 2
    assert "there is no API key for 127.0.0.1" in capsys.readouterr().err
    assert not (folder / "results").exists()


def test_the_configured_mode_takes_precedence_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for logged, mode in (
        (None, "offline"),
        ("dryrun", "offline"),
        ("disabled", "disabled"),
        ("run", "online"),
    ):
        monkeypatch.delenv("WANDB_MODE", raising=False)
        if logged:
            monkeypatch.setenv("WANDB_MODE", logged)
        assert wandb.wandb_mode(None) == mode
        assert wandb.wandb_mode("offline") == "offline"
    monkeypatch.setenv("WANDB_MODE", "onlin")
    with pytest.raises(HarnessError, match=r"WANDB_MODE=onlin: did you mean online"):
        wandb.wandb_mode(None)


def test_the_shown_configuration_has_no_paths_and_no_secrets() -> None:
    config = {
        "task": {"name": "t", "path": "/data/x", "dev": "none", "hub_token": "s", "token": "s"},
        "encoder": {"name": "e", "members": {"a": {"path": "models/a", "layers": "top"}}},
        "results_dir": "/r", "cache_dir": None, "logger": {"name": "wandb"}, "seed": 3,
    }  # fmt: skip
    assert shown_config(config) == {
        "task": {"name": "t", "dev": "none"},
        "encoder": {"name": "e", "members": {"a": {"layers": "top"}}},
        "seed": 3,
    }


@pytest.mark.parametrize("value", ["words", ["x" * 65], [["a"]]])
def test_tags_must_be_short_words(folder: Path, value: Any) -> None:
    from harness.core.validation import checked
    from harness.records.parts import LoggerConfig

    with pytest.raises(HarnessError, match=r"logger\.tags"):
        checked(LoggerConfig, {"tags": value}, section="logger")


def test_a_custom_logger_is_one_class_and_one_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "custom" / "logger").mkdir(parents=True)
    text = "name: lines\n_target_: tests.helpers.logger_runners.LineLogger\n"
    (folder / "custom" / "logger" / "lines.yaml").write_text(text)
    assert main(["--config-dir", "custom", *CELL, "seed=0", "logger=lines"]) == 0
    (log,) = (folder / "results").glob("*/*/*/*/seed-0/lines.txt")
    assert log.read_text() == "complete\nclosed\n"
    assert main([*CELL, "seed=0", "logger.name=csv"]) == 2
    assert "use logger=csv" in capsys.readouterr().err
