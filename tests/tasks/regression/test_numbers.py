"""Reading the gold of regression: forms of numbers, missing ones, and columns that are no numbers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.errors import HarnessError
from harness.task import Splits
from harness_tasks.regression.task import TextRegression

VALUES = ["0.5", "1", "2.25", "3e0", "-4", "+5"]
NUMBERS = [0.5, 1.0, 2.25, 3.0, -4.0, 5.0]


def write(path: Path, labels: Sequence[str]) -> str:
    rows = "".join(f'text {path.stem} {i} of many,"{label}"\n' for i, label in enumerate(labels))
    path.write_text(f"text,label\n{rows}", encoding="utf-8")
    return str(path)


def read(folder: Path, train: Sequence[str], test: Sequence[str] = ("1",), **options: Any) -> Splits:
    files = {"train": write(folder / "train.csv", train), "test": write(folder / "test.csv", test)}
    return TextRegression(**{"dev": "none", **files, **options}).splits()


def gold(splits: Splits, split: str = "train") -> list[Any]:
    return [e.gold for e in getattr(splits, split)]


@pytest.mark.parametrize(
    ("labels", "values"),
    [
        (VALUES, NUMBERS),
        (["1,5", "2,25", "3"], [1.5, 2.25, 3.0]),
        (["1", "", "2", "NaN", "3", "null"], [1.0, 2.0, 3.0]),
    ],
)
def test_numbers_are_read(tmp_path: Path, labels: list[str], values: list[float]) -> None:
    splits = read(tmp_path, labels)
    assert gold(splits) == values
    assert splits.report["train_mean"] == pytest.approx(sum(values) / len(values))
    assert any("decimal commas" in note for note in splits.notes) == any("," in label for label in labels)


def test_a_test_split_of_one_number_is_warned_of(tmp_path: Path) -> None:
    assert any("-1 everywhere" in w for w in read(tmp_path, VALUES, ["-1.0"] * 3).warnings)
    assert not read(tmp_path, VALUES, ["-1", "-1", "2"]).warnings
    unlabelled = read(tmp_path, VALUES, ["-1.0"] * 3, unlabelled="-1")
    assert gold(unlabelled, "test") == [None] * 3
    assert not any("everywhere" in w for w in unlabelled.warnings)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (
            ["1", "2", "three", "4"],
            r"train\.csv, line 4: the label 'three' is no finite number.*on_error=skip",
        ),
        (["1,234", "2,500"], "line 2: the label '1,234' .* thousands without a separator"),
        (["1,5", "2.5"], "line 2: the label '1,5'"),
        (["1", "2", "1_000"], "line 4: the label '1_000'"),
        (["1", "inf"], "line 3: the label 'inf'"),
        (["1", "9" * 400], "line 3: the label"),
        (["1", "-"], r"line 3: the label '-'"),
        (["pos", "neg"], "line 2: the label 'pos' .*task=text_classification"),
        (["2", "2.0"], "the same number 2 everywhere"),
        ([" ", ""], "none of the 2 rows of train has a label"),
    ],
)
def test_a_column_that_is_no_number_is_refused(tmp_path: Path, labels: list[str], message: str) -> None:
    with pytest.raises(HarnessError, match=message):
        read(tmp_path, labels)


def test_two_numbers_may_be_classes(tmp_path: Path) -> None:
    warnings = read(tmp_path, ["0", "1", "1"]).warnings
    assert any("only the numbers 0 and 1: task=text_classification" in w for w in warnings)
    assert not read(tmp_path, ["0", "1", "2"]).warnings


def test_rows_without_a_number_are_left_out_and_counted_or_skipped(tmp_path: Path) -> None:
    splits = read(tmp_path, [*VALUES, "-", ""], unlabelled="-")
    assert gold(splits) == NUMBERS
    assert splits.card is not None
    assert any("2 rows left out: no label" in line for line in splits.card.lines())
    splits = read(tmp_path, [*VALUES, "x", "y"], on_error="skip")
    assert gold(splits) == NUMBERS
    assert splits.card is not None
    assert splits.card.n_skipped == 2


def test_an_unlabelled_test_split_is_kept(tmp_path: Path) -> None:
    files = {"train": write(tmp_path / "a.csv", VALUES), "test": write(tmp_path / "t.csv", ["", ""])}
    task = TextRegression(dev="none", **files)
    splits = task.splits()
    assert gold(splits, "test") == [None, None]
    assert np.isnan(task.row_targets(splits.test[0], [None])[0]["value"])  # type: ignore[list-item]
    assert any("predictions and no score" in w for w in splits.warnings)
