"""``harness show`` prints the scores of each class, from the stored statistics."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from harness.cli.per_class import by_class
from harness.cli.show import describe
from harness.data.text import Example, Text
from harness.records.predictions import write_predictions
from harness.records.record import Record
from harness.task import Prediction
from harness_tasks.classification.task import TextClassification
from harness_tasks.tagging.task import Tagging
from tests.helpers.boards import labels, write


def table(folder: Path) -> dict[str, list[float | None]]:
    lines = by_class(folder)[2:]
    return {n: [None if v == "-" else float(v) for v in values] for n, *values in map(str.split, lines)}


def store(folder: Path, task: TextClassification | Tagging, pairs: list[tuple[object, object]]) -> Path:
    examples = [Example(str(i), (Text.from_string("a b c"),), gold) for i, (gold, _) in enumerate(pairs)]
    predictions = {str(i): Prediction(value) for i, (_, value) in enumerate(pairs)}
    write_predictions(folder, {"test": (examples, predictions)}, task=task)
    return folder


def test_class_scores_match_manual_values(tmp_path: Path) -> None:
    store(tmp_path, TextClassification(), [("x", "x"), ("x", "y"), ("x", "x"), ("y", "y"), ("z", "y")])
    assert table(tmp_path) == {
        "x": [0.8, 1.0, 0.6667, 3, 2], "y": [0.5, 0.3333, 1.0, 1, 3], "z": [0.0, None, 0.0, 1, 0],
    }  # fmt: skip
    assert by_class(tmp_path)[0] == "  test by class:"
    assert [line.split()[0] for line in by_class(tmp_path)[2:]] == ["x", "y", "z"]


def test_entity_and_label_scores_match_manual_values(tmp_path: Path) -> None:
    spans = [
        (["B-PER", "I-PER", "O"], ["B-PER", "I-PER", "O"]),
        (["B-PER", "O", "B-LOC"], ["O", "O", "B-LOC"]),
    ]
    (tmp_path / "spans").mkdir()
    (tmp_path / "plain").mkdir()
    store(tmp_path / "spans", Tagging(name="t", scheme="iob2"), list(spans))
    assert table(tmp_path / "spans") == {"PER": [0.6667, 1.0, 0.5, 2, 1], "LOC": [1.0, 1.0, 1.0, 1, 1]}
    store(tmp_path / "plain", Tagging(name="t", scheme="none"), [(["N", "V", "N"], ["N", "N", "N"])])
    assert table(tmp_path / "plain") == {"N": [0.8, 0.6667, 1.0, 2, 3], "V": [0.0, None, 0.0, 1, 0]}


def test_no_table_without_classes_and_a_damaged_file_is_reported(tmp_path: Path) -> None:
    right = np.array([True, False])
    cell: Record = write(tmp_path, [1.0, 2.0], [1.0, 3.0], right)
    folder = next(tmp_path.glob("*/*/*/*/seed-0"))
    assert by_class(folder) == []
    assert not any("by class" in line for line in describe(folder))
    (folder / "predictions.parquet").write_bytes(b"PAR1")
    assert "cannot be read" in "\n".join(describe(folder))
    (folder / "predictions.parquet").unlink()
    assert by_class(folder) == []
    assert cell.seed == 0


def test_show_prints_the_classes_after_the_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labels(tmp_path, 0.5)
    folder = next(tmp_path.glob("*/*/*/*/seed-0"))
    pairs: list[tuple[object, object]] = [("x", "x"), ("y", "x")]
    store(folder, TextClassification(), pairs)
    shown = describe(folder)
    at = shown.index("  test by class:")
    assert shown[at + 2].split() == ["x", "0.6667", "0.5000", "1.0000", "1", "2"]
    assert shown[-1].startswith("  files: ")
