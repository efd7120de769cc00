"""The data card, the log of a reading, and the comparison of splits."""

from __future__ import annotations

import json
from dataclasses import fields

import pytest

from harness.data.reading.card import CardExample, DataCard, make_card, quartiles
from harness.data.reading.log import ReadLog, ambiguous
from harness.data.reading.overlap import compare, text_key, treat_duplicates
from harness.data.reading.source import DataSource
from harness.data.text import Example
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
        "a.csv: given text=review; recognised format=csv",
        "train: 5 examples; 2 classes (x 3, y 2); 6 to 6 characters (quartiles 6, 6, 6)",
        "  text 0 -> x",
        "  text 1 -> y",
        "test: 1 examples; 1 classes (x 1); 3 to 3 characters (quartiles 3, 3, 3)",
        "  new -> x",
        "a.csv: 3 rows left out: no label",
    ]
    assert card.to_json()["warnings"] == []
    assert DataCard.from_json(json.loads(json.dumps(card.to_json()))).lines() == card.lines()


@pytest.mark.parametrize("damaged", [{}, {"files": 3}, {"unknown": 1}])
def test_a_damaged_card_is_reported(damaged: dict[str, object]) -> None:
    with pytest.raises(HarnessError, match="the data card of the record is damaged"):
        DataCard.from_json(damaged)


@pytest.mark.parametrize("key", [f.name for f in fields(DataCard)])
def test_every_value_of_a_stored_card_is_checked(key: str) -> None:
    log = ReadLog()
    log.given("a", "format", "csv")
    card = make_card(log, {"train": [CardExample(("a",), ("x",))]}).to_json()
    with pytest.raises(HarnessError, match="damaged"):
        DataCard.from_json({**card, key: 7.5})


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


def rows(text: str) -> list[tuple[str, str]]:
    """``a1 b2`` as the examples (a, 1) and (b, 2)."""
    return [(item[0], item[1]) for item in text.split()]


def test_duplicates_are_dropped_from_the_earlier_split_and_counted() -> None:
    log = ReadLog()
    splits = {"train": rows("a1 a1 b1 b2 c1 d1"), "dev": rows("c1 e1 e1"), "test": rows("d2 f1")}
    kept = treat_duplicates(splits, lambda e: e, "drop", log)
    assert kept == {"train": rows("a1 b1 b2"), "dev": rows("c1 e1"), "test": rows("d2 f1")}
    assert sorted(log.excluded.values()) == [1, 1, 1, 1]
    assert ("train", "the text is also in test (task.duplicates=drop)") in log.excluded


def test_duplicates_can_be_an_error() -> None:
    with pytest.raises(HarnessError, match="1 of 2 test texts are in train"):
        treat_duplicates({"train": rows("a1 b1"), "test": rows("a1 c1")}, lambda e: e, "error", ReadLog())
    with pytest.raises(HarnessError, match=r"task\.duplicates=dorp: did you mean drop"):
        treat_duplicates({}, lambda e: e, "dorp", ReadLog())


def test_copies_of_a_text_stay_on_one_side_of_a_cut() -> None:
    source = DataSource(test_fraction=0.2)
    texts = [Example(f"{i}-{copy}", (), str(i)) for i in range(20) for copy in range(3)]
    log = ReadLog()
    done = source.complete({"train": texts}, log, keys=lambda e: (e.gold, e.gold))
    sides = [{e.gold for e in done[role]} for role in ("train", "dev", "test")]
    assert all(a.isdisjoint(b) for a in sides for b in sides if a is not b)
    assert "copies of a text kept together" in log.notes[0]
    unique = [Example(str(i), (), str(i)) for i in range(20)]
    keyed = source.complete({"train": unique}, ReadLog(), keys=lambda e: (e.gold, ""))
    assert keyed == source.complete({"train": unique}, ReadLog())


def test_files_that_were_read_alike_share_a_line() -> None:
    log = ReadLog()
    for name in ("data/train.csv", "data/test.csv", "other/test.tsv"):
        log.recognised(name, "format", name[-3:])
    many = [CardExample((f"{i}",), (f"class {i}",)) for i in range(150)]
    lines = make_card(log, {"train": many}).lines()
    assert lines[0] == "data/{train.csv,test.csv}: recognised format=csv"
    assert lines[1] == "other/test.tsv: recognised format=tsv"
    assert lines[2].startswith("train: 150 examples; 150 classes (class 0 1, ")
