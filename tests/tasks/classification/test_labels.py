"""What counts as a label: normal forms, missing and unlabelled rows, several labels, names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.errors import HarnessError
from harness.task import Splits
from harness_tasks.classification.task import TextClassification

PAIRED = ["a", "b"] * 10


def write(path: Path, labels: Sequence[str]) -> str:
    """A csv with a text of its own for each label."""
    rows = "".join(f'text {path.stem} {i} of many,"{label}"\n' for i, label in enumerate(labels))
    path.write_text(f"text,label\n{rows}", encoding="utf-8")
    return str(path)


def read(
    folder: Path, rows: Sequence[str], test: Sequence[str] = ("a", "b"), **options: Any
) -> tuple[TextClassification, Splits]:
    files = {"train": write(folder / "train.csv", rows), "test": write(folder / "test.csv", test)}
    task = TextClassification(**{"dev": "none", **files, **options})
    return task, task.splits()


def gold(splits: Splits, split: str) -> list[Any]:
    return [e.gold for e in getattr(splits, split)]


@pytest.mark.parametrize(
    ("train", "test", "classes"),
    [
        (["1.0", "0.0"] * 5, ["1", "0"], ["0", "1"]),
        (["1.0", "0", "1", "0.0"] * 3, ["1.0", "0.0"], ["0", "1"]),
        (["1.", "0", "2.00"] * 3, ["1", "0"], ["0", "1", "2"]),
        (["-1.0", "1"] * 5, ["-1", "1.0"], ["-1", "1"]),
        (["01", "02"] * 5, ["01", "02"], ["01", "02"]),
        (["1.0", "1.5"] * 5, ["1.0", "1.5"], ["1.0", "1.5"]),
        (["1.0", "x"] * 5, ["1.0", "x"], ["1.0", "x"]),
    ],
)
def test_whole_numbers_have_one_form_in_all_splits(
    tmp_path: Path, train: list[str], test: list[str], classes: list[str]
) -> None:
    task, splits = read(tmp_path, train, test)
    assert sorted(task.labels) == classes
    assert set(gold(splits, "train")) == set(classes)
    assert set(gold(splits, "test")) <= set(classes)
    changed = set(train + test) - set(classes)
    assert any("whole numbers" in note for note in splits.notes) == bool(changed)


def test_configured_labels_take_the_form_of_the_column(tmp_path: Path) -> None:
    task, _ = read(
        tmp_path, ["1.0", "0.0"] * 5, ["1", "0"], labels=["1.0", "0.0"], positive="1.0", metric="f1"
    )
    assert (task.labels, task.positive) == (["1", "0"], "1")
    task, _ = read(tmp_path, ["1.0", "0.0"] * 5, ["1", "0"], label_names={"0": "neg", "1": "pos"})
    assert task.labels == ["neg", "pos"]
    task, _ = read(tmp_path, ["1", "0"] * 5, ["1", "0"], label_names=["neg", "pos"])
    assert task.labels == ["neg", "pos"]


@pytest.mark.parametrize("marker", ["-", "?", "NaN", "N/A"])
def test_a_marker_of_missing_labels_is_refused_left_out_or_a_class(tmp_path: Path, marker: str) -> None:
    train = ["a", "b"] * 8 + [marker] * 2
    with pytest.raises(HarnessError, match=r"train\.csv, line 18: label .*Set task\.unlabelled=.*\[\]") as e:
        read(tmp_path, train)
    assert f"task.unlabelled={marker} " in str(e.value)
    task, splits = read(tmp_path, train, unlabelled=marker)
    assert (task.labels, len(splits.train)) == (["a", "b"], 16)
    assert splits.card is not None
    assert any("2 rows left out: no label" in line for line in splits.card.lines())
    assert read(tmp_path, train, unlabelled=[])[0].labels.count(marker) == 1
    with pytest.raises(HarnessError, match=r"Set task\.unlabelled=\[--,"):  # names another label
        read(tmp_path, train, unlabelled=["--"])
    assert len(read(tmp_path, train, labels=["a", "b"])[1].train) == 16
    assert len(read(tmp_path, train, labels=["a", "b", marker])[1].train) == 18


@pytest.mark.parametrize(
    ("train", "refused"),
    [
        (["0", "1", "-1"] * 5, True),
        (["0", "1", "2", "-1.0"] * 5, True),
        (["1", "-1"] * 5, False),
        (["-2", "-1", "0", "1"] * 5, False),
        (["a", "b", "-1"] * 5, False),
        ([".", "?", ","] * 5, False),
        (["+", "-"] * 5, False),
    ],
)
def test_minus_one_and_marks_are_doubtful_only_beside_other_classes(
    tmp_path: Path, train: list[str], refused: bool
) -> None:
    if refused:
        with pytest.raises(HarnessError, match=r"task\.unlabelled=-1"):
            read(tmp_path, train, train[:2])
        assert set(gold(read(tmp_path, train, train[:2], unlabelled=-1)[1], "train")) == set(train[:-1]) - {
            "-1",
            "-1.0",
        }
    else:
        assert set(gold(read(tmp_path, train, train[:2])[1], "train")) == set(train)


def test_rows_without_a_label_are_left_out_and_counted(tmp_path: Path) -> None:
    _, splits = read(tmp_path, ["a", "b", "", "  "] * 5, ["a", "b", ""])
    assert (len(splits.train), len(splits.test)) == (10, 2)
    assert splits.card is not None
    lines = splits.card.lines()
    assert any("train.csv: 10 rows left out: no label" in line for line in lines)
    assert any("test.csv: 1 rows left out: no label" in line for line in lines)
    rows = ['{"text": "x", "label": null}', '{"text": "y"}', '{"text": "z", "label": NaN}']
    rows += [f'{{"text": "t {i}", "label": {i % 2}.0}}' for i in range(4)]
    (tmp_path / "t.jsonl").write_text("\n".join(rows))
    _, splits = read(tmp_path, ["0", "1"] * 5, test=["0"], train=str(tmp_path / "t.jsonl"))
    assert gold(splits, "train") == ["0", "1", "0", "1"]


@pytest.mark.parametrize(("labels", "options"), [([""] * 3, {}), (["-1"] * 3, {"unlabelled": -1})])
def test_an_unlabelled_test_split_is_kept_and_reported(
    tmp_path: Path, labels: list[str], options: dict[str, Any]
) -> None:
    task, splits = read(tmp_path, ["0", "1"] * 5, labels, **options)
    assert gold(splits, "test") == [None] * 3
    assert any("predictions and no score" in warning for warning in splits.warnings)
    assert task.row_targets(splits.test[0], [None])[0]["label"] == -100  # type: ignore[list-item]


def test_train_or_dev_without_any_label_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match=r"train\.csv: none of the 4 rows of train has a label"):
        read(tmp_path, [""] * 4)
    dev = write(tmp_path / "dev.csv", [""] * 4)
    with pytest.raises(HarnessError, match=r"dev\.csv: none .* of dev has a label; set task\.dev=none"):
        read(tmp_path, PAIRED, dev=dev)


def test_splits_without_a_common_label_are_refused_with_both_sets(tmp_path: Path) -> None:
    numbers = write(tmp_path / "dev.csv", ["0", "1"])
    with pytest.raises(HarnessError, match=r"labels of test \(negative, positive\) .* in train \(0, 1\)"):
        read(tmp_path, ["0.0", "1.0"] * 5, ["positive", "negative"], dev=numbers)
    dev = write(tmp_path / "dev.csv", ["x"])
    with pytest.raises(HarnessError, match=r"dev\.csv: none of the labels of dev \(x\)"):
        read(tmp_path, PAIRED, dev=dev)
    assert read(tmp_path, PAIRED, ["c", "c"], labels=["a", "b", "c"])[1].test


@pytest.mark.parametrize(
    "train",
    [
        ["0", "1", "2", "0,2"] * 3,
        ["a", "b", "a; b"] * 3,
        ["a", "b", "a|b"] * 3,
        ["0", "1", "0 1"] * 3,
        ["a;b", "b;c", "a;c"] * 3,
        ['[""a"", ""b""]', "a"] * 3,
        ["['a', 'b']", "a"] * 3,
    ],
)
def test_several_labels_in_one_field_are_refused(tmp_path: Path, train: list[str]) -> None:
    with pytest.raises(HarnessError, match=r"train\.csv, line \d+: .*\(multi-label\)"):
        read(tmp_path, train)


@pytest.mark.parametrize(
    "train",
    [["business, economy", "art"], ["a b", "c"], ["Doe, John", "Roe, Jane", "Poe, Ann"], ["[x]", "y"]],
)
def test_a_comma_alone_is_no_list(tmp_path: Path, train: list[str]) -> None:
    assert sorted(read(tmp_path, train * 4, train)[0].labels) == sorted(train)


def test_listed_labels_may_look_like_lists(tmp_path: Path) -> None:
    train = ["a", "b", "a,b"]
    assert read(tmp_path, train * 3, train, labels=train)[0].labels == train


def test_lists_of_one_label_are_read_as_the_label(tmp_path: Path) -> None:
    rows = [f'{{"text": "t {i}", "label": ["{"ab"[i % 2]}"]}}' for i in range(20)]
    (tmp_path / "t.jsonl").write_text("\n".join(rows))
    assert read(tmp_path, PAIRED, train=str(tmp_path / "t.jsonl"))[0].labels == ["a", "b"]
    assert read(tmp_path, ["['a']", '[""b""]'] * 5)[0].labels == ["a", "b"]


def test_labels_that_differ_in_case_are_kept_apart_and_shown(tmp_path: Path) -> None:
    task, splits = read(tmp_path, ["Pos", "pos", "neg"] * 4, ["neg"])
    assert task.labels == ["Pos", "neg", "pos"]
    assert any("'Pos' (4), 'pos' (4)" in warning for warning in splits.warnings)
    _, splits = read(tmp_path, ["pos", " pos", "neg"] * 4, ["neg"])
    assert Counter(gold(splits, "train")) == {"pos": 8, "neg": 4}
    assert any("'pos' has white space around it in 4 rows" in warning for warning in splits.warnings)
    _, splits = read(tmp_path, ["1.0", "1", "x"] * 4, ["x"])
    assert any("'1.0' (4), '1' (4)" in warning for warning in splits.warnings)
    assert not [w for w in read(tmp_path, [" pos", " neg"] * 4, ["pos"])[1].warnings if "white space" in w]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"a": "A"}, r"train\.csv, line 3: label 'b' is not in task\.label_names \(a\); add it"),
        ({"a": "A", "B": "x"}, "did you mean 'B'"),
        ({"x": "y"}, "label 'a' and 1 more labels is not in"),
        (["neg", "pos"], "label 'a' and 1 more labels is not in task.label_names"),
    ],
)
def test_a_label_without_a_name_is_refused(tmp_path: Path, names: Mapping[str, str], message: str) -> None:
    with pytest.raises(HarnessError, match=message):
        read(tmp_path, PAIRED, label_names=names)


def test_rows_that_cannot_be_read_are_skipped_on_request(tmp_path: Path) -> None:
    rows = [f'{{"text": "t {i}", "label": "{"ab"[i % 2]}"}}' for i in range(20)]
    rows += ['{"text": 3, "label": "a"}', '{"text": "x", "label": ["a", "b"]}', '{"text": "", "label": "a"}']
    (tmp_path / "t.jsonl").write_text("\n".join(rows))
    with pytest.raises(HarnessError, match=r"t\.jsonl, line 21: column text holds 3"):
        read(tmp_path, PAIRED, train=str(tmp_path / "t.jsonl"))
    _, splits = read(tmp_path, PAIRED, train=str(tmp_path / "t.jsonl"), on_error="skip")
    assert len(splits.train) == 20
    assert splits.card is not None
    assert splits.card.n_skipped == 3
    assert "line 22: the label (column label)" in splits.card.skipped[1]


def test_long_whole_numbers_are_not_taken_for_one_number(tmp_path: Path) -> None:
    _, splits = read(tmp_path, ["9007199254740992", "9007199254740993"] * 5, ["9007199254740992"])
    assert not any("only in their writing" in w for w in splits.warnings)


def test_a_class_is_listed_once(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match=r"task\.labels lists 'a' twice"):
        read(tmp_path, PAIRED, labels=["a", "b", "a"])


def test_a_name_that_is_too_long_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match=r"task\.train=a+: File name too long"):
        TextClassification(train="a" * 400 + ".csv").splits()
