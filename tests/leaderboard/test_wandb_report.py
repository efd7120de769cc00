"""Publishing to Weights & Biases: offline, files are written to a folder; online, they are uploaded."""

from __future__ import annotations

import importlib.util
import io
import json
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from harness.errors import HarnessError
from harness.leaderboard import wandb_report
from harness.leaderboard.command import main
from harness.leaderboard.table import board
from tests.helpers.boards import labels

FILES = {"report.html", "leaderboard.json", "leaderboard.csv", "leaderboard.md", "seeds.json", "plan.json"}


@pytest.fixture
def results(tmp_path: Path) -> Path:
    for encoder, level in (("a", 0.9), ("b", 0.6)):
        for seed in range(2):
            labels(tmp_path / "r", level, encoder=encoder, seed=seed)
    return tmp_path / "r"


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    """Fake wandb and wandb_workspaces; record all calls."""
    calls: list[tuple[str, Any]] = []

    class Artifact:
        def __init__(self, name: str, type: str) -> None:
            calls.append(("artifact", name))

        @contextmanager
        def new_file(self, name: str, encoding: str) -> Iterator[io.StringIO]:
            file = io.StringIO()
            yield file
            calls.append((name, file.getvalue()))

    class Table:
        def __init__(self, columns: list[str], allow_mixed_types: bool) -> None:
            self.columns, self.data = columns, []  # type: ignore[var-annotated]

        def add_data(self, *values: Any) -> None:
            assert len(values) == len(self.columns)
            self.data.append(values)

    run = types.SimpleNamespace(
        log=lambda data: calls.append(("log", data)), log_artifact=lambda a: calls.append(("sent", a)),
        finish=lambda: calls.append(("finish", None)), url="https://site/run", entity="someone",
    )  # fmt: skip
    module = types.ModuleType("wandb")
    module.__spec__ = importlib.util.spec_from_loader("wandb", None)
    module.init = lambda **given: calls.append(("init", given)) or run  # type: ignore[attr-defined]
    module.Artifact, module.Table = Artifact, Table  # type: ignore[attr-defined]
    module.Html = lambda text, inject: text  # type: ignore[attr-defined]
    module.plot = types.SimpleNamespace(scatter=lambda *a, **k: ("scatter", a[1:], k))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", module)
    monkeypatch.setattr(wandb_report, "offline_reason", lambda: "")
    saved = [
        types.SimpleNamespace(save=lambda n=n: calls.append(("save", n)), url=f"https://site/{n}")
        for n in "wr"
    ]
    monkeypatch.setattr(wandb_report, "dashboards", lambda *a, **k: tuple(saved))
    return calls


def test_offline_writes_what_would_be_sent(
    results: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert main([str(results), "--wandb", "me/project"]) == 0
    folder = results / ".wandb" / "me_project"
    assert f"nothing was sent (WANDB_MODE=offline); the files are in {folder}" in capsys.readouterr().out
    assert {p.name for p in folder.iterdir()} == FILES
    plan = json.loads((folder / "plan.json").read_text())
    assert (plan["entity"], plan["project"]) == ("me", "project")
    assert len(json.loads((folder / "seeds.json").read_text())) == 4
    # the written files are not read as records
    assert main([str(results), "--format", "json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["rows"]) == 2


def test_without_a_key_or_a_server_nothing_is_sent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    assert "no API key" in wandb_report.offline_reason()
    monkeypatch.setenv("WANDB_API_KEY", "k" * 40)
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    assert "cannot be reached" in wandb_report.offline_reason()


def test_online_sends_tables_plots_files_and_dashboards(
    results: Path, wandb: list[tuple[str, Any]], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    installed = importlib.util.find_spec("wandb_workspaces") is not None
    assert main([str(results), "--wandb", "project", "--output", str(tmp_path / "unused")]) == 0
    calls = dict(wandb)
    assert calls["init"]["project"] == "project"
    assert FILES - {"plan.json"} <= set(calls)
    logged = [value for key, value in wandb if key == "log"]
    assert len(logged[0]["rows"].data) == 2
    assert len(logged[0]["seeds"].data) == 4
    assert logged[0]["cost/t"][1] == ("train_seconds", "mean")
    assert ("finish", None) in wandb
    assert not (tmp_path / "unused").exists()
    out = capsys.readouterr().out
    assert "https://site/run" in out
    assert ("https://site/w" in out) == installed


def test_error_without_wandb_names_the_extra(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(HarnessError, match=r"not installed; pip install 'transfer-harness\[wandb\]'"):
        main([str(results), "--wandb", "project"])


def test_server_error_gives_one_error(results: Path, wandb: list[tuple[str, Any]]) -> None:
    def refuse(**given: Any) -> None:
        raise RuntimeError("no such entity")

    sys.modules["wandb"].init = refuse  # type: ignore[attr-defined]
    with pytest.raises(HarnessError, match="RuntimeError: no such entity; WANDB_MODE=offline"):
        main([str(results), "--wandb", "project"])


@pytest.mark.parametrize("name", ["a/b/c", "a/", "x#y"])
def test_a_project_needs_a_name(results: Path, name: str) -> None:
    with pytest.raises(HarnessError, match="expected PROJECT or ENTITY/PROJECT"):
        main([str(results), "--wandb", name])


@pytest.mark.filterwarnings("ignore")
def test_dashboards_with_the_real_wandb_workspaces(results: Path) -> None:
    pytest.importorskip("wandb_workspaces")
    folder_contents = board.read(results)
    made = board.make_board(folder_contents.records, configs=folder_contents.configs)
    workspace, report = wandb_report.dashboards(made, entity="me", project="p")
    assert [section.name for section in workspace.sections] == ["Tables", "Score and cost"]
    assert "| a | full |" in report.blocks[0].text
