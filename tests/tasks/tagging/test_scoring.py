"""Scores of label sequences against hand-worked numbers and against seqeval."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness_tasks.tagging.scoring import f1, score_spans, score_tokens, span_counts, surface_f1

LABELS = ["O", "B-A", "I-A", "B-B", "I-B", "B-c-d", "I-c-d"]


@pytest.mark.parametrize(
    ("gold", "predicted", "lenient", "strict"),
    [
        (["B-CITY", "I-CITY", "O"], ["I-CITY", "I-CITY", "O"], 1.0, 0.0),
        (["B-A", "I-A", "O", "B-B"], ["B-A", "I-B", "O", "B-B"], 0.4, 0.5),
    ],
)
def test_both_readings_by_name(gold: list[str], predicted: list[str], lenient: float, strict: float) -> None:
    scores = score_spans([gold], [predicted])
    assert scores["span_f1"] == pytest.approx(lenient)
    assert scores["strict_span_f1"] == pytest.approx(strict)


def test_a_label_unknown_to_training_counts_as_missed() -> None:
    scores = score_spans([["B-PER", "O"], ["B-LOC", "O"]], [["B-PER", "O"], ["O", "O"]])
    assert (scores["span_precision"], scores["span_recall"]) == (1.0, 0.5)
    assert scores["span_f1"] == pytest.approx(0.6667, abs=1e-4)
    assert (scores["f1/LOC"], scores["f1/PER"]) == (0.0, 1.0)


def test_hand_worked_conlleval() -> None:
    # gold: ORG 0-1, MISC 2-3, PER 5-7 / LOC 0-1, LOC 1-2     predicted: ORG 0-1, MISC 2-4, PER 5-7 / LOC 0-2
    gold = [["B-ORG", "O", "B-MISC", "O", "O", "B-PER", "I-PER"], ["B-LOC", "B-LOC"]]
    predicted = [["I-ORG", "O", "B-MISC", "I-MISC", "O", "I-PER", "I-PER"], ["B-LOC", "I-LOC"]]
    scores = score_spans(gold, predicted)
    assert scores["span_precision"] == 2 / 4
    assert scores["span_recall"] == 2 / 5
    assert scores["span_f1"] == pytest.approx(4 / 9)
    assert scores["token_accuracy"] == 5 / 9
    assert scores["strict_span_f1"] == 0.0
    assert {k: v for k, v in scores.items() if "/" in k} == {
        "f1/LOC": 0,
        "f1/MISC": 0,
        "f1/ORG": 1,
        "f1/PER": 1,
    }


def test_counts_by_example_add_up() -> None:
    gold = [["B-A", "O", "B-B"], ["O"], ["B-A", "I-A"]]
    predicted = [["B-A", "B-A", "O"], ["B-B"], ["B-A", "I-A"]]
    counts = span_counts(gold, predicted)
    assert counts.tolist() == [[1, 2, 2], [0, 1, 0], [1, 1, 1]]
    assert score_spans(gold, predicted)["span_f1"] == f1(*counts.sum(axis=0))


def test_surface_forms_count_once() -> None:
    words = [["Bo", "saw", "Bo"], ["Ana", "Li", "saw"], ["Bo", "ran", "x"]]
    gold = [["B-P", "O", "B-P"], ["B-P", "I-P", "O"], ["B-G", "O", "O"]]
    predicted = [["B-P", "O", "O"], ["B-P", "O", "O"], ["B-G", "O", "O"]]
    # gold forms: P Bo, P Ana Li, G Bo; predicted: P Bo, P Ana, G Bo; correct: P Bo, G Bo
    assert surface_f1(gold, predicted, words=words) == pytest.approx(2 / 3)
    # the form is right but never at its place
    assert surface_f1([["B-P", "O"]], [["O", "B-P"]], words=[["Bo", "Bo"]]) == 0.0


def test_nothing_to_find_is_zero_and_never_nan() -> None:
    scores = score_spans([["O", "O"]], [["O", "O"]])
    assert scores == {
        "span_f1": 0.0,
        "span_precision": 0.0,
        "span_recall": 0.0,
        "strict_span_f1": 0.0,
        "token_accuracy": 1.0,
    }
    assert score_tokens([], []) == {"token_accuracy": 0.0}
    assert span_counts([], []).shape == (0, 3)


def test_unequal_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="differ in length"):
        score_tokens([["O", "O"]], [["O"]])


@st.composite
def gold_and_predicted(draw: st.DrawFn) -> tuple[list[list[str]], list[list[str]]]:
    lengths = draw(st.lists(st.integers(1, 8), min_size=1, max_size=5))
    label = st.sampled_from(LABELS)
    sides = [[[draw(label) for _ in range(n)] for n in lengths] for _ in range(2)]
    return sides[0], sides[1]


@settings(max_examples=100, deadline=None)
@given(gold_and_predicted())
def test_equal_to_seqeval_to_the_last_digit(pair: tuple[list[list[str]], list[list[str]]]) -> None:
    metrics = pytest.importorskip("seqeval.metrics")
    scheme = pytest.importorskip("seqeval.scheme").IOB2
    gold, predicted = pair
    scores = score_spans(gold, predicted)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        strict = {"mode": "strict", "scheme": scheme}
        assert scores["span_f1"] == metrics.f1_score(gold, predicted)
        assert scores["span_precision"] == metrics.precision_score(gold, predicted)
        assert scores["span_recall"] == metrics.recall_score(gold, predicted)
        assert scores["token_accuracy"] == metrics.accuracy_score(gold, predicted)
        by_type = metrics.f1_score(gold, predicted, average=None)
        kinds = {k: v for k, v in scores.items() if k.startswith("f1/")}
        assert np.asarray(by_type).tolist() == list(kinds.values())
        if any(x.startswith("B") for s in [*gold, *predicted] for x in s):  # seqeval cannot stack nothing
            assert scores["strict_span_f1"] == metrics.f1_score(gold, predicted, **strict)
