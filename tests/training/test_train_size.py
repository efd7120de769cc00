"""A part of the training split: nested, one for all seeds, dev and test whole, checked before it runs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.data.splits import complete, smaller
from harness.errors import HarnessError
from harness.records.inputs import read_data
from harness.sweeps.checks import check_data
from harness.task import Splits
from harness.training.run import run_cell
from tests.helpers.cells import make_cell

SIZES = {"mini_topic": 300, "mini_ner": 300, "mini_qa": 400}


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from("aaabbcd"), min_size=2, max_size=120), st.data())
def test_larger_sizes_contain_smaller_ones_and_classes_keep_their_shares(
    classes: list[str], data: st.DataObject
) -> None:
    items, seed = list(enumerate(classes)), data.draw(st.integers(0, 50))
    large = data.draw(st.integers(1, len(items)))
    small = data.draw(st.integers(1, large))
    few, many = (smaller(items, n, seed, notes=[], stratify=lambda item: item[1]) for n in (small, large))
    assert len(few) == small
    assert set(few) <= set(many) <= set(items)
    assert few == sorted(few)
    total, found = Counter(classes), Counter(c for _, c in few)
    assert len(found) == min(len(total), small)
    assert all(abs(found[c] - small * n / len(items)) <= len(total) for c, n in total.items())


def test_the_choice_is_the_same_on_every_machine() -> None:
    notes: list[str] = []
    assert smaller(list(range(20)), 5, 13, notes=notes) == CHOSEN
    assert notes == ["train: 5 of 20 examples, as requested (seed 13; the same for every cell's seed)"]
    assert smaller(list(range(20)), None, 13, notes=notes) == list(range(20))
    assert smaller(list(range(20)), 5, 14, notes=notes) != CHOSEN


CHOSEN = [0, 1, 4, 6, 7]


def test_it_comes_after_the_cut_of_dev_and_test() -> None:
    fractions = {"dev": 0.1, "test": 0.2}
    read = {"train": list(range(100))}
    whole, part = (
        complete(read, no_dev=False, fractions=fractions, seed=13, notes=[], train_size=n) for n in (None, 9)
    )
    assert (whole["dev"], whole["test"]) == (part["dev"], part["test"])
    assert len(part["train"]) == 9
    assert set(part["train"]) < set(whole["train"])


@pytest.mark.parametrize("size", [0, 21])
def test_a_size_that_cannot_be_names_the_splits_size(size: int) -> None:
    with pytest.raises(HarnessError, match=rf"task.train_size={size}: must be between 1 and 20"):
        smaller(list(range(20)), size, 13, notes=[])


def splits(folder: Path, task: str, size: Any, *more: str) -> Splits:
    overrides = [f"task={task}", "encoder=mini_static", "strategy=frozen", *more]
    return read_data(make_cell(folder, *overrides, f"task.train_size={size}"))[1]


@pytest.fixture
def numbers(tmp_path: Path) -> list[str]:
    lines = [f"word {i},{i / 7:.3f}" for i in range(40)]
    (tmp_path / "train.csv").write_text("text,label\n" + "\n".join(lines), encoding="utf-8")
    return [f"task.train={tmp_path / 'train.csv'}"]


@pytest.mark.parametrize("task", [*SIZES, "text_regression"])
def test_every_kind_of_task_trains_on_a_part_and_leaves_dev_and_test_whole(
    tmp_path: Path, task: str, numbers: list[str]
) -> None:
    more = numbers if task == "text_regression" else []
    whole, large, small = (splits(tmp_path, task, n, *more) for n in ("all", 20, 8))
    ids = [[e.id for e in found.train] for found in (small, large, whole)]
    assert [len(part) for part in ids] == [8, 20, SIZES.get(task, 32)]
    assert set(ids[0]) < set(ids[1]) < set(ids[2])
    for found in (small, large):
        assert [e.id for e in found.dev] == [e.id for e in whole.dev]
        assert [e.id for e in found.test] == [e.id for e in whole.test]
    assert any(note.startswith("train: 8 of ") for note in small.notes)
    assert not any(note.startswith("train: ") for note in whole.notes)


def test_classes_are_those_of_the_part(tmp_path: Path) -> None:
    """What no training example has cannot be learnt; dev and test keep it, and the notes say so."""
    found = splits(tmp_path, "mini_topic", 4)
    assert found.report["classes"] == 4
    assert found.report["labels_absent_from_train"] == 2
    assert {e.gold for e in splits(tmp_path, "mini_topic", 6).train} == {e.gold for e in found.test}


def test_all_is_the_cell_that_was_there_before(tmp_path: Path) -> None:
    base = ["task=mini_topic", "encoder=mini_static", "strategy=frozen"]
    plain = make_cell(tmp_path, *base)
    for size in ("all", "null"):
        same = make_cell(tmp_path, *base, f"task.train_size={size}")
        assert (same.id, same.variant) == (plain.id, {})
    part = make_cell(tmp_path, *base, "task.train_size=30")
    assert part.id != plain.id
    assert part.variant == {"task.train_size": 30}


@pytest.mark.parametrize("size", ["0", "-3", "0.5", "most", "[1]"])
def test_a_size_is_a_whole_number_or_all(tmp_path: Path, size: str) -> None:
    with pytest.raises(HarnessError, match=r"task.train_size=.*, or all$"):
        make_cell(tmp_path, "task=mini_topic", f"task.train_size={size}")


def test_a_size_beyond_the_split_is_found_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = ["task=mini_topic", "encoder=mini_static", "strategy=frozen"]
    cells = [make_cell(tmp_path, *base, f"task.train_size={n}") for n in (10, 300, 301)]
    with pytest.raises(HarnessError, match=r"must be between 1 and 300.*nothing has been run"):
        check_data(cells)
    assert capsys.readouterr().err.count("10 of 300") == 1


def test_the_record_holds_what_was_trained_on(tmp_path: Path) -> None:
    base = ["task=mini_topic", "encoder=mini_static", "strategy=frozen", "trainer.epochs=1"]
    cell = make_cell(tmp_path, *base, "task.train_size=12", "trainer.threads=1", "trainer.accelerator=cpu")
    record = run_cell(cell)
    assert (record.n_train, record.n_dev, record.n_test) == (12, 200, 500)
    assert any("12 of 300" in note for note in record.notes)
