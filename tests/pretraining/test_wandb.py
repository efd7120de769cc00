"""``harness pretrain trainer.logger=wandb``: what its run on disk holds, also after a kill."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

import harness
from harness.errors import HarnessError
from harness.loggers import wandb_files
from harness.pretraining import loggers, trainer
from harness.pretraining.job import run_job
from tests.helpers.tiny_corpus import config, write

wandb_here = pytest.mark.skipif(importlib.util.find_spec("wandb") is None, reason="wandb is not installed")


def content(output: Path) -> dict[str, Any]:
    """The one run's file as plain data."""
    (file,) = output.glob("wandb/*run-*/run-*.wandb")
    out: dict[str, Any] = {"config": {}, "summary": {}, "points": wandb_files.read_curve(file), "exit": None}
    for record in wandb_files.read_run(file):
        if record.HasField("run"):
            out["run"] = record.run
            out["config"] |= {u.key: json.loads(u.value_json) for u in record.run.config.update}
        if record.HasField("summary"):
            for u in record.summary.update:
                out["summary"]["/".join(u.nested_key) or u.key] = json.loads(u.value_json)
        if record.HasField("exit"):
            out["exit"] = record.exit.exit_code
    return out


def given(folder: Path, name: str) -> dict[str, Any]:
    more = ["trainer.logger=wandb", "trainer.checkpoint_seconds=0", "budget.steps=50"]
    return config("gpt", *more, corpus=folder / "corpus.txt", output=folder / name)


@wandb_here
@pytest.mark.timeout(300)
def test_a_run_holds_curves_configuration_and_measures_also_when_it_was_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One finished wandb run per pretraining, with its configuration; none when wandb is disabled."""
    write(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "disabled")
    plain = run_job(given(tmp_path, "plain"), report=lambda _: None)
    assert not (tmp_path / "plain" / "wandb").exists()
    monkeypatch.setenv("WANDB_MODE", "offline")
    record = run_job(given(tmp_path, "whole"), report=lambda _: None)
    assert record["files"] == plain["files"]
    told = content(tmp_path / "whole")
    assert (told["exit"], told["run"].project, told["run"].job_type) == (0, loggers.PROJECT, "pretrain")
    assert set(told["run"].tags) == {"gpt", "mini"}
    assert told["config"]["encoder"]["width"] == 16
    assert told["config"]["budget"]["steps"] == 50
    assert told["config"]["corpus"]["fingerprint"] == record["corpus"]["fingerprint"]
    assert str(tmp_path) not in json.dumps({k: v for k, v in told["config"].items() if k != "_wandb"})
    assert [set(p) >= {"loss", "rate", "tokens"} for p in told["points"]] == [True] * 5
    wanted = record["held_out"]["perplexity_per_word"]
    assert told["summary"]["held_out/perplexity_per_word"] == pytest.approx(wanted)
    assert told["summary"]["status"] == "complete"
    assert told["summary"]["seen/steps"] == 50
    assert harness.load_encoder("gpt", tmp_path / "whole").hidden_size == 16

    original = trainer.PretrainModule.training_step

    def fails(self: trainer.PretrainModule, item: Any, number: int) -> None:
        if self.progress.steps == 33:
            raise RuntimeError("the machine went away")
        original(self, item, number)

    with monkeypatch.context() as patch:
        patch.setattr(trainer.PretrainModule, "training_step", fails)
        with pytest.raises(RuntimeError, match="went away"):
            run_job(given(tmp_path, "cut"), report=lambda _: None)
    run_job(given(tmp_path, "cut"), report=lambda _: None)
    again = content(tmp_path / "cut")
    assert again["points"] == told["points"]
    assert again["run"].run_id == told["run"].run_id
    assert (again["exit"], again["summary"]["status"]) == (0, "complete")


def test_a_log_that_could_not_work_is_refused_before_anything_is_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "sometimes")
    with pytest.raises(HarnessError, match="WANDB_MODE=sometimes"):
        run_job(given(tmp_path, "out"), report=lambda _: None)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(HarnessError, match="the package wandb is missing"):
        run_job(given(tmp_path, "out"), report=lambda _: None)
    assert {p.name for p in tmp_path.iterdir()} == {"corpus.txt"}
