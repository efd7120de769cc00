"""Checks of the questions: unit of F1, contexts in several splits, the data card, duplicates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.errors import HarnessError
from harness_tasks.span_qa.scoring import best
from harness_tasks.span_qa.task import SpanQA

Row = dict[str, Any]


def row(key: str, context: str, *answers: str, title: str = "", question: str = "Which ?") -> Row:
    return {"id": key, "title": title, "question": question, "context": context, "answers": list(answers)}


def task(folder: Path, train: list[Row], test: list[Row], **options: Any) -> SpanQA:
    for name, rows in (("train", train), ("test", test)):
        (folder / f"{name}.json").write_text(json.dumps(rows))
    files: dict[str, Any] = {"train": str(folder / "train.json"), "test": str(folder / "test.json")}
    return SpanQA("x", **{"dev": "none", **files, **options})


@pytest.mark.parametrize(
    ("answer", "language"), [("서울에서", "Korean"), ("東京の塔", "Chinese or Japanese"), ("กรุงเทพ", "Thai")]
)
def test_answers_of_scripts_without_published_word_f1_need_a_unit(
    tmp_path: Path, answer: str, language: str
) -> None:
    train = [row("a", f"1950 {answer} x", answer), row("b", f"1950 {answer} x", "1950")]
    test = [row("t", f"z {answer} y", answer)]
    with pytest.raises(HarnessError, match=rf"{language}.*100%.*task\.f1_unit=char.*task\.f1_unit=word"):
        task(tmp_path, train, test).splits()
    for unit, name in (("char", "characters"), ("word", "words")):
        chosen = task(tmp_path, train, test, f1_unit=unit)
        card = chosen.splits().card
        assert chosen.f1_unit == unit
        assert card is not None
        fact = card.files["scores"]["unit of F1"]
        assert (fact.value, fact.origin) == (name, "given")


def test_words_are_the_unit_of_english_and_mixed_answers(tmp_path: Path) -> None:
    train = [row("a", "the Seoul 서울 tower opened", "Seoul 서울 tower"), row("b", "in May here", "May")]
    chosen = task(tmp_path, train, [row("t", "Oak grows", "Oak")])
    card = chosen.splits().card
    assert chosen.f1_unit == "word"
    assert card is not None
    assert card.files["scores"]["unit of F1"].origin == "recognised"


def test_units_differ_as_published_for_korean() -> None:
    assert best("서울에서", ["서울"], unit="word") == (0.0, 0.0)
    assert best("서울에서", ["서울"], unit="char")[1] == pytest.approx(2 / 3)


def test_contexts_and_articles_in_several_splits_are_counted(tmp_path: Path) -> None:
    train = [row(f"a{i}", f"Oak {i} grows", "Oak", title=f"T{i // 2}") for i in range(6)]
    test = [
        row("t0", "Oak  0\ngrows", "Oak", title="T0"),
        row("t1", "Oak 1 grows", "grows", title="T0", question="What ?"),
        row("t2", "Elm grows", "Elm", title="T2"),
        row("t3", "Fir grows", "Fir", title="T9"),
    ]
    splits = task(tmp_path, train, test).splits()
    assert "2 of 4 test contexts are in train" in splits.warnings
    assert "2 of 3 test articles are in train" in splits.warnings
    assert "1 of 4 test texts are in train" in splits.warnings  # the same question on the same context
    assert splits.card is not None
    assert splits.card.warnings == splits.warnings


def test_separate_contexts_give_no_warning(tmp_path: Path) -> None:
    train = [row(f"a{i}", f"Oak {i} grows", "Oak") for i in range(3)]
    assert task(tmp_path, train, [row("t", "Elm grows", "Elm")]).splits().warnings == []


def test_repeated_questions_are_dropped_or_refused_on_request(tmp_path: Path) -> None:
    train = [row("a", "Oak grows", "Oak"), row("b", "Oak  grows", "Oak"), row("c", "Elm grows", "Elm")]
    test = [row("t", "Elm grows", "Elm")]
    splits = task(tmp_path, train, test, duplicates="drop").splits()
    assert ([e.id for e in splits.train], [e.id for e in splits.test]) == (["a"], ["t"])
    with pytest.raises(HarnessError, match=r"task\.duplicates=error: 1 of 1 test texts are in train"):
        task(tmp_path, train, test, duplicates="error").splits()
    with pytest.raises(HarnessError, match="every question of train is also in dev or test"):
        task(tmp_path, train[2:], test, duplicates="drop").splits()


def test_the_card_describes_questions_contexts_and_answers(tmp_path: Path) -> None:
    long = "one two three four five six seven"
    train = [
        row("a", f"Oak {long}", "Oak", long, title="T"),
        row("b", f"Oak {long}", "one", title="T"),
        row("c", "Elm grows", title="U"),
    ]
    test = [row("t", "Fir grows", "Fir", title="V", question=" ")]
    splits = task(tmp_path, train, test, max_answer_tokens=6).splits(limit=1)
    card = splits.card
    assert card is not None
    assert card.splits["train"].examples == 3
    assert card.splits["train"].details == (
        "contexts: 2",
        "articles: 2",
        "questions without an answer: 1",
        "answers per question: 1 to 2",
        "words per answer: 1 to 7",
        "answers longer than max_answer_tokens=6 words: 1",
    )
    assert card.splits["train"].samples[0].startswith("Which ? | Oak one two three")
    assert any(
        "1 of 3 answers have more than 6 words" in w and "task.max_answer_tokens" in w
        for w in splits.warnings
    )
    assert "test: 1 of 1 questions contain no word" in splits.warnings
    assert "contexts: 2; articles: 2; questions without an answer: 1" in " ".join(card.lines())


def test_many_repaired_answers_are_a_warning_and_located_ones_a_note(tmp_path: Path) -> None:
    train = [
        {**row(f"a{i}", f"Oak {i} grows"), "answers": [{"text": "grows", "answer_start": 9}]}
        for i in range(9)
    ]
    splits = task(tmp_path, train, [row("t", "Elm grows", "Elm")]).splits()
    assert splits.report["answers_repaired"] == 9
    assert splits.report["answers_located"] == 1
    assert "1 answer(s) have no answer_start, located by the text" in splits.notes
    assert "9 of 10 answers are not where answer_start says; see the notes" in splits.warnings
