"""Stored predictions of splits without gold values."""

from __future__ import annotations

from pathlib import Path

from harness.data.text import Example
from harness.records.predictions import read_predictions, write_predictions
from harness.task import Prediction, is_unlabelled
from harness_tasks.classification.task import TextClassification


def test_an_unlabelled_split_is_stored_without_counts(tmp_path: Path) -> None:
    task = TextClassification(train="unused")
    task.labels = ["a", "b"]
    dev, test = [Example("dev-0", (), "a")], [Example("test-0", (), None), Example("test-1", (), None)]
    predictions = {e.id: Prediction("a", (1.0, 0.0)) for e in (*dev, *test)}
    assert (is_unlabelled(dev), is_unlabelled(test), is_unlabelled([])) == (False, True, False)
    summary = write_predictions(tmp_path, {"dev": (dev, predictions), "test": (test, predictions)}, task=task)
    assert summary.degenerate == ""
    rows = read_predictions(tmp_path, split="test")
    assert [(row["gold"], row["prediction"]) for row in rows] == [(None, "a"), (None, "a")]
