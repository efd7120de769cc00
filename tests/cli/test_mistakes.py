"""The message for each of the most common mistakes on the command line, all before the first cell runs.

Every message is one line with the key or the file, the value, and how to correct it. Exit code 2, nothing on
standard output, no results folder.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness.cli.main import main
from harness.processes import slots

NAMES = {
    "encoder=mini_brt": r"encoder=mini_brt: .*did you mean mini_bert.*list enc",
    "task=mini_topc": r"task=mini_topc: there is no task mini_topc; did you mean mini_topic",
    "strategy=frozn": r"strategy=frozn: .*did you mean frozen\?",
    "body=lstm": r"body=lstm: there is no body lstm; did you mean bilstm\?",
    "logger=mlflow": r"logger=mlflow: there is no logger mlflow; valid: csv, none, tensorboard, wandb",
    "experiment=mni": r"experiment=mni: .*did you mean mini\?",
}
KEYS = {
    "encodr=mini_bert": r"encodr: unknown key; did you mean encoder",
    "lr=1e-3": r"lr: unknown key; did you mean optimizer.lr",
    "trainer.batchsize=8": r"trainer.batchsize: unknown key; did you mean trainer.batch_size",
    "+trainer.epoch=3": r"trainer.epoch: unknown key, did you mean epochs\?",
    "+encoder.recipe.full.epoch=3": r"encoder.recipe.full.epoch: .*did you mean epochs\?",
    "+body.hidden_size=3": r"body.hidden_size: body=auto .*body=bilstm body.hidden_size=3",
    "=3": r"=3: the key is missing; write key=value",
    "--seed 3": r"--seed: unknown option; settings are written key=value, such as seed=",
    "runn seed=1": r"runn: neither a subcommand nor key=value; did you mean run",
}
VALUES = {
    "optimizer.lr=abc": r"optimizer.lr='abc': expected a number",
    "trainer.epochs=2.5": r"trainer.epochs=2.5: expected a whole number",
    "trainer.threads=0": r"trainer.threads=0: must be >= 1",
    "limit=0": r"limit=0: must be >= 1",
    "trainer.precision=fp16": r"trainer.precision='fp16': valid: 16-mixed, 32-true, bf16-mixed",
    "schedule.warmup=1.0": r"schedule.warmup=1.0: .*a share of the steps below 1, such as 0.1",
    "trainer.stride=600 task=mini_ner": r"trainer.stride=600: must be less than trainer.max_length=512",
    "trainer.select=last trainer.patience=3": r"trainer.patience=3: .*remove patience or set",
    "strategy=frozen +strategy.unfreeze=gradual": r"strategy.unfreeze=gradual: .*leave it out",
    "task.metric=f1": r"task.metric=f1 needs task.positive=LABEL",
    "task.label_names={weather}": r"task.label_names={weather}: expected {LABEL: NAME, ...}, not 'weather'",
    "task.train_size=100000": r"task.train_size=100000: must be between 1 and 300",
}
SWEEPS = {
    "encoder=mini_bert,mini_static": r"several options require a sweep; add -m$",
    "encoder=[mini_bert,mini_static]": r"write encoder=mini_bert,mini_static and add -m",
    "seed=0,1": r"seed=0,1: several values require a sweep; add -m",
    "-m seed=[0,1]": r"seed=\[0, 1\]: expected a whole number; .*write seed=0,1 and add -m",
    "-m trainer.num_nodes=2": r"trainer.num_nodes=2: not in a sweep",
    "-m hydra.launcher.slots=0": r"hydra.launcher.slots=0: expected auto, a number >= 1",
}
MACHINE = {
    "trainer.accelerator=gpu": r"trainer.accelerator=gpu: this machine has no CUDA device; use .*auto or cpu",
    "trainer.devices=64": r"trainer.devices=64: this machine has no CUDA device and 2 cores; use at most",
    "trainer.precision=16-mixed": r"trainer.precision=16-mixed: half precision needs a GPU; use .*bf16-mixed",
    "results_dir=file/x": r"results_dir=\S+/file/x: \S+/file is a file, not a folder",
    "results_dir=/proc/x": r"results_dir=/proc/x: nothing can be written to /proc",
    "logger=wandb logger.mode=online": r"logger.mode=online: there is no API key .*set WANDB_API_KEY",
    "encoder=mini_bert encoder.layers=[0,99]": r"layers=\[0,99\]: encoder mini_bert has layers 0 to 2",
    "encoder=mini_elmo encoder.layers=[3]": r"encoder.layers=\[3\]: encoder mini_elmo has layers 0 to 2",
    "encoder=bert": r"encoder.path is not set: give the checkpoint's folder or its hub name",
    "encoder=ulmfit encoder.path=gone": r"encoder.path=\S*gone: no such folder",
}
FILES = {
    "task=broken": r"parts/task/broken.yaml:3:9: not valid YAML: expected ',' or '\]', but got ':'",
    "task=tabs": r"parts/task/tabs.yaml:2:1: not valid YAML: .*indent with spaces, not tabs",
    "task=yes_no": r'task.positive: True is not text; YAML reads .*in quotes, such as "yes"',
    "encoder=typo": r"encoder.pth: unknown key, did you mean path\?",
    "experiment=both": r"encoder: a defaults list .*names several options",
}
MISTAKES = {**NAMES, **KEYS, **VALUES, **SWEEPS, **MACHINE, **FILES}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a user's parts, on a machine with two cores and no GPU."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for name in ("WANDB_API_KEY", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setattr(slots, "cuda_devices", list)
    monkeypatch.setattr(slots, "cores", lambda: 2)
    parts = {
        "task/broken": "name: broken\nlabels: [a, b\npositive: a\n",
        "task/tabs": "name: x\n\tpath: y\n",
        "task/yes_no": "defaults: [mini_topic]\npositive: yes\n",
        "encoder/typo": "defaults: [mini_static]\npth: x\n",
        "experiment/both": "# @package _global_\ndefaults:\n  - override /encoder: [mini_bert, mini_gpt]\n",
    }
    for name, text in parts.items():
        path = tmp_path / "parts" / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "file").touch()
    return tmp_path


def lines(err: str) -> list[str]:
    """The lines of an error message, which may follow the data card."""
    _, start, message = f"\n{err}".rpartition("\nharness: ")
    assert start
    return message.splitlines()


def test_at_least_thirty_mistakes_are_covered() -> None:
    assert len(MISTAKES) >= 30


@pytest.mark.parametrize("command", MISTAKES)
def test_message(command: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--config-dir", str(folder / "parts")] if command in FILES else []
    assert main([*command.split(" "), *options]) == 2
    shown = capsys.readouterr()
    (message,) = lines(shown.err)
    assert re.search(MISTAKES[command], message), message
    assert shown.out == ""
    assert not (folder / "results").exists()


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("trainer.accelerator=gpu", "trainer.accelerator=gpu: this machine has no CUDA device"),
        ("trainer.devices=64", "trainer.devices=64: .* use at most trainer.devices=2"),
        ("output=/proc/x", "output=/proc/x: nothing can be written to /proc"),
        ("budget.epoch=3", "budget.epoch: unknown key; did you mean budget.epochs"),
    ],
)
def test_message_of_pretraining(
    setting: str, message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "corpus.txt").write_text("a b c\n\n" * 50)
    assert main(["pretrain", "encoder=glove", "corpus=corpus.txt", "output=out", setting]) == 2
    (line,) = lines(capsys.readouterr().err)
    assert re.search(message, line), line
    assert not (folder / "out").exists()


def test_all_problems_are_reported_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    """A dry run reports them too, one line each."""
    command = ["-m", "trainer.devices=64,1", "trainer.precision=16-mixed", "task.train_size=9999,10"]
    assert main([*command, "encoder=mini_static", "strategy=frozen", "dry_run=true"]) == 2
    messages = lines(capsys.readouterr().err)
    assert len(messages) == 3
    for text in ("trainer.devices=64", "trainer.precision=16-mixed", "task.train_size=9999"):
        assert sum(text in message for message in messages) == 1


def test_options_may_follow_settings(capsys: pytest.CaptureFixture[str]) -> None:
    """Hydra alone rejects settings after an option that follows settings."""
    assert main(["strategy=frozen", "-m", "encoder=mini_static", "seed=0,1", "dry_run=true"]) == 0
    assert "seed 0,1" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["encoder=[mini_bert,mini_static] strategy=frozen", "experiment=two"])
def test_list_of_options_runs_one_cell_each(
    folder: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    """On the command line and as a YAML list in hydra.sweeper.params; Hydra alone merges them into one."""
    params = "hydra: {sweeper: {params: {encoder: [mini_bert, mini_static], strategy: frozen}}}\n"
    (folder / "parts" / "experiment" / "two.yaml").write_text(f"# @package _global_\n{params}")
    assert main(["--config-dir", str(folder / "parts"), "-m", *command.split(), "dry_run=true"]) == 0
    shown = capsys.readouterr().out
    assert "2 cells: 2 to run" in shown
    assert "mini_topic/mini_bert/frozen" in shown
    assert "mini_topic/mini_static/frozen" in shown
