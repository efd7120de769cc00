"""Which columns are read: given, recognised, or refused with the setting for each reading."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.data.reading.log import Fact
from harness.errors import HarnessError
from harness_tasks.classification.columns import Columns
from harness_tasks.classification.task import TextClassification
from tests.helpers.data_files import copied


@pytest.mark.parametrize(
    ("columns", "given", "text", "label"),
    [
        ("text,label", {}, "text", "label"),
        ("idx,sentence,label", {}, "sentence", "label"),
        ("Class Index,Title,Description", {}, "Title+Description", "Class Index"),
        ("text,label,label_text", {}, "text", "label"),
        ("text,label_text", {}, "text", "label_text"),
        ("label,category,text", {"label": "category"}, "text", "category"),
        ("question,sentence,label", {"text": "sentence"}, "sentence", "label"),
        ("question,sentence,label", {"text": "question+sentence"}, "question+sentence", "label"),
        ("question,sentence,label", {"text_b": "sentence"}, "question", "label"),
        ("sentence1,sentence2,title,label", {"text_b": "sentence2"}, "sentence1", "label"),
        ("question,passage,answer", {"label": "answer", "text_b": "passage"}, "question", "answer"),
        ("text,target,label", {"label": "label"}, "text", "label"),
        ("text,annotation", {"label": "annotation.label"}, "text", "annotation.label"),
        ("a.b,label", {"text": "a.b"}, "a.b", "label"),
    ],
)
def test_columns_are_recognised(columns: str, given: dict[str, str], text: str, label: str) -> None:
    found = Columns(**given).find(columns.split(","), "f.csv")
    assert (found["text"], found["label"]) == (text, label)


@pytest.mark.parametrize(
    ("columns", "given", "settings"),
    [
        (
            "index,question,sentence,label",
            {},
            ["task.text=question task.text_b=sentence", "task.text=sentence (sentence only)"],
        ),
        (
            "QuestionID,Question,DocumentTitle,Sentence,Label",
            {},
            ["task.text=Question task.text_b=Sentence", "task.text=Question+Sentence"],
        ),
        ("id,sentence1,sentence2,label", {}, ["task.text=sentence1 task.text_b=sentence2"]),
        ("question,title,answer,passage", {"label": "answer"}, ["task.text=question task.text_b=passage"]),
        ("title,text,label", {}, ["task.text=title+text", "task.text=text (text only)"]),
        ("text,category,sentiment", {}, ["task.label=category", "task.label=sentiment"]),
        ("question,context,text,label", {"text_b": "text"}, ["task.text=context task.text_b=text"]),
    ],
)
def test_several_plausible_columns_are_refused_with_each_setting(
    columns: str, given: dict[str, str], settings: list[str]
) -> None:
    with pytest.raises(HarnessError, match=r"f\.csv: which column is the (text|label)\? Set ") as e:
        Columns(**given).find(columns.split(","), "f.csv")
    for setting in settings:
        assert setting in str(e.value)
    assert Columns(**given).is_header(columns.split(","))


@pytest.mark.parametrize(
    ("columns", "given", "message"),
    [
        ("text,label", {"label": "text", "text": "text"}, "column text is both the text"),
        ("text,label", {"text": "label", "label": "label"}, "column label is both the text"),
        ("a,b,label", {"text": "a+label", "label": "label"}, "column label is both the text"),
        ("text,label", {"text": "text", "text_b": "text"}, "both texts of the pair"),
        ("tokens,ner_tags,label", {}, "task=ner"),
        ("title,paragraphs,label", {}, "task=span_qa"),
        ("text,label", {"text": "txet.a"}, r"no column txet\.a"),
        ("a,b,text,label", {"group": "writer"}, r"no column writer \(task\.group\)"),
    ],
)
def test_columns_that_cannot_be_used_are_refused(columns: str, given: dict[str, str], message: str) -> None:
    with pytest.raises(HarnessError, match=message):
        Columns(**given).find(columns.split(","), "f.csv")


def splits_of(path: Path, **options: Any) -> Any:
    return TextClassification(train=str(path), dev="none", test=copied(str(path)), **options).splits()


def test_given_and_recognised_columns_are_facts_of_the_card(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("sentence,label\n" + "".join(f"some text {i},{'ab'[i % 2]}\n" for i in range(20)))
    for given, origin in (({}, "recognised"), ({"text": "sentence"}, "given")):
        facts = splits_of(path, **given).card.files[str(path)]
        assert facts["text"] == Fact("sentence", origin)  # type: ignore[arg-type]
        assert facts["label"] == Fact("label", "recognised")


def test_a_further_column_of_texts_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    rows = "".join(f"some text {i},{'ab'[i % 2]},a remark of many words\n" for i in range(20))
    path.write_text(f"sentence,label,remark\n{rows}")
    assert any("column remark contains texts too" in w for w in splits_of(path).warnings)
    assert not any("remark" in w for w in splits_of(path, text="sentence").warnings)


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("a.conll", ["EU NNP I-NP B-ORG", "rejects VBZ I-VP O", "", "Peter NNP I-NP B-PER"]),
        ("a.txt", ["EU B-ORG", "rejects O", "", "Peter B-PER", "ran O"]),
        ("a.tsv", ["-DOCSTART-\tO", "", "EU\tB-ORG"]),
    ],
)
def test_files_of_labelled_words_are_refused_with_their_task(
    tmp_path: Path, name: str, lines: list[str]
) -> None:
    path = tmp_path / name
    path.write_text("\n".join(lines * 10) + "\n")
    with pytest.raises(HarnessError, match=r"one word per line.*task=ner"):
        splits_of(path)


def test_label_text_lines_with_blank_lines_are_no_words(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("".join(f"{'ab'[i % 2]} word{i}\n\n" for i in range(40)))
    assert len(splits_of(path).train) == 40


def test_values_of_nested_objects_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    rows = [
        f'{{"doc": {{"body": "text {i}"}}, "annotation": [{{"label": "{"ab"[i % 2]}"}}]}}' for i in range(10)
    ]
    path.write_text("\n".join([*rows, '{"doc": {"body": "x"}, "annotation": []}']))
    splits = splits_of(path, text="doc.body", label="annotation.0.label")
    assert [e.gold for e in splits.train] == ["a", "b"] * 5
    assert splits.train[3].texts[0].text == "text 3"
    with pytest.raises(HarnessError, match=r"line 1: column doc holds 'text 0', which has no key 'x'"):
        splits_of(path, text="doc.body.x", label="annotation.0.label")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([(f"text {i} of many", f"class {i}") for i in range(40)], r"40 classes in 40 rows.*task\.label"),
        ([(f"t{i}", f"the long class {i % 2}") for i in range(40)], "labels are longer than the texts"),
        (
            [(f"a text of words {i}", f"a text of words {i % 9}") for i in range(40)],
            "looks like a whole text",
        ),
    ],
)
def test_labels_that_look_like_texts_are_refused_or_with_a_named_column_reported(
    tmp_path: Path, rows: list[tuple[str, str]], message: str
) -> None:
    path = tmp_path / "a.csv"
    path.write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in rows))
    with pytest.raises(HarnessError, match=message):
        splits_of(path)
    warnings = splits_of(path, label="label").warnings
    assert any(message.partition(".*")[0] in warning for warning in warnings)


def test_groups_stay_on_one_side_of_a_cut(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    rows = "".join(f"text {i},{'ab'[i % 2]},w{i // 4}\n" for i in range(80))
    path.write_text(f"text,label,writer\n{rows}")
    splits = TextClassification(train=str(path), group="writer").splits()
    writers = [{int(e.texts[0].text.split()[1]) // 4 for e in part} for _, part in splits.items()]
    assert all(writers)
    assert sum(map(len, writers)) == 20


def test_copies_of_a_text_stay_on_one_side_of_a_cut(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("text,label\n" + "".join(f"text  {i % 20},{'ab'[i % 2]}\n" for i in range(120)))
    texts = [
        {e.texts[0].text for e in part} for _, part in TextClassification(train=str(path)).splits().items()
    ]
    assert all(texts)
    assert sum(map(len, texts)) == 20
