"""Dialects of SQuAD's format: names of fields, forms of values, flat rows, contexts apart, skipped rows."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.data.reading.log import ReadLog
from harness.data.reading.tables import DataTable, ReadOptions
from harness.data.targets import IGNORE_INDEX
from harness.errors import HarnessError
from harness.task import is_unlabelled
from harness_tasks.span_qa.data import find_files
from harness_tasks.span_qa.questions import Question
from harness_tasks.span_qa.reader import QuestionReader
from harness_tasks.span_qa.task import SpanQA
from tests.helpers.cells import make_cell

CONTEXT = "Town 1 was founded in 1201. Its mayor is Ada Weiss, who likes tea."
WHEN = {"text": "1201", "answer_start": 22}


def nested(*qas: Mapping[str, Any], context: str = CONTEXT, title: str = "T") -> dict[str, Any]:
    return {"version": "2.0", "data": [{"title": title, "paragraphs": [{"context": context, "qas": qas}]}]}


def read(
    folder: Path, content: Any, name: str = "x.json", **options: Any
) -> tuple[list[Question], QuestionReader]:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    reader = QuestionReader(**options)
    return reader.read([path]), reader


def qa(key: str = "q", **fields: Any) -> dict[str, Any]:
    return {"id": key, "question": "When?", **fields}


@pytest.mark.parametrize(
    ("fields", "answers"),
    [
        ({"answers": []}, ()),
        ({"answers": [], "is_impossible": True}, ()),
        ({"answers": [], "is_impossible": "true"}, ()),
        ({"answers": [], "is_impossible": 1}, ()),
        ({"is_impossible": 1.0}, ()),
        ({"answers": None, "is_impossible": "1"}, ()),
        ({"answers": [{"text": "", "answer_start": -1}]}, ()),
        ({"answers": [{"text": "", "answer_start": -1}], "is_impossible": True}, ()),
        ({"answers": [{"text": "", "answer_start": 0}], "is_impossible": True}, ()),
        ({"answers": [{"text": None, "answer_start": None}]}, ()),
        ({"answers": {"text": [""], "answer_start": [-1]}}, ()),
        ({"answers": ""}, ()),
        ({"answers": [WHEN], "is_impossible": "false"}, (("1201", 22),)),
        ({"answers": [WHEN], "is_impossible": "False"}, (("1201", 22),)),
        ({"answers": [WHEN], "is_impossible": 0}, (("1201", 22),)),
        ({"answers": [WHEN], "is_impossible": None}, (("1201", 22),)),
        ({"answers": [{"text": "1201", "answer_start": "22"}]}, (("1201", 22),)),
        ({"answers": [{"text": "1201", "answer_start": 22.0}]}, (("1201", 22),)),
        ({"answers": [{"text": "1201", "answer_start": "22.0"}]}, (("1201", 22),)),
        ({"answers": {"text": ["1201", "tea"], "answer_start": [22, 62]}}, (("1201", 22), ("tea", 62))),
        ({"answers": {"text": "1201", "answer_start": 22}}, (("1201", 22),)),
        ({"answers": "1201"}, (("1201", 22),)),
        ({"answers": 1201}, (("1201", 22),)),
        ({"answers": ["1201", "tea"]}, (("1201", 22), ("tea", 62))),
        ({"answers": [{"text": "tea"}]}, (("tea", 62),)),
        ({"answer": {"text": "tea", "start": 62}}, (("tea", 62),)),
        ({"answers": '{"text": ["tea"], "answer_start": [62]}'}, (("tea", 62),)),
        ({"answer_text": "tea", "answer_start": "62"}, (("tea", 62),)),
    ],
)
@pytest.mark.parametrize("flat", [False, True])
def test_forms_of_answers(
    tmp_path: Path, fields: dict[str, Any], answers: tuple[Any, ...], flat: bool
) -> None:
    content = [{**qa(**fields), "context": CONTEXT}] if flat else nested(qa(**fields))
    (question,), _ = read(tmp_path, content)
    assert question.answers == answers
    assert question.labelled


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"answers": [WHEN], "is_impossible": "true"}, r"is_impossible is True but it has 1 answer"),
        ({"answers": [], "is_impossible": "false"}, r"is_impossible is False but it has 0 answer"),
        ({"answers": [WHEN, {"text": "", "answer_start": -1}]}, r"an answer is empty"),
        (
            {"answers": [{"text": "1201", "answer_start": 22.5}]},
            r"answer_start=22.5: expected a whole number",
        ),
        (
            {"answers": [{"text": "1201", "answer_start": True}]},
            r"answer_start=True: expected a whole number",
        ),
        ({"answers": [{"answer_start": 22}]}, r"an answer has no 'text'"),
        ({"answers": {"text": ["1201"], "answer_start": [22, 3]}}, r"1 answer texts but 2 answer_start"),
        ({"answers": "t"}, r"'t' occurs 2 times and has no answer_start: give answer_start"),
        ({"answers": "king"}, r"'king' does not occur in the context"),
        ({"answers": [["1201"]]}, r"text=\['1201'\]: expected a text"),
        ({"answers": [WHEN], "id": [1]}, r"id=\[1\]: expected a text or a whole number"),
    ],
)
def test_answers_with_no_single_reading_are_refused_with_their_place(
    tmp_path: Path, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(HarnessError, match=r"x\.json, article 1 \(T\), paragraph 1.*" + message):
        read(tmp_path, nested({**qa("q"), **fields}))


@pytest.mark.parametrize("name", ["id", "qid", "question_id", "_id", "questionId", "ID", "guid"])
def test_other_names_of_the_id_are_recognised_and_logged(tmp_path: Path, name: str) -> None:
    rows = [{name: "a7", "question": "When?", "passage": CONTEXT, "answers": [WHEN]}]
    (question,), reader = read(tmp_path, rows)
    assert question.id == "a7"
    facts = reader.log.facts[str(tmp_path / "x.json")]
    assert (facts["context"].value, facts["context"].origin) == ("passage", "recognised")
    assert name == "id" or facts["id"].value == name


def test_a_name_that_is_not_recognised_can_be_given(tmp_path: Path) -> None:
    rows = [{"number": 7, "ask": "When?", "context": CONTEXT, "answers": [WHEN]}]
    with pytest.raises(HarnessError, match=r"no column 'question'.*task\.fields\.question=COLUMN"):
        read(tmp_path, rows)
    (question,), reader = read(tmp_path, rows, names={"id": "number", "question": "ask"})
    assert (question.id, question.question) == ("7", "When?")
    assert reader.log.facts[str(tmp_path / "x.json")]["question"].origin == "given"
    with pytest.raises(HarnessError, match=r"task\.fields\.quest: unknown field, did you mean question"):
        QuestionReader(names={"quest": "ask"})


def test_two_names_for_one_field_are_refused_with_both_settings(tmp_path: Path) -> None:
    rows = [{"qid": "a", "question_id": "b", "question": "When?", "context": CONTEXT, "answers": [WHEN]}]
    message = r"which field is id\? Set task\.fields\.id=qid.*or task\.fields\.id=question_id"
    with pytest.raises(HarnessError, match=message):
        read(tmp_path, rows)
    (question,), _ = read(tmp_path, rows, names={"id": "question_id"})
    assert question.id == "b"


def test_questions_without_an_id_are_numbered_within_the_split(tmp_path: Path) -> None:
    paths = []
    for name in ("a.json", "b.json"):
        path = tmp_path / name
        path.write_text(
            json.dumps(nested({"question": "When?", "answers": [WHEN]}, qa(name, answers=[WHEN])))
        )
        paths.append(path)
    reader = QuestionReader()
    assert [q.id for q in reader.read(paths, "train")] == ["#1", "a.json", "#3", "b.json"]
    assert reader.log.notes == ["train: 2 questions have no id and are numbered (#1, #2, ...)"]


def test_flat_rows_beside_a_version_and_other_containers(tmp_path: Path) -> None:
    row = {**qa("q0", answers={"text": ["1201"], "answer_start": [22]}), "context": CONTEXT, "title": "t0"}
    article = nested(qa("q0", answers=[WHEN]), title="t0")["data"]
    for content in ({"version": "1.0", "data": [row]}, {"data": [row]}, [row], article, article[0]):
        (question,), _ = read(tmp_path, content)
        assert (question.id, question.article, question.answers) == ("q0", "t0", (("1201", 22),))
        assert question.titled
    lines = json.dumps({"context": CONTEXT, "qas": [{"qid": "a", "question": "When?", "answers": ["1201"]}]})
    (question,), _ = read(tmp_path, lines, name="x.jsonl")
    assert (question.id, question.answers) == ("a", (("1201", 22),))


def test_a_csv_with_one_answer_a_row(tmp_path: Path) -> None:
    lines = (
        f'id;question;context;answer_text;answer_start\n1;When?;"{CONTEXT}";1201;22\n2;Who?;"{CONTEXT}";;\n'
    )
    (first, second), _ = read(tmp_path, lines, name="x.csv", options=ReadOptions(delimiter=";"))
    assert first.answers == (("1201", 22),)
    assert second.answers == ()


def test_contexts_in_a_table_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "contexts.csv").write_text(f'id,text\nc1,"{CONTEXT}"\nc2,Oak grows slowly.\n')
    rows = [
        {**qa(f"q{i}", answers=["Oak"] if i % 2 else [WHEN]), "context_id": f"c{i % 2 + 1}"} for i in range(4)
    ]
    train, test = tmp_path / "train.json", tmp_path / "test.json"
    train.write_text(json.dumps(rows))
    test.write_text(json.dumps(rows[:1]))
    options: dict[str, Any] = {"train": str(train), "dev": "none", "test": str(test)}
    with pytest.raises(HarnessError, match=r"no column 'context', but 'context_id': .*task\.contexts=FILE"):
        SpanQA("x", **options).splits()
    contexts = str(tmp_path / "contexts.csv")
    splits = SpanQA("x", **options, contexts=contexts).splits()
    assert [e.texts[1].text for e in splits.train][:2] == [CONTEXT, "Oak grows slowly."]
    assert find_files({**options, "contexts": contexts}, tmp_path)["contexts"] == Path(contexts)
    train.write_text(json.dumps([{**rows[0], "context_id": "c9"}]))
    with pytest.raises(HarnessError, match=r"context_id='c9' is not in task\.contexts"):
        SpanQA("x", **options, contexts=contexts).splits()


def test_one_bad_question_stops_the_data_or_is_listed(tmp_path: Path) -> None:
    bad = [
        qa("b1", answers=[{"text": "king", "answer_start": 3}]),
        "no object",
        {"id": "b3", "answers": [WHEN]},
        qa("g0", answers=[WHEN]),
        qa("b5"),
    ]
    content = nested(*(qa(f"g{i}", answers=[WHEN]) for i in range(29)), *bad)
    content["data"] += [{"title": "U", "paragraphs": [{"context": "", "qas": []}, 3]}, {"title": "V"}]
    with pytest.raises(HarnessError, match=r"question 'b1': answer 'king' is not at answer_start=3"):
        read(tmp_path, content)
    questions, reader = read(tmp_path, content, log=ReadLog(on_error="skip"))
    assert [q.id for q in questions] == [f"g{i}" for i in range(29)]
    assert len(reader.log.skipped) == len(bad) + 3
    listed = " / ".join(f"{row.where}: {row.reason}" for row in reader.log.skipped)
    for part in (
        "paragraph 1: question 'b1': answer 'king' is not at answer_start=3",
        "'no object' is not an object with named values",
        "question 'b3': no 'question'",
        "question id 'g0' was already used",
        "no 'answers'",
        "there are no words in the context",
        "article 3: no 'paragraphs'",
    ):
        assert part in listed


def test_skipped_questions_are_in_the_data_card(tmp_path: Path) -> None:
    content = nested(*(qa(f"g{i}", answers=[WHEN]) for i in range(3)), qa("bad", answers=["king"]))
    test = nested(qa("t", answers=["Oak"]), context="Oak grows.")
    for name, part in (("train.json", content), ("test.json", test)):
        (tmp_path / name).write_text(json.dumps(part))
    task = SpanQA(
        "x", train=str(tmp_path / "train.json"), dev="none", test=str(tmp_path / "test.json"), on_error="skip"
    )
    splits = task.splits()
    assert (len(splits.train), splits.card and splits.card.n_skipped) == (3, 1)
    assert any("'king' does not occur" in line for line in splits.card.lines())  # type: ignore[union-attr]


@pytest.mark.parametrize("fields", [{}, {"answers": None}, {"answers": []}])
def test_an_unlabelled_split_is_predicted_as_test_and_refused_elsewhere(
    tmp_path: Path, fields: dict[str, Any]
) -> None:
    train, other = tmp_path / "train.json", tmp_path / "other.json"
    train.write_text(json.dumps(nested(*(qa(f"g{i}", answers=[WHEN]) for i in range(3)))))
    other.write_text(json.dumps(nested(qa("t", **fields), qa("u", **fields), context="Oak grows.")))
    with pytest.raises(HarnessError, match=r"other\.json: none of its 2 questions has an answer") as e:
        SpanQA("x", train=str(train), dev=str(other)).splits()
    assert "\n" not in str(e.value)
    task = SpanQA("x", train=str(train), dev="none", test=str(other))
    splits = task.splits()
    assert is_unlabelled(splits.test)
    assert not task.unanswerable
    assert splits.test[0].tags == ()
    assert any(
        w.startswith("test: none of its 2 questions has an answer: they are predicted")
        for w in splits.warnings
    )
    rows = task.row_targets(splits.test[0], [None, None])  # type: ignore[list-item]
    assert [int(t["start"]) for t in rows] == [IGNORE_INDEX] * 2


def test_questions_that_are_said_to_have_no_answer_are_labelled(tmp_path: Path) -> None:
    train, test = tmp_path / "train.json", tmp_path / "test.json"
    train.write_text(json.dumps(nested(*(qa(f"g{i}", answers=[WHEN]) for i in range(3)))))
    test.write_text(json.dumps(nested(qa("t", answers=[], is_impossible=True), context="Oak grows.")))
    task = SpanQA("x", train=str(train), dev="none", test=str(test))
    assert task.splits().test[0].gold == {"answers": []}
    assert task.unanswerable


def test_encoding_and_format_options_take_effect(tmp_path: Path) -> None:
    train = tmp_path / "train.json"
    content = nested(*(qa(f"g{i}", answers=["Жар"]) for i in range(2)), context="Жар птица")
    train.write_bytes(json.dumps(content, ensure_ascii=False).encode("koi8-r"))
    test = tmp_path / "test.json"
    test.write_bytes(
        json.dumps(nested(qa("t", answers=["Лес"]), context="Лес"), ensure_ascii=False).encode("koi8-r")
    )
    options: dict[str, Any] = {"train": str(train), "dev": "none", "test": str(test)}
    assert SpanQA("x", **options, encoding="koi8-r").splits().train[0].texts[1].text == "Жар птица"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 40) | st.floats() | st.text(max_size=4)
    | st.sampled_from(["Town", "1201", CONTEXT]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            ["data", "title", "paragraphs", "context", "qas", "id", "_id", "question", "answers", "text",
             "answer_start", "is_impossible", "tags", "context_id"]
        ),
        inner,
        max_size=5,
    ),
    max_leaves=25,
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(content=JSON, on_error=st.sampled_from(["raise", "skip"]))
def test_any_json_gives_questions_or_one_typed_error(
    tmp_path_factory: pytest.TempPathFactory, content: object, on_error: str
) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz.json"
    path.write_text(json.dumps(content))
    questions: list[Question] = []
    with contextlib.suppress(HarnessError):
        questions = QuestionReader(ReadLog(on_error=on_error)).read([path])
    assert not questions or max(Counter(q.id for q in questions).values()) == 1
    for q in questions:
        assert all(q.context[at : at + len(text)] == text != "" for text, at in q.answers)


ENTRY = st.fixed_dictionaries(
    {"question": JSON | st.just("When?"), "context": JSON | st.just(CONTEXT)},
    optional={
        "id": JSON,
        "answers": JSON | st.just([WHEN]),
        "is_impossible": JSON,
        "title": JSON,
        "tags": JSON,
    },
)


@settings(max_examples=60, deadline=None)
@given(rows=st.lists(ENTRY, min_size=1, max_size=4))
def test_any_values_of_rows_give_questions_or_a_skipped_row(rows: list[dict[str, Any]]) -> None:
    reader = QuestionReader(ReadLog(on_error="skip"))
    table = DataTable.of_rows(
        "t", list(dict.fromkeys(k for r in rows for k in r)), rows, range(1, len(rows) + 1)
    )
    questions = list(reader.rows(table))
    assert len(questions) + len(reader.log.skipped) == len(rows)


def test_a_field_has_one_cell_id_whether_it_is_named_or_recognised(tmp_path: Path) -> None:
    for name in ("train", "test"):
        rows = [
            {"qid": f"{name}{i}", "question": "When?", "alt": "Who?", "context": CONTEXT, "answers": [WHEN]}
            for i in range(2)
        ]
        (tmp_path / f"{name}.json").write_text(json.dumps(rows))
    files = [f"task.{name}={tmp_path / name}.json" for name in ("train", "test")]
    options = [
        "task=span_qa",
        "task.dev=none",
        "trainer.select=last",
        "encoder=mini_static",
        "strategy=frozen",
        *files,
    ]
    recognised, named, other = (
        make_cell(tmp_path, *options, *more).id
        for more in (
            [],
            ["task.fields.id=qid", "task.fields.question=question"],
            ["task.fields.question=alt"],
        )
    )
    assert named == recognised != other
