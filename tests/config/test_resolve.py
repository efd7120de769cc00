"""Resolving a configuration to a cell: types, recipes, skips, identity, variants, folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.config.cell_id import identity
from harness.config.resolve import prepare
from harness.core.fingerprint import slug
from harness.encoders.config import EncoderConfig
from harness.errors import HarnessError
from harness.records.cell import Cell
from harness.records.inputs import verify
from harness.training.run import run_cell
from tests.helpers.cells import composed, make_cell

BERT = ["encoder=mini_bert", "task=mini_topic"]


def test_recipe_fills_open_settings_and_configured_values_take_precedence(tmp_path: Path) -> None:
    cell = make_cell(tmp_path, *BERT, "strategy=full", "encoder.recipe.full.lr=0.25")
    assert cell.optimizer.lr == 0.25
    configured = make_cell(
        tmp_path, *BERT, "strategy=full", "encoder.recipe.full.lr=0.25", "optimizer.lr=0.5"
    )
    assert configured.optimizer.lr == 0.5
    assert configured.variant["optimizer.lr"] == 0.5


def test_unknown_recipe_key_is_rejected_with_the_closest(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match=r"recipe.full.epoch.*did you mean epochs"):
        make_cell(tmp_path, *BERT, "strategy=full", "+encoder.recipe.full.epoch=3")


@pytest.mark.parametrize(
    ("overrides", "body"),
    [
        (["strategy=full", "task=mini_topic"], "none"),
        (["strategy=frozen", "task=mini_topic"], "bilstm"),
        (["strategy=embedding_init", "task=mini_ner"], "bilstm"),
        (["strategy=frozen", "task=mini_qa"], "attention_flow"),
        (["strategy=full", "task=mini_qa"], "none"),
        (["strategy=frozen", "task=mini_qa", "body=none", "encoder.pairs=joint"], "none"),
    ],
)
def test_default_body_is_that_of_the_papers(tmp_path: Path, overrides: list[str], body: str) -> None:
    assert make_cell(tmp_path, "encoder=mini_bert", *overrides).body.name == body


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        (["encoder=mini_static", "strategy=full", "task=mini_topic"], "same cell as embedding_init"),
        (["encoder=concat", "strategy=full", "task=mini_topic"], "same cell as embedding_init"),
        (["encoder=mini_static", "strategy=frozen", "encoder.layers=mix"], "no layers"),
        (["encoder=mini_bert", "strategy=embedding_init", "encoder.layers=mix"], "no layers"),
        (["encoder=mini_bert", "strategy=frozen", "task=mini_qa", "body=none"], "never be combined"),
        (["encoder=mini_bert", "strategy=full", "task=mini_topic", "body=attention_flow"], "task has one"),
        (["encoder=mini_bert", "strategy=frozen", "+strategy.layer_decay=0.9"], "no layers"),
    ],
)
def test_meaningless_and_duplicate_cells_are_skipped(
    tmp_path: Path, overrides: list[str], reason: str
) -> None:
    skip = make_cell(tmp_path, *overrides).skip
    assert skip is not None
    assert reason in skip


def cell(tmp_path: Path, *more: str) -> Cell:
    return make_cell(tmp_path, *BERT, "strategy=full", *more)


def test_id_does_not_depend_on_paths_seeds_or_devices(tmp_path: Path) -> None:
    reference = cell(tmp_path)
    for same in (
        cell(tmp_path / "elsewhere"),
        cell(tmp_path, "seed=5"),
        cell(tmp_path, "trainer.threads=1"),
        cell(tmp_path, "trainer.accelerator=cpu"),
        cell(tmp_path, "trainer.eval_batch_size=3"),
        cell(tmp_path, "trainer.stride=3"),  # a text to classify is truncated, not windowed
        cell(tmp_path, "+strategy.relative_lr=1"),
        cell(tmp_path, "strategy.layer_decay=1.0"),
        cell(tmp_path, "logger=csv"),
        cell(tmp_path, f"optimizer.lr={reference.optimizer.lr}"),
        cell(tmp_path, "timeout=100"),
    ):
        assert same.id == reference.id
    assert cell(tmp_path, "seed=5").folder.name == "seed-5"


@pytest.mark.parametrize(
    "override",
    [
        "optimizer.lr=0.123",
        "trainer.epochs=77",
        "trainer.batch_size=7",
        "schedule=cosine",
        "trainer.precision=bf16-mixed",
        "trainer.max_tokens_per_batch=500",
        "limit=5",
        "trainer.max_length=16",
        "task.dev=none",
        "task.name=other",
        "encoder.result_version=2",
        "trainer.select=last",
    ],
)
def test_id_depends_on_all_that_can_change_the_result(tmp_path: Path, override: str) -> None:
    assert cell(tmp_path, override).id != cell(tmp_path).id


def test_id_depends_on_the_content_of_the_data_but_not_on_line_endings(tmp_path: Path) -> None:
    """The same data with Windows line endings must give the same cell."""

    def id_of(content: str) -> str:
        files = {s: tmp_path / f"{s}.csv" for s in ("train", "dev", "test")}
        for file in files.values():
            file.write_bytes(content.encode())
        more = [f"task.{s}={file}" for s, file in files.items()]
        task = ["task=text_classification", "task.name=mine", *more]
        return make_cell(tmp_path, "encoder=mini_static", "strategy=frozen", *task).id

    text = "text,label\ngood,pos\nbad,neg\n"
    assert id_of(text) == id_of(text.replace("\n", "\r\n"))
    assert id_of(text) != id_of(text.replace("good", "fine"))


def test_variant_contains_the_settings_that_differ(tmp_path: Path) -> None:
    assert cell(tmp_path).variant == {}
    changed = cell(tmp_path, "optimizer.lr=0.5", "trainer.dropout=0.3", "strategy.layer_decay=0.9", "seed=3")
    assert changed.variant == {
        "optimizer.lr": 0.5,
        "strategy.layer_decay": 0.9,
        "trainer.dropout": 0.3,
    }
    assert cell(tmp_path, "body=bilstm").variant["body"] == "bilstm"
    assert cell(tmp_path, "schedule=cosine").variant == {"schedule": "cosine"}
    joint = make_cell(
        tmp_path, "encoder=concat", "encoder@encoder.members.second=mini_bert", "strategy=frozen"
    )
    assert joint.variant == {"encoder.members.second": "mini_bert"}


@pytest.mark.parametrize(
    ("key", "value", "word"),
    [
        ("optimizer.lr", "fast", "expected a number"),
        ("optimizer.lr", "-1", "between 0"),
        ("optimizer.lr", ".nan", "expected a number"),
        ("trainer.epochs", "2.5", "whole number"),
        ("trainer.epochs", "0", ">= 1"),
        ("trainer.precision", "fp16", "valid"),
        ("trainer.select", "bset", "did you mean best"),
        ("seed", "-3", "between"),
        ("limit", "0", ">= 1"),
        ("schedule.warmup", "3", "between 0 and 1"),
        ("trainer.save", "maybe", "expected true or false"),
        ("encoder.layers", "mx", "expected top, mix, or a list of layers"),
        ("encoder.layers", "[]", "expected top, mix, or a list of layers"),
        ("encoder.layers", "[-1]", ">= 0"),
        ("encoder.pairs", "seperate", "did you mean separate"),
        ("strategy.lr", "abc", "expected a number"),
        ("strategy.layer_decay", "2", "between"),
        ("encoder.recipe", "5", "settings by name"),
        ("trainer.strategy", "dpp", "did you mean ddp"),
        ("trainer.devices", "0", ">= 1"),
        ("strategy.transfer", "nothing_at_all", "nothing"),
    ],
)
def test_values_of_the_wrong_type_are_rejected_with_their_key(
    tmp_path: Path, key: str, value: str, word: str
) -> None:
    """A value of the wrong type must fail before any data are read."""
    with pytest.raises(HarnessError, match=word) as caught:
        cell(tmp_path, f"{key}={value}")
    assert key in str(caught.value)


def test_a_learning_rate_given_as_text_is_converted(tmp_path: Path) -> None:
    assert cell(tmp_path, "optimizer.lr='1e-5'").optimizer.lr == 1e-5


def test_unknown_option_of_a_component_is_rejected_with_the_closest(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match=r"dev_fractoin.*did you mean dev_fraction"):
        cell(tmp_path, "+task.dev_fractoin=0.2")


def test_folders_of_unsafe_names_are_short_and_distinct() -> None:
    """Long, non-ASCII and path-like names must not exceed the file system's limits or share a folder."""
    names = ["x" * 300 + "_1", "x" * 300 + "_2", "실험" * 60, "a/b", "a b", "../up", ".hidden_size", "a=b"]
    slugs = [slug(n) for n in names]
    assert len(set(slugs)) == len(names)
    assert all(len(s.encode()) <= 80 and "/" not in s and "=" not in s for s in slugs)
    assert not any(s.startswith(".") for s in slugs)
    assert slug("bert_base-uncased.v1") == "bert_base-uncased.v1"


def test_unsafe_names_give_valid_cell_folders(tmp_path: Path) -> None:
    """A long task name must not exceed the file system's limit."""
    folders = {cell(tmp_path, f"task.name='{name}'").folder for name in ("실험" * 60, "실험" * 61, "y" * 300)}
    assert len(folders) == 3
    assert all(len(part.encode()) <= 255 for f in folders for part in f.parts)


def test_missing_groups_and_names_are_errors_that_name_the_fix(tmp_path: Path) -> None:
    config: dict[str, Any] = composed(*BERT)
    with pytest.raises(HarnessError, match="encoder: no option is selected"):
        prepare({**config, "encoder": None})
    with pytest.raises(HarnessError, match=r"encoder.path is not set"):
        make_cell(tmp_path, "encoder=bert", "task=mini_topic", "strategy=full")


def test_embedding_tables_are_distinguished_from_encoders_with_layers() -> None:
    table, model = {"table": True, "_target_": "builtins.dict"}, {"name": "bert", "_target_": "builtins.dict"}
    assert EncoderConfig.parse(table).table
    assert not EncoderConfig.parse(model).table
    assert EncoderConfig.parse({**model, "members": {"a": table, "b": table, "c": None}}).table
    mixed = EncoderConfig.parse({**model, "members": {"a": table, "b": model}})
    assert not mixed.table
    assert mixed.has_table


def test_only_top_level_path_keys_are_left_out_of_the_identity() -> None:
    one = {"hub": {"splits": {"train": "train", "test": "test"}}, "path": "/a", "dev": None}
    other = {"hub": {"splits": {"train": "test", "test": "train"}}, "path": "/b", "dev": None}
    assert identity(one, group="task") != identity(other, group="task")
    assert identity({**one, "path": "/b"}, group="task") == identity(one, group="task")
    assert identity({"dev": "None"}, group="task") == identity({"dev": "none"}, group="task") != {}
    members = {"members": {"a": {"name": "x", "path": "/a"}}}
    assert identity(members, group="encoder") == {"members": {"a": {"name": "x"}}}
    assert identity({"lr": 1}, group="strategy") == identity({"lr": 1.0}, group="strategy")


def test_the_file_format_is_part_of_the_identity(tmp_path: Path) -> None:
    ids = []
    for ending in (".csv", ".tsv"):
        files = {s: tmp_path / f"{s}{ending}" for s in ("train", "dev", "test")}
        for file in files.values():
            file.write_text('text;label\n"hello";a\n"there";b\n')
        more = [f"task.{s}={file}" for s, file in files.items()]
        task = ["task=text_classification", "task.name=mine", "task.delimiter=';'", *more]
        ids.append(make_cell(tmp_path, "encoder=mini_static", "strategy=frozen", *task).id)
    assert ids[0] != ids[1]


def test_joint_pairs_need_an_encoder_that_supports_them(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match=r"encoder.pairs=joint.*one text at a time"):
        make_cell(tmp_path, "encoder=mini_static", "strategy=frozen", "task=mini_qa", "encoder.pairs=joint")


def test_a_stride_not_below_max_length_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match=r"trainer.stride=64: must be less than trainer.max_length=32"):
        make_cell(tmp_path, "encoder=mini_bert", "strategy=full", "task=mini_ner", "trainer.max_length=32")


def test_patience_null_disables_early_stopping_despite_the_recipe(tmp_path: Path) -> None:
    over = ["encoder=mini_static", "task=mini_topic", "strategy=frozen", "encoder.recipe.frozen.patience=5"]
    by_recipe = make_cell(tmp_path, *over)
    never = make_cell(tmp_path, *over, "trainer.patience=null")
    assert by_recipe.trainer.patience == 5
    assert never.trainer.patience is None
    assert never.id != by_recipe.id
    assert never.variant["trainer.patience"] is None


def test_numeric_names_in_a_configuration_become_text(tmp_path: Path) -> None:
    """YAML reads a name such as 2014 as a number."""
    config = composed(*BERT, "strategy=full", f"results_dir={tmp_path}")
    config["task"]["name"], config["encoder"]["name"] = 2014, 7
    prepared = prepare(config)
    assert (prepared.task.name, prepared.encoder.name) == ("2014", "7")
    assert prepared.folder.parts[-5:-3] == ("2014", "7")


def test_patience_says_nothing_when_the_last_epoch_is_taken(tmp_path: Path) -> None:
    base = ["encoder=mini_bert", "strategy=embedding_init", "task=mini_topic", "trainer.select=last"]
    cell = make_cell(tmp_path, *base)
    assert cell.trainer.patience is None
    assert make_cell(tmp_path, *base, "trainer.patience=null").id == cell.id
    with pytest.raises(HarnessError, match="select=last"):
        make_cell(tmp_path, *base, "trainer.patience=2")


def test_a_table_takes_no_joint_pairs(tmp_path: Path) -> None:
    cell = make_cell(
        tmp_path, "encoder=mini_bert", "strategy=embedding_init", "task=mini_qa", "encoder.pairs=joint"
    )
    assert cell.skip is not None
    assert "encoder.pairs=joint" in cell.skip


def test_files_changed_since_a_cell_was_resolved_are_rejected(tmp_path: Path) -> None:
    data = tmp_path / "train.csv"
    data.write_text("text,label\n" + "good day,a\nbad day,b\n" * 20)
    cell = make_cell(
        tmp_path, "encoder=mini_bert", "task=text_classification", "task.name=mine", f"task.train={data}"
    )
    verify(cell)
    data.touch()
    verify(cell)  # a new modification time, the same content
    data.write_text("text,label\n" + "good day,b\nbad day,a\n" * 20)
    with pytest.raises(HarnessError, match="the task's files have changed"):
        verify(cell)
    with pytest.raises(HarnessError, match="the task's files have changed"):
        run_cell(cell)
