"""Span scoring: the published definitions, worked out by hand."""

from __future__ import annotations

import subprocess
import sys

import pytest

from harness.data.text import Example, Text
from harness.errors import HarnessError
from harness.task import Prediction
from harness_tasks.span_qa.scoring import FROM_STATS, best, example_stats, f1, normalize, per_question
from harness_tasks.span_qa.task import SpanQA

ANSWERS = [
    ("an apple", "Apple.", ("apple", "apple"), 1, 1.0),
    ("The  Eiffel-Tower!", "eiffel tower", ("eiffeltower", "eiffel tower"), 0, 0.0),
    ("1939–1945", "1939-1945", ("1939–1945", "19391945"), 0, 0.0),
    ("the “Blue” door", "blue door", ("“blue” door", "blue door"), 0, 0.5),
]


@pytest.mark.parametrize(("prediction", "gold", "normalized", "exact", "overlap"), ANSWERS)
def test_only_ascii_punctuation_is_deleted_and_articles_after_it(
    prediction: str, gold: str, normalized: tuple[str, str], exact: int, overlap: float
) -> None:
    assert (normalize(prediction), normalize(gold)) == normalized
    assert best(prediction, [gold]) == (exact, overlap)


def test_the_best_gold_answer_counts() -> None:
    golds = ["river bridge", "Blue River", "bridge"]
    assert [round(f1("blue river bridge", g), 4) for g in golds] == [0.8, 0.8, 0.5]
    exact, overlap = best("blue river bridge", golds)
    assert exact == 0
    assert overlap == pytest.approx(0.8, abs=1e-12)


def test_a_literal_word_is_no_empty_answer_and_a_missing_one_counts_nothing() -> None:
    golds: dict[str, list[str]] = {"a": ["Oak"], "b": [], "c": ["Elm"]}
    scores = _scores({"a": "Oak", "b": "unanswerable"}, golds)
    assert scores["exact_match"] == pytest.approx(1 / 3)
    assert scores["f1"] == pytest.approx(1 / 3)
    assert scores["NoAns_exact"] == 0
    assert scores["HasAns_exact"] == 0.5
    assert _scores({"a": "Oak", "b": ""}, golds)["exact_match"] == pytest.approx(2 / 3)


def _scores(predictions: dict[str, str], golds: dict[str, list[str]]) -> dict[str, float]:
    values = list(per_question(predictions, golds, unanswerable=True).values())
    answered, empty = [bool(g) for g in golds.values()], [not predictions.get(key) for key in golds]
    return FROM_STATS.compute(example_stats(values, answered=answered, empty=empty, unanswerable=True))


@pytest.mark.parametrize(
    ("prediction", "gold", "by_char", "by_word"),
    [("서울에서", "서울", 0.6667, 0.0), ("1950년 6월", "1950년", 0.8333, 0.6667)],
)
def test_korquad_counts_characters(prediction: str, gold: str, by_char: float, by_word: float) -> None:
    exact, overlap = best(prediction, [gold], unit="char")
    assert exact == 0
    assert round(overlap, 4) == by_char
    assert round(f1(prediction, gold), 4) == by_word


def test_korquad_turns_quotes_and_brackets_into_blanks_and_keeps_articles() -> None:
    assert normalize("《해변의 여인》(노래) the-A", unit="char") == "해변의 여인 노래 thea"
    assert best("‘가나’", ["가나"], unit="char") == (1.0, 1.0)


def test_versions_differ_where_nothing_is_left_of_an_answer() -> None:
    assert best("the", ["a"]) == (1.0, 0.0)
    assert best("the", ["a"], unanswerable=True) == (1.0, 1.0)
    assert best("", [], unanswerable=True) == (1.0, 1.0)
    assert best("oak", [], unanswerable=True) == (0.0, 0.0)
    assert best("oak", ["the", "oak"], unanswerable=True) == (1.0, 1.0)


def _task(unanswerable: bool = False) -> SpanQA:
    task = SpanQA("toy")
    task._unanswerable = unanswerable
    return task


def _example(key: str, *golds: str) -> Example:
    answers = [{"text": g, "start": 0, "end": len(g)} for g in golds]
    return Example(key, (Text.from_string("q"), Text.from_string("Oak Elm")), {"answers": answers})


def test_the_task_refuses_a_missing_prediction() -> None:
    with pytest.raises(HarnessError, match=r"1 of 2 questions have no prediction, the first is 'b'"):
        _task().score({"a": Prediction("Oak")}, [_example("a", "Oak"), _example("b", "Elm")])


def test_scores_are_means_over_questions_of_values_that_can_be_had() -> None:
    examples = [_example("a", "Oak"), _example("b", "Oak Elm"), _example("c", "Elm")]
    predictions = {"a": Prediction("oak"), "b": Prediction("Elm"), "c": Prediction("Oak")}
    each = _task().per_example(predictions, examples)
    assert each["a"] == {"exact_match": 1.0, "f1": 1.0}
    assert each["b"]["f1"] == pytest.approx(2 / 3)
    scores = _task().score(predictions, examples)
    assert set(scores) == {"exact_match", "f1"}
    assert scores["exact_match"] == pytest.approx(1 / 3)
    assert scores["f1"] == pytest.approx(5 / 9)


def test_scores_of_v2_with_and_without_answer() -> None:
    examples = [_example("a", "Oak"), _example("b")]
    task = _task(unanswerable=True)
    right = task.score({"a": Prediction("Oak"), "b": Prediction("")}, examples)
    assert right["exact_match"] == right["f1"] == right["HasAns_exact"] == right["NoAns_exact"] == 1
    wrong = task.score({"a": Prediction("Oak"), "b": Prediction("slowly")}, examples)
    assert wrong["exact_match"] == 0.5
    assert wrong["NoAns_exact"] == 0


def test_options_outside_their_range_are_refused() -> None:
    with pytest.raises(HarnessError, match=r"task\.metric=F1"):
        SpanQA("x", metric="F1")
    with pytest.raises(HarnessError, match=r"task\.f1_unit=chars: did you mean char"):
        SpanQA("x", f1_unit="chars")
    with pytest.raises(HarnessError, match=r"task\.max_answer_tokens=0"):
        SpanQA("x", max_answer_tokens=0)


def test_reading_and_scoring_import_no_torch() -> None:
    code = (
        "import sys, harness_tasks.span_qa.task, harness_tasks.span_qa.data, harness_tasks.span_qa.scoring;"
        "sys.exit(any(m in sys.modules for m in ('torch', 'datasets', 'transformers')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
