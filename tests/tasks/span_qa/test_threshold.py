"""The threshold of "no answer": the choice on dev, its effect on predictions, cells and ensembles."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.core.paths import mini_dir
from harness.data.text import Example, Text
from harness.ensemble import combine
from harness.errors import HarnessError
from harness.records.predictions import read_predictions
from harness.records.record import Record, read_record
from harness.task import FitsOnDev, Prediction, fitted_part
from harness.training.run import run_cell
from harness_tasks.span_qa.scoring import apply_threshold, best_threshold
from harness_tasks.span_qa.task import SpanQA
from tests.helpers.cells import make_cell

Question = tuple[float | None, float, float]
"""Null margin, score with the best span, score without an answer."""


def total(questions: list[Question], threshold: float) -> float:
    return sum(
        without if margin is None or margin > threshold else answered
        for margin, answered, without in questions
    )


@pytest.mark.parametrize(
    ("questions", "threshold"),
    [
        ([(-1.0, 1.0, 0.0), (3.0, 0.0, 1.0)], 1.0),
        ([(-1.0, 1.0, 0.0), (3.0, 1.0, 0.0)], 4.0),  # always answer
        ([(-1.0, 0.0, 1.0), (3.0, 0.0, 1.0)], -2.0),  # never answer
        ([(-1.0, 1.0, 0.0), (1.0, 0.0, 0.0), (3.0, 0.0, 1.0)], 0.0),  # the lowest of equally good cuts
        ([(2.0, 1.0, 0.0), (2.0, 0.0, 1.0), (2.0, 0.0, 1.0)], 1.0),  # equal margins go together
        ([(None, 0.0, 1.0), (math.inf, 1.0, 0.0), (0.0, 0.5, 0.0)], 1.0),
        ([(None, 0.0, 1.0)], 0.0),
        ([], 0.0),
    ],
)
def test_threshold_with_the_best_score(questions: list[Question], threshold: float) -> None:
    columns = [list(column) for column in zip(*questions, strict=True)] or [[], [], []]
    assert best_threshold(*columns) == threshold


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.none() | st.sampled_from([-2.0, -0.5, 0.0, 1.0, 5.0]),
            st.sampled_from([0.0, 0.4, 1.0]),
            st.sampled_from([0.0, 1.0]),
        ),
        min_size=1,
        max_size=7,
    )
)
def test_no_other_threshold_is_better_and_lower_ones_are_worse(questions: list[Question]) -> None:
    threshold = best_threshold(*(list(column) for column in zip(*questions, strict=True)))
    reached = total(questions, threshold)
    for other in (-3.0, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0, 5.0, 6.0):
        assert total(questions, other) <= reached + 1e-9
    below = [m for m, _, _ in questions if m is not None and m < threshold]
    if below:
        assert total(questions, max(below) - 1e-6) < reached - 1e-9


def prediction(margin: float | None, *texts: str) -> Prediction:
    nbest = [
        {"text": t, "start": 4 * i, "end": 4 * i + len(t), "score": 1.0 - i} for i, t in enumerate(texts)
    ]
    return Prediction("old", (), {"nbest": nbest, "null_margin": margin, "start": 9, "end": 9})


def test_a_threshold_decides_between_the_best_span_and_no_answer() -> None:
    shown = apply_threshold(prediction(0.5, "Oak", "Elm"), 0.5)
    assert (shown.value, shown.extra["start"], shown.extra["end"]) == ("Oak", 0, 3)
    hidden = apply_threshold(prediction(0.5, "Oak", "Elm"), 0.49)
    assert (hidden.value, hidden.extra["start"], hidden.extra["end"]) == ("", None, None)
    assert hidden.extra["nbest"] == shown.extra["nbest"]
    assert apply_threshold(prediction(None), 100.0).value == ""
    plain = Prediction("Oak")
    assert apply_threshold(plain, -100.0) is plain


def example(key: str, *golds: str) -> Example:
    answers = [{"text": g, "start": 0, "end": len(g)} for g in golds]
    return Example(key, (Text.from_string("q"), Text.from_string("Oak Elm")), {"answers": answers})


@pytest.mark.parametrize(("metric", "threshold"), [("f1", 2.0), ("exact_match", -0.5)])
def test_the_task_fits_its_own_metric(metric: str, threshold: float) -> None:
    examples = [example("a", "Oak"), example("b", "Oak Elm Ash"), example("c"), example("d")]
    task = SpanQA("x", metric=metric)
    task._unanswerable = task._dev_has_both = True
    predictions = {
        "d": prediction(3.0, "Elm"),
        "b": prediction(1.0, "Oak Elm"),  # F1 0.8, no exact match
        "a": prediction(-1.0, "oak"),
        "c": prediction(0.0, "Elm") if metric == "exact_match" else prediction(3.0, "Elm"),
    }
    fitted = task.fit_on_dev(predictions, examples)
    assert fitted == {"null_threshold": threshold}
    applied = task.apply_fitted(predictions, fitted)
    assert [applied[k].value for k in "acd"] == ["oak", "", ""]
    assert applied["b"].value == ("Oak Elm" if metric == "f1" else "")
    with pytest.raises(HarnessError, match="1 of 4 questions have no prediction"):
        task.fit_on_dev({k: p for k, p in predictions.items() if k != "b"}, examples)


def test_values_of_the_option() -> None:
    assert SpanQA("x").fits
    assert SpanQA("x", null_threshold=-1).null_threshold == -1.0
    for value in ("automatic", math.nan, math.inf, None):
        with pytest.raises(HarnessError, match=r"task\.null_threshold=.*must be auto .*or a finite number"):
            SpanQA("x", null_threshold=value)  # type: ignore[arg-type]


def write(path: Path, name: str, n: int, *, unanswerable: bool = True) -> None:
    """The first questions of the mini world; every tenth is asked about the context of the one before."""
    content = json.loads((mini_dir() / "world" / "data" / "qa" / f"{name}.json").read_text(encoding="utf-8"))
    paragraphs = [p for article in content["data"] for p in article["paragraphs"]][:n]
    rows = []
    for i, paragraph in enumerate(paragraphs):
        (qa, *_), other = paragraph["qas"], unanswerable and i % 10 == 9
        context = paragraphs[i - 1]["context"] if other else paragraph["context"]
        answers = [] if other else qa["answers"]
        rows.append({"id": qa["id"], "context": context, "question": qa["question"], "answers": answers})
    (path / f"{name}.json").write_text(json.dumps(rows))


def run(folder: Path, seed: int = 0, **options: Any) -> tuple[Path, Record]:
    files = [f"task.{name}={folder / name}.json" for name in ("train", "dev", "test")]
    more = ["task=span_qa", "encoder=mini_static", "strategy=frozen", "trainer.epochs=2", "logger=csv"]
    cell = make_cell(folder, *more, *files, f"seed={seed}", *(f"{k}={v}" for k, v in options.items()))
    run_cell(cell)
    return cell.folder, read_record(cell.folder)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for name, n in (("train", 60), ("dev", 30), ("test", 30)):
        write(tmp_path, name, n)
    return tmp_path


def thresholded(folder: Path, split: str) -> set[bool]:
    """Whether each stored prediction is what the record's threshold makes of its scores."""
    threshold = read_record(folder).fitted["null_threshold"]
    rows = read_predictions(folder, split=split)
    return {
        apply_threshold(Prediction(r["prediction"], (), r["extra"]), threshold).value == r["prediction"]
        for r in rows
    }


def test_a_cell_and_an_ensemble_choose_on_dev_and_apply_to_test(data: Path) -> None:
    (one, record), (other, _) = run(data), run(data, seed=1)
    assert set(record.fitted) == {"null_threshold"}
    assert any(
        note.startswith("null_threshold: ") and note.endswith("chosen on dev") for note in record.notes
    )
    ensemble, joined = combine([one, other])
    assert joined.fitted.keys() == {"null_threshold"}
    assert any(r["prediction"] for r in read_predictions(one, split="test"))
    files = {name: str(data / f"{name}.json") for name in ("train", "dev", "test")}
    task = SpanQA("span_qa", **files)  # type: ignore[arg-type]
    splits = dict(task.splits().items())
    for folder in (one, other, ensemble):
        stored = read_record(folder)
        for split in ("dev", "test"):
            assert thresholded(folder, split) == {True}
            rows = read_predictions(folder, split=split)
            predicted = {r["id"]: Prediction(r["prediction"], (), r["extra"]) for r in rows}
            scores = task.score(predicted, splits[split])
            assert scores == pytest.approx(getattr(stored, split))
            margins = {r["extra"]["null_margin"] for r in rows}
            if split == "dev":  # no other threshold is better there
                for threshold in margins | {min(margins) - 1}:
                    tried = task.apply_fitted(predicted, {"null_threshold": threshold})
                    assert task.score(tried, splits[split])["f1"] <= scores["f1"] + 1e-9
    curve = max(one.rglob("metrics.csv")).read_text()
    assert "dev/f1" in curve
    assert "dev/HasAns_f1" not in curve  # the metrics of a fitted task are known only for all of dev


def test_a_fixed_threshold_and_data_with_answers_fit_nothing(data: Path) -> None:
    _, record = run(data, **{"task.null_threshold": 0.0})
    assert record.fitted == {}
    for name, n in (("train", 60), ("dev", 30)):
        write(data, name, n, unanswerable=False)
    files = {name: str(data / f"{name}.json") for name in ("train", "dev", "test")}
    task = SpanQA("span_qa", **files)  # type: ignore[arg-type]
    splits = task.splits()
    assert isinstance(task, FitsOnDev)
    assert fitted_part(task) is None
    assert task.null_threshold == 0.0
    assert any("task.null_threshold=auto: 0.0 is used, because dev" in w for w in splits.warnings)


def test_an_unlabelled_test_split_is_predicted_with_the_threshold_of_dev(data: Path) -> None:
    rows = json.loads((data / "test.json").read_text())
    for row in rows:
        del row["answers"]
    (data / "test.json").write_text(json.dumps(rows))
    folder, record = run(data)
    assert (record.test, record.dev != {}, len(record.fitted)) == ({}, True, 1)
    assert len(read_predictions(folder, split="test")) == len(rows)
    assert thresholded(folder, "test") == {True}
    assert any("predicted and not scored" in warning for warning in record.warnings)
