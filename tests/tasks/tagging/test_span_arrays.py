"""Entities found in all sequences at once equal those found sequence by sequence."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness_tasks.tagging.schemes import entities, strict_entities
from harness_tasks.tagging.scoring import example_stats, surface_f1
from harness_tasks.tagging.span_arrays import LabelArrays, LabelParts, matching, spans

LABELS = ["O", *(f"{prefix}-PER" for prefix in "BIESLUM"), "B-LOC", "I-LOC", "E-LOC", "B", "I", "B-a-b"]
SEQUENCES = st.lists(st.lists(st.tuples(*[st.sampled_from(LABELS)] * 2), max_size=12), max_size=8)


@settings(max_examples=300, deadline=None)
@given(pairs=SEQUENCES, strict=st.booleans())
def test_arrays_equal_the_rule_applied_to_each_sequence(
    pairs: list[list[tuple[str, str]]], strict: bool
) -> None:
    gold, predicted = ([[pair[side] for pair in row] for row in pairs] for side in (0, 1))
    arrays = LabelArrays.of(gold, predicted)
    parts = LabelParts.of(arrays.names)
    offsets = np.cumsum([0, *map(len, gold)])
    read = strict_entities if strict else entities
    found = {}
    for name, side, labels in (("gold", arrays.gold, gold), ("predicted", arrays.predicted, predicted)):
        result = spans(side, arrays.sequence, parts, strict=strict)
        expected = [
            (kind, start + at, end + at)
            for at, row in zip(offsets, labels, strict=False)
            for kind, start, end in read(row)
        ]
        got = zip(result.type, result.start, result.end, strict=True)
        assert [(parts.types[kind], start, end) for kind, start, end in got] == expected
        found[name] = (result, expected)
    right = matching(found["gold"][0], found["predicted"][0])
    assert right.tolist() == [e in found["gold"][1] for e in found["predicted"][1]]


@settings(max_examples=100, deadline=None)
@given(pairs=SEQUENCES)
def test_statistics_count_the_entities_of_each_sequence(pairs: list[list[tuple[str, str]]]) -> None:
    gold, predicted = ([[pair[side] for pair in row] for row in pairs] for side in (0, 1))
    stats = example_stats(gold, predicted)
    for row, g, p in zip(stats.values, gold, predicted, strict=True):
        values = dict(zip(stats.names, row, strict=True))
        both = set(entities(g)) & set(entities(p))
        assert (values["correct"], values["predicted"], values["gold"]) == (
            len(both), len(entities(p)), len(entities(g)),
        )  # fmt: skip
        for kind in {e[0] for e in entities(g)}:
            assert values[f"type/{kind}/gold"] == sum(e[0] == kind for e in entities(g))
            assert values[f"type/{kind}/correct"] == sum(e[0] == kind for e in both)
        strict = set(strict_entities(g)) & set(strict_entities(p))
        assert values["strict/correct"] == len(strict)
        assert values["words/right"] == sum(a == b for a, b in zip(g, p, strict=True))


def test_a_form_is_correct_if_it_was_found_once() -> None:
    gold = [["B-PER", "O"], ["B-PER", "O"], ["B-LOC", "I-LOC"]]
    predicted = [["B-PER", "O"], ["O", "O"], ["B-LOC", "O"]]
    words = [["John", "ran"], ["John", "sat"], ["New", "York"]]
    # gold forms John and New York, predicted John and New, correct John: precision and recall 1/2
    assert surface_f1(gold, predicted, words=words) == pytest.approx(0.5)
