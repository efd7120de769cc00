"""What counts must hold: their aggregate is the task's score, on all examples and on any resample."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats
import yaml
from seqeval.metrics import f1_score as seqeval_f1
from sklearn.metrics import f1_score, matthews_corrcoef

from harness.core.paths import conf_dir
from harness.data.statistics import ExampleStats, load_metric
from harness.data.text import Example, Text
from harness.errors import HarnessError
from harness.records.parts import TaskConfig
from harness.records.predictions import read_counts, read_predictions, write_predictions
from harness.task import HasExampleStats, Prediction
from tests.helpers.cells import composed

KINDS = {yaml.safe_load(p.read_text()).get("kind") for p in conf_dir().glob("task/*.yaml")} - {None}
LABELS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
ANSWERS = ("the cat", "a dog!", "cat", "", "red bridge", "bridge")


def made(kind: str, metric: str | None = None) -> Any:
    """A task of this kind over nothing: counting and scoring need no data."""
    config = composed(f"task={kind}", f"task.name=x_{kind}", "encoder=mini_static", "strategy=full")["task"]
    config |= {"metric": metric} if metric else {}
    config |= {"characters": "words"} if metric == "character_macro_f1" else {}
    config |= {"positive": "b"} if kind == "text_classification" else {}
    task = TaskConfig.parse(config).build()
    if kind == "span_qa":
        task._unanswerable = True
    return task


def drawn(kind: str, *, n: int = 60, seed: int = 0) -> tuple[list[Example], dict[str, Prediction]]:
    """Examples with gold and predictions at random."""
    r = random.Random(seed)
    examples, predicted = [], {}
    for i in range(n):
        words = [f"w{j}" for j in range(r.randint(1, 6))]
        gold: Any
        value: Any
        if kind == "ner":
            gold, value = ([r.choice(LABELS) for _ in words] for _ in range(2))
        elif kind == "span_qa":
            gold = {
                "answers": [{"text": a, "start": 0} for a in r.sample(ANSWERS, 2) if a][: r.randint(0, 2)]
            }
            value = r.choice(ANSWERS)
        elif kind == "text_regression":
            gold, value = r.randint(0, 5) / 1.0, round(r.random() * 5, 1)
        else:
            gold, value = r.choice("aabbc"), r.choice("aabcd")
        examples.append(Example(f"e{i}", (Text.from_words(words),), gold))
        predicted[f"e{i}"] = Prediction(value)
    return examples, predicted


METRICS = [
    *(("text_classification", m) for m in ("accuracy", "macro_f1", "mcc", "f1")),
    *(("ner", m) for m in ("span_f1", "strict_span_f1", "span_precision", "span_recall", "token_accuracy")),
    *(("ner", m) for m in ("f1/PER", "f1/NONE", "character_macro_f1")),
    *(("span_qa", m) for m in ("f1", "exact_match")),
    *(("text_regression", m) for m in ("pearson", "spearman", "mse")),
]


def test_every_kind_of_task_is_among_these() -> None:
    assert {kind for kind, _ in METRICS} >= KINDS, "add the new kind of task to METRICS and to drawn()"


@pytest.mark.parametrize(("kind", "metric"), METRICS)
def test_aggregate_of_counts_is_the_score(kind: str, metric: str) -> None:
    task = made(kind, metric)
    assert isinstance(task, HasExampleStats)
    from_stats = load_metric(task.metric_from_stats)
    for seed in range(5):
        examples, predicted = drawn(kind, seed=seed)
        counts = task.example_stats(predicted, examples)
        wanted = task.score(predicted, examples)[metric]
        needed = from_stats.columns(metric, counts.names)
        assert needed
        small = counts.with_names(needed)
        assert from_stats.compute(small)[metric] == pytest.approx(wanted, abs=1e-12)
        low, high = from_stats.range(metric)
        assert low <= wanted <= high
        # any resample: each example as often as it was drawn
        draw = np.random.default_rng(seed).integers(len(examples), size=len(examples))
        weights = np.bincount(draw, minlength=len(examples))[None]
        again = [Example(f"r{i}", examples[j].texts, examples[j].gold) for i, j in enumerate(draw)]
        theirs = {f"r{i}": predicted[examples[j].id] for i, j in enumerate(draw)}
        resampled = from_stats.resampled(small.values, small.names, weights)[metric]
        assert resampled[0] == pytest.approx(task.score(theirs, again)[metric], abs=1e-12)


def test_counts_agree_with_scipy_and_scikit_learn_and_seqeval() -> None:
    examples, predicted = drawn("text_classification", n=200)
    gold, got = [e.gold for e in examples], [predicted[e.id].value for e in examples]
    task = made("text_classification")
    found = load_metric(task.metric_from_stats).compute(task.example_stats(predicted, examples))
    assert found["macro_f1"] == pytest.approx(f1_score(gold, got, average="macro"))
    assert found["mcc"] == pytest.approx(matthews_corrcoef(gold, got))
    examples, predicted = drawn("ner", n=200)
    task = made("ner")
    found = load_metric(task.metric_from_stats).compute(task.example_stats(predicted, examples))
    with np.errstate(all="ignore"):
        wanted = seqeval_f1([list(e.gold) for e in examples], [list(predicted[e.id].value) for e in examples])
    assert found["span_f1"] == pytest.approx(wanted)
    examples, predicted = drawn("text_regression", n=200)
    task = made("text_regression")
    found = load_metric(task.metric_from_stats).compute(task.example_stats(predicted, examples))
    pairs = [predicted[e.id].value for e in examples], [e.gold for e in examples]
    assert found["spearman"] == pytest.approx(scipy.stats.spearmanr(*pairs).statistic)
    assert found["pearson"] == pytest.approx(scipy.stats.pearsonr(*pairs).statistic)


@pytest.mark.parametrize(
    ("kind", "value", "said"),
    [
        ("text_classification", "a", "predicts nothing but a"),
        ("ner", None, "predicts no entity"),
        ("span_qa", "", "predicts no answer"),
    ],
)
def test_a_collapsed_model_is_told_from_its_counts(kind: str, value: Any, said: str, tmp_path: Path) -> None:
    examples, predicted = drawn(kind)
    task = made(kind)
    assert write_predictions(tmp_path, {"test": (examples, predicted)}, task=task).degenerate == ""
    flat = {e.id: Prediction(["O"] * len(e.gold) if kind == "ner" else value) for e in examples}
    assert write_predictions(tmp_path, {"test": (examples, flat)}, task=task).degenerate == said


def test_counts_are_read_as_they_were_written(tmp_path: Path) -> None:
    task = made("text_classification")
    dev, dev_predicted = drawn("text_classification", n=4, seed=3)
    test, predicted = drawn("text_classification", n=30, seed=4)
    kept = {"dev": (dev, dev_predicted), "test": (test, predicted)}
    assert write_predictions(tmp_path, kept, task=task).metric_from_stats == task.metric_from_stats
    stored = read_counts(tmp_path, tags=True)
    assert stored is not None
    assert stored.ids == [e.id for e in test]
    assert stored.tags == [[]] * 30
    wanted = task.example_stats(predicted, test).with_names(stored.counts.names)
    assert np.array_equal(stored.counts.values, wanted.values)
    assert [row["id"] for row in read_predictions(tmp_path, split="dev")] == [e.id for e in dev]
    assert "counts" not in read_predictions(tmp_path)[0]


def test_predictions_without_counts_have_none(tmp_path: Path) -> None:
    assert read_counts(tmp_path) is None
    test, predicted = drawn("text_classification", n=3)
    write_predictions(tmp_path, {"test": (test, predicted)})
    assert read_counts(tmp_path) is None
    assert json.dumps(read_predictions(tmp_path)[0]["id"]) == '"e0"'


def test_an_aggregate_that_is_none_is_refused() -> None:
    for path in ("os.system", "no.such.module.X", "x"):
        with pytest.raises(HarnessError, match=path):
            load_metric(path)
    with pytest.raises(ValueError, match="2 names"):
        ExampleStats(("a", "b"), np.zeros((3, 1)))


def test_predictions_that_differ_by_rounding_are_one_answer() -> None:
    from harness_tasks.regression.scoring import FROM_STATS, example_stats

    random = np.random.default_rng(0)
    gold = random.random(50) * 5
    constant = (np.full(50, 8.5267838) + random.integers(-1, 2, 50) * 9.5e-7).astype(np.float32)
    collapsed = example_stats(constant.tolist(), gold.tolist())
    scores = FROM_STATS.compute(collapsed)
    assert (scores["pearson"], scores["spearman"]) == (0.0, 0.0)
    assert FROM_STATS.collapsed(collapsed) == "predicts 8.527 for everything"
    resampled = FROM_STATS.resampled(collapsed.values, collapsed.names, np.ones((2, 50)))
    assert resampled["pearson"].tolist() == [0.0, 0.0]
    told_apart = example_stats((gold * 1e-3 + 2).tolist(), gold.tolist())
    assert FROM_STATS.compute(told_apart)["pearson"] == pytest.approx(1.0)
    assert FROM_STATS.collapsed(told_apart) == ""
    assert FROM_STATS.collapsed(example_stats([1.0], [2.0])) == ""
