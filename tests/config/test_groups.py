"""Options of configuration groups: search order, defaults lists, bodies in the user's folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.cli.main import main
from harness.config.groups import load_option, option_names
from harness.config.resolve import prepare
from harness.core.paths import conf_dir
from harness.errors import HarnessError
from harness.records.cell import Cell
from tests.helpers.cells import composed

OWN = "_target_: harness.bodies.bilstm.BiLSTM\nname: own\nhidden_size: 8\nresult_version: 1\n"


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A user's configuration folder with one body of its own, and one with the name of an installed body."""
    folder = tmp_path / "mine"
    (folder / "body").mkdir(parents=True)
    (folder / "body" / "own.yaml").write_text(OWN)
    (folder / "body" / "bilstm.yaml").write_text("name: shadow\n")
    (folder / "body" / "wide.yaml").write_text("defaults: [own]\nname: wide\nhidden_size: 16\n")
    return folder


def test_options_are_found_in_all_folders_in_the_order_of_hydra(mine: Path) -> None:
    folders = [conf_dir(), mine]
    assert load_option("body", "own", folders)["hidden_size"] == 8
    assert load_option("body", "bilstm", folders)["name"] == "bilstm"
    assert load_option("body", "bilstm", [mine])["name"] == "shadow"
    assert {"own", "wide", "bilstm", "none"} <= set(option_names("body", folders))
    with pytest.raises(HarnessError, match=r"body=own: there is no such option"):
        load_option("body", "own")


def test_an_option_extends_those_in_its_defaults_list(mine: Path) -> None:
    wide = load_option("body", "wide", [mine])
    assert wide == {
        "_target_": "harness.bodies.bilstm.BiLSTM", "name": "wide", "hidden_size": 16, "result_version": 1,
    }  # fmt: skip
    (mine / "body" / "loop.yaml").write_text("defaults: [loop]\n")
    with pytest.raises(HarnessError, match=r"loop\.yaml: defaults=\['loop'\]: expected names of other files"):
        load_option("body", "loop", [mine])


def resolved(tmp_path: Path, config: dict[str, Any], *, folders: list[Path]) -> Cell:
    paths = {"results_dir": str(tmp_path / "results"), "cache_dir": str(tmp_path / "cache")}
    return prepare({**config, **paths}, folders=folders)


@pytest.mark.parametrize(
    "overrides",
    [
        ["strategy=frozen", "task.feature_body=own", "~task.feature_body_options"],
        ["strategy=full", "+encoder.recipe.full.body=own"],
        ["strategy=full", "+strategy.recipe.body=own"],
    ],
)
def test_bodies_of_the_user_are_found_and_stored(tmp_path: Path, mine: Path, overrides: list[str]) -> None:
    """The stored configuration contains the body: it gives the same cell without the folder."""
    config = composed("encoder=mini_bert", "task=mini_topic", *overrides)
    cell = resolved(tmp_path, config, folders=[conf_dir(), mine])
    assert (cell.body.name, cell.body.options["hidden_size"]) == ("own", 8)
    again = prepare(cell.resolved, folders=[conf_dir()])
    assert (again.id, again.body, again.folder) == (cell.id, cell.body, cell.folder)
    with pytest.raises(HarnessError, match=r"body=own: .*there is no such option"):
        resolved(tmp_path, config, folders=[conf_dir()])


def test_a_body_of_the_user_joins_texts(tmp_path: Path, mine: Path) -> None:
    """A default body that combines two texts decides that a task cannot do without one."""
    (mine / "body" / "joins.yaml").write_text("defaults: [own]\nname: joins\njoins_texts: true\n")
    config = composed("encoder=mini_static", "task=mini_qa", "strategy=frozen", "body=bilstm")
    config["task"]["feature_body"] = "joins"
    reason = resolved(tmp_path, config, folders=[conf_dir(), mine]).skip
    assert reason is not None
    assert "never be combined" in reason


def test_command_finds_the_body_of_its_config_dir(
    tmp_path: Path, mine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    command = [
        "--config-dir", "mine", "encoder=mini_static", "task=mini_topic", "strategy=frozen", "dry_run=true",
        "logger=none", "task.feature_body=own",
    ]  # fmt: skip
    assert main(command) == 0
    capsys.readouterr()
    assert main(command[2:]) == 2
    assert "task.feature_body=own: body=own: there is no such option" in capsys.readouterr().err
