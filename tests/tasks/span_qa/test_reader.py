"""ReadOptions questions: formats, offsets, splits by article."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from harness.data.reading import hub
from harness.data.reading.tables import DataTable
from harness.data.text import Example
from harness.errors import HarnessError
from harness.task import Splits, Task
from harness_tasks.span_qa.data import find_files
from harness_tasks.span_qa.offsets import locate_answer
from harness_tasks.span_qa.questions import build
from harness_tasks.span_qa.reader import QuestionReader, read_questions
from harness_tasks.span_qa.task import SpanQA


def qa(key: str, *answers: tuple[str, int], **more: Any) -> dict[str, Any]:
    given = [{"text": t, "answer_start": s} for t, s in answers]
    return {"id": key, "question": f"What is {key} ?", "answers": given, **more}


def squad(*articles: list[tuple[str, list[dict[str, Any]]]], version: str = "1.1") -> dict[str, Any]:
    """Articles of (context, questions) paragraphs."""
    return {
        "version": version,
        "data": [
            {"title": f"T{i}", "paragraphs": [{"context": c, "qas": qas} for c, qas in paragraphs]}
            for i, paragraphs in enumerate(articles)
        ],
    }


def write(path: Path, content: Any) -> Path:
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def one(tmp_path: Path, context: str, *answers: tuple[str, int]) -> tuple[Example, Counter[str]]:
    reader = QuestionReader()
    path = write(tmp_path / "one.json", squad([(context, [qa("q", *answers)])]))
    (example,) = build(reader.read([path]))
    return example, reader.repaired


def many(n: int, *, prefix: str = "q") -> dict[str, Any]:
    return squad(
        *(
            [
                (f"{prefix} Context {i} part {p} .", [qa(f"{prefix}-{i}-{p}", ("Context", len(prefix) + 1))])
                for p in range(3)
            ]
            for i in range(n)
        )
    )


def placed(context: str, answer: str, start: int | None) -> tuple[int, str] | None:
    located = locate_answer(context, answer, start)
    return located and (located.start, located.how)


def span(example: Example) -> tuple[int, int]:
    answer = example.gold["answers"][0]
    return answer["start"], answer["end"]


def test_leading_blanks_of_a_context_stay(tmp_path: Path) -> None:
    context = "  In 1887 the tower rose."
    example, repaired = one(tmp_path, context, ("1887", 5))
    assert example.texts[1].text == context
    assert span(example) == (5, 9)
    assert not repaired


def test_an_answer_beside_its_place_is_moved_and_counted(tmp_path: Path) -> None:
    articles = [
        [("  In 1887 the tower rose.", [qa("q", ("1887", 3))])],
        [("Oak", [qa("r", ("Oak", 0))])],
        [("Elm", [qa("s", ("Elm", 0))])],
    ]
    splits = SpanQA("x", path=str(write(tmp_path / "d14.json", squad(*articles)))).splits()
    examples = {e.id: e for _, part in splits.items() for e in part}
    assert span(examples["q"]) == (5, 9)
    assert splits.report["answers_repaired"] == 1
    assert any("1 answer(s) repaired: moved to the only occurrence" in n for n in splits.notes)


@pytest.mark.parametrize("flat", [False, True])
def test_offsets_in_utf16_units(tmp_path: Path, flat: bool) -> None:
    context = "Go 🚀🚀 team Kiwi!"
    assert len(context) == 16
    if flat:
        row: dict[str, Any] = {"id": "q", "question": "Which team?", "context": context}
        row |= {"answers": [{"text": "Kiwi", "answer_start": 13}]}
        path = write(tmp_path / "flat.jsonl", row)
        assert "\\ud83d" in path.read_text()
        reader = QuestionReader()
        (example,) = build(reader.read([path]))
        repaired = reader.repaired
    else:
        example, repaired = one(tmp_path, context, ("Kiwi", 13))
    assert span(example) == (11, 15)
    assert example.texts[1].text == context
    assert example.texts[1].text[11:15] == "Kiwi"
    assert sum(repaired.values()) == 1


def test_utf16_counting_tells_occurrences_apart() -> None:
    context = "🚀 ab ab ab"
    assert placed(context, "ab", 5) == (5, "exact")
    assert placed(context, "ab", 6) == (5, "offsets counted in UTF-16 units")
    assert placed(context, "ab", 9) == (8, "offsets counted in UTF-16 units")


def test_carriage_returns_inside_a_context_stay(tmp_path: Path) -> None:
    example, repaired = one(tmp_path, "line\r\nAnswer here", ("Answer", 6))
    assert span(example) == (6, 12)
    assert example.texts[1].text[6:12] == "Answer"
    assert not repaired


def test_the_nearest_of_several_occurrences_within_reach_is_meant() -> None:
    context = "red fox, blue fox, old fox"
    assert placed(context, "fox", 15) == (14, "moved to the nearest occurrence")
    assert locate_answer(context, "fox", 9) is None  # 5 either side
    assert locate_answer(context, "fox", 200) is None
    assert placed(context, "fox", -1) == (4, "moved to the nearest occurrence")
    assert placed(context, "blue", -7) == (9, "moved to the only occurrence")
    assert locate_answer(context, "cat", 4) is None


def test_an_answer_that_cannot_be_placed_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(
        HarnessError,
        match=r"one\.json, article 1 \(T0\), paragraph 1, question 'q'.*does not occur in the context",
    ):
        one(tmp_path, "Oak grows slowly.", ("Elm", 0))
    with pytest.raises(HarnessError, match=r"question 'q': answer 'Oak' is not at answer_start=40.*2 times"):
        one(tmp_path, "Oak and Oak, then nothing that is like it.", ("Oak", 40))


def test_plausible_answers_are_never_gold(tmp_path: Path) -> None:
    plausible = [{"text": "slowly", "answer_start": 10}]
    qas = [
        qa("a", ("Oak", 0), is_impossible=False),
        qa("b", is_impossible=True, plausible_answers=plausible),
    ]
    path = write(tmp_path / "v2.json", squad([("Oak grows slowly.", qas)], version="v2.0"))
    a, b = build(read_questions([path]))
    assert a.gold == {"answers": [{"text": "Oak", "start": 0, "end": 3}]}
    assert b.gold == {"answers": []}
    assert "answer=none" in b.tags


def test_an_empty_answer_and_contradictions_are_refused(tmp_path: Path) -> None:
    bad = {
        "an answer is empty": qa("q", ("", 0)),
        "is_impossible is True but it has 1 answer": qa("q", ("Oak", 0), is_impossible=True),
        "is_impossible is False but it has 0 answer": qa("q", is_impossible=False),
        "answer_start='first': expected a whole number": qa("q", ("Oak", "first")),  # type: ignore[arg-type]
        "is_impossible='maybe': expected true or false": qa("q", ("Oak", 0), is_impossible="maybe"),
    }
    for i, (message, question) in enumerate(bad.items()):
        path = write(tmp_path / f"{i}.json", squad([("Oak grows.", [question])]))
        with pytest.raises(HarnessError, match=message) as e:
            read_questions([path])
        assert f"{i}.json" in str(e.value)
    blank = write(tmp_path / "blank.json", squad([("  ", [qa("q", ("Oak", 0))])]))
    with pytest.raises(HarnessError, match=r"blank\.json, article 1 .*no words in the context"):
        read_questions([blank])


def test_an_id_that_comes_twice_is_refused_with_both_places(tmp_path: Path) -> None:
    content = squad([("Oak", [qa("q7", ("Oak", 0))])], [("Elm", [qa("q7", ("Elm", 0))])])
    with pytest.raises(HarnessError, match=r"article 2 .*'q7' was already used \(.*article 1"):
        read_questions([write(tmp_path / "twice.json", content)])


def test_files_of_no_known_format_are_refused(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match=r"rows\.jsonl: no column 'question'"):
        read_questions([write(tmp_path / "rows.jsonl", {"id": "1", "ask": "?", "context": "c"})])
    broken = tmp_path / "broken.json"
    broken.write_text('{"data": [')
    with pytest.raises(HarnessError, match=r"broken\.json"):
        read_questions([broken])
    with pytest.raises(HarnessError, match="contains no questions"):
        read_questions([write(tmp_path / "none.json", {"data": [{"paragraphs": []}], "version": "1.1"})])


def test_flat_rows_with_both_shapes_of_answers(tmp_path: Path) -> None:
    rows = [
        {
            "id": 1,
            "title": "T",
            "context": "Oak grows.",
            "question": "Who?",
            "answers": {"text": ["Oak"], "answer_start": [0]},
        },
        {
            "id": 2,
            "title": "T",
            "context": "Oak grows.",
            "question": "Why?",
            "answers": {"text": [], "answer_start": []},
        },
    ]
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(json.dumps(r) for r in rows))
    first, second = build(read_questions([path]))
    assert (first.id, span(first)) == ("1", (0, 3))
    assert second.gold == {"answers": []}
    assert first.texts[1] is second.texts[1]


def test_questions_over_one_context_share_one_text(tmp_path: Path) -> None:
    path = write(tmp_path / "s.json", squad([("Oak grows.", [qa("a", ("Oak", 0)), qa("b", ("grows", 4))])]))
    a, b = build(read_questions([path]))
    assert a.texts[1] is b.texts[1]


def check_apart(splits: Splits) -> None:
    contexts = [{e.texts[1].text for e in part} for _, part in splits.items()]
    assert not contexts[0] & contexts[1]
    assert not contexts[0] & contexts[2]
    assert not contexts[1] & contexts[2]


def test_missing_splits_are_cut_by_article_the_same_each_time(tmp_path: Path) -> None:
    path = write(tmp_path / "all.json", many(20))
    splits = SpanQA("x", path=str(path)).splits()
    assert [len(part) for _, part in splits.items()] == [42, 6, 12]
    for _, part in splits.items():
        assert all(n == 3 for n in Counter(e.id.split("-")[1] for e in part).values())
    check_apart(splits)
    assert sum("by article, seed 13" in n for n in splits.notes) == 2
    again = SpanQA("x", path=str(tmp_path)).splits()
    assert [e.id for e in again.test] == [e.id for e in splits.test]


def test_articles_that_share_a_context_stay_together(tmp_path: Path) -> None:
    content = many(12)
    for i in (3, 8, 10):
        content["data"][i]["paragraphs"][0]["context"] = "q Context shared ."
    check_apart(SpanQA("x", path=str(write(tmp_path / "all.json", content))).splits())


def test_the_published_dev_set_serves_as_test(tmp_path: Path) -> None:
    write(tmp_path / "train-v1.1.json", many(10))
    write(tmp_path / "dev-v1.1.json", many(4, prefix="d"))
    files = {"train": ["train-v1.1.json"], "dev": ["dev-v1.1.json"], "test": []}
    splits = SpanQA("squad", path=str(tmp_path), files=files).splits()
    assert [len(part) for _, part in splits.items()] == [27, 3, 12]
    assert all(e.id.startswith("d-") for e in splits.test)
    assert any(n.startswith("test: the published dev set") for n in splits.notes)
    config = {"path": str(tmp_path), "files": files, "name": "squad", "train": None}
    assert {k: p.name for k, p in find_files(config, tmp_path).items()} == {
        "train": "train-v1.1.json",
        "dev": "dev-v1.1.json",
    }


def test_dev_can_be_done_without(tmp_path: Path) -> None:
    train, test = write(tmp_path / "a.json", many(5)), write(tmp_path / "b.json", many(2, prefix="t"))
    splits = SpanQA("x", train=str(train), dev="none", test=str(test)).splits()
    assert [len(part) for _, part in splits.items()] == [15, 0, 6]


def test_limit_takes_questions_and_knows_of_unanswerable_ones_beyond_it(tmp_path: Path) -> None:
    content = many(10)
    content["data"][9]["paragraphs"][2]["qas"] = [qa("no", is_impossible=True)]
    task = SpanQA("x", path=str(write(tmp_path / "all.json", content)))
    splits = task.splits(limit=2)
    assert [len(part) for _, part in splits.items()] == [2, 2, 2]
    assert task.unanswerable


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match=r"no data: give task\.train"):
        SpanQA("x").splits()
    with pytest.raises(HarnessError, match="no data"):
        find_files({"name": "mine"}, tmp_path)
    single = write(tmp_path / "single.json", squad([("Oak", [qa("q", ("Oak", 0))])]))
    with pytest.raises(HarnessError, match=r"test cannot be cut from train.*task\.test=FILE"):
        SpanQA("x", path=str(single)).splits()
    with pytest.raises(HarnessError, match=r"task\.train: no training data"):
        SpanQA("x", test=str(single)).splits()
    with pytest.raises(HarnessError, match="no such"):
        SpanQA("x", path=str(tmp_path / "nowhere")).splits()


def test_hub_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    def rows(prefix: str, n: int) -> list[dict[str, Any]]:
        return [
            {
                "id": f"{prefix}{i}",
                "title": f"T{i // 2}",
                "context": f"{prefix} Oak {i}",
                "question": "Who?",
                "answers": {"text": ["Oak"], "answer_start": [len(prefix) + 1]}
                if i
                else {"text": [], "answer_start": []},
            }
            for i in range(n)
        ]

    asked: dict[str, Any] = {}

    def load(dataset: str, splits: Any = None, **options: Any) -> dict[str, DataTable]:
        asked.update(dataset=dataset, splits=splits, **options)
        tables = {"train": rows("t", 20), "dev": rows("v", 4)}
        return {
            k: DataTable.of_rows(k, list(r[0]), r, list(range(len(r))), unit="row") for k, r in tables.items()
        }

    monkeypatch.setattr(hub, "load_hub", load)
    task = SpanQA(
        "squad_v2", hub={"id": "rajpurkar/squad_v2", "splits": {"train": "train", "dev": "validation"}}
    )
    splits = task.splits()
    assert asked["dataset"] == "rajpurkar/squad_v2"
    assert [len(part) for _, part in splits.items()] == [18, 2, 4]
    assert task.unanswerable
    assert isinstance(task, Task)
    assert find_files({"name": "s", "hub": "rajpurkar/squad"}, Path()) == {}
    with pytest.raises(HarnessError, match=r"task\.hub\.ident: unknown key"):
        SpanQA("x", hub={"ident": "a/b"}).splits()


def test_xquad_offsets_are_exact_and_no_context_is_in_two_splits() -> None:
    shared = os.environ.get("HARNESS_TEST_DATA")
    if not shared:
        pytest.skip("HARNESS_TEST_DATA is not set")
    splits = SpanQA("xquad_en", path=f"{shared}/data/xquad_en").splits()
    examples = [e for _, part in splits.items() for e in part]
    content = json.loads(Path(f"{shared}/data/xquad_en/xquad.en.json").read_text(encoding="utf-8"))
    paragraphs = [p for article in content["data"] for p in article["paragraphs"]]
    independent = {
        q["id"]: (p["context"], q["question"], [(a["text"], a["answer_start"]) for a in q["answers"]])
        for p in paragraphs
        for q in p["qas"]
    }
    assert len(examples) == len(independent) == 1190
    assert len({context for context, _, _ in independent.values()}) == 240
    for e in examples:
        answers = [(a["text"], a["start"]) for a in e.gold["answers"]]
        assert independent[e.id] == (e.texts[1].text, e.texts[0].text, answers)
    assert splits.report == {"answers_repaired": 0.0, "contexts": 240.0}
    for e in examples:
        (answer,) = e.gold["answers"]
        assert e.texts[1].text[answer["start"] : answer["end"]] == answer["text"]
    check_apart(splits)
    assert all(len(part) > 50 for _, part in splits.items())
