"""The data card, the log of a reading, and the comparison of splits."""

from __future__ import annotations

import pytest

from harness.data.reading.card import CardExample, make_card, quartiles
from harness.data.reading.log import ReadLog, ambiguous
from harness.data.reading.overlap import compare, text_key
from harness.errors import HarnessError


def test_quartiles_are_values_of_the_data() -> None:
    assert quartiles([8, 7, 6, 5, 4, 3, 2, 1]) == (1, 2, 4, 6, 8)
    assert quartiles([5]) == (5, 5, 5, 5, 5)


def test_texts_are_compared_without_their_white_space_and_normal_form() -> None:
    assert text_key("caf\u00e9  au\nlait") == text_key(" cafe\u0301 au lait")
    assert text_key("a", "b") != text_key("a b")


def test_shared_repeated_and_contradictory_texts_are_counted() -> None:
    found = compare({"train": [("a", "1"), ("a", "2"), ("b", "1")], "test": [("a", "1"), ("b", "2")]})
    assert found.warnings() == [
        "2 of 2 test texts are in train, 1 of them with another label",
        "1 texts in train have contradictory labels",
    ]
    assert found.notes() == ["1 examples in train repeat an earlier text"]
    assert compare({"train": [("a", "1")], "test": [("b", "1")]}).warnings() == []


def test_a_card_shows_facts_counts_and_examples() -> None:
    log = ReadLog()
    log.given("a.csv", "text", "review")
    log.recognised("a.csv", "format", "csv")
    log.exclude("a.csv", "no label", 3)
    examples = [CardExample((f"text {i}",), ("xy"[i % 2],)) for i in range(5)]
    card = make_card(log, {"train": examples, "test": [CardExample(("new",), ("x",))]})
    assert card.lines() == [
        "a.csv: text review (given); format csv (recognised)",
        "train: 5 examples; 2 classes (x 3, y 2); 6 to 6 characters (quartiles 6, 6, 6)",
        "  text 0 -> x",
        "  text 1 -> y",
        "test: 1 examples; 1 classes (x 1); 3 to 3 characters (quartiles 3, 3, 3)",
        "  new -> x",
        "a.csv: 3 rows left out: no label",
    ]
    assert card.to_json()["warnings"] == []


def test_a_row_that_cannot_be_read_stops_or_is_listed() -> None:
    error = HarnessError("a.csv, line 3: 1 field, expected 2")
    with pytest.raises(HarnessError, match="line 3"):
        ReadLog().skip("a.csv, line 3", error)
    log = ReadLog(on_error="skip")
    log.skip("a.csv, line 3", error)
    assert log.skipped[0].reason == "1 field, expected 2"
    with pytest.raises(HarnessError, match=r"task\.on_error=skpi: did you mean skip"):
        ReadLog(on_error="skpi")


def test_an_ambiguous_reading_shows_the_setting_of_each() -> None:
    readings = {"question": "task.text=question", "b": "task.text=b"}
    error = ambiguous("a.tsv", "which column is the text", readings)
    settings = "Set task.text=question (question), or task.text=b (b)"
    assert str(error) == f"a.tsv: which column is the text? {settings}"
