"""Tagged sentences from tables, and what is refused or reported of a data set."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from harness.errors import HarnessError
from harness.task import Splits
from harness_tasks.tagging.schemes import entities
from harness_tasks.tagging.spelling import LabelOptions, recognise_labels
from harness_tasks.tagging.task import Tagging

KAGGLE = """Sentence #,Word,POS,Tag
Sentence: 1,Bo,NN,B-PER
,Lind,NN,I-PER
,"said ""x"" twice",NN,O
Sentence: 2,rain,NN,O
,",",NN,O
Sentence: 3,Rome,NN,B-LOC
"""


def tagging(
    folder: Path, train: str, *, suffix: str = "conll", test: str | None = None, **options: Any
) -> Tagging:
    files = {}
    for role, text in (("train", train), ("test", test or train)):
        path = folder / f"{role}.{suffix}"
        path.write_text(text, encoding="utf-8")
        files[role] = str(path)
    return Tagging(name="t", **{**files, "dev": "none", **options})


def words(splits: Splits) -> list[list[str]]:
    return [e.texts[0].words for e in splits.train]


def test_one_word_per_row_with_a_sentence_column(tmp_path: Path) -> None:
    splits = tagging(tmp_path, KAGGLE, suffix="csv").splits()
    assert words(splits) == [["Bo", "Lind", 'said "x" twice'], ["rain", ","], ["Rome"]]
    assert [e.gold for e in splits.train] == [["B-PER", "I-PER", "O"], ["O", "O"], ["B-LOC"]]
    assert splits.card is not None
    facts = splits.card.files[str(tmp_path / "train.csv")]
    assert [facts[name].value for name in ("words", "labels", "sentences")] == ["Word", "Tag", "Sentence #"]


def test_a_sentence_column_filled_in_every_row_and_named(tmp_path: Path) -> None:
    text = "no\tw\tl\n1\ta\tB-X\n1\tb\tO\n2\tc\tO\n1\td\tO\n"
    given = {"words_column": "w", "labels_column": "l"}
    splits = tagging(tmp_path, text, suffix="tsv", format="tsv", sentence_column="no", **given).splits()
    assert words(splits) == [["a", "b"], ["c"], ["d"]]
    with pytest.raises(HarnessError, match=r"no column tells where a sentence begins; set task\.sent"):
        tagging(tmp_path, text, suffix="tsv", format="tsv", **given).splits()


def test_a_csv_without_a_sentence_column_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match=r"train.csv: one word per row \(Word\).*task.sentence_column"):
        tagging(tmp_path, "Word,Tag\nBo,B-PER\n", suffix="csv").splits()
    bad = KAGGLE.replace("Sentence: 1", "")
    with pytest.raises(HarnessError, match="line 2: Sentence # is empty in the first row"):
        tagging(tmp_path, bad, suffix="csv").splits()


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"tokens": ["a", "b"], "ner_tags": ["O"]}, "line 2: 2 words but 1 labels"),
        ({"tokens": "a b", "ner_tags": ["O"]}, "line 2: tokens is 'a b', not a list"),
        ({"tokens": ["a"], "ner_tags": [None]}, "line 2: no labels in ner_tags"),
        ({"tokens": ["a", "b"], "ner_tags": ["O", None]}, "line 2, word 2: the label is missing"),
        ({"tokens": ["a", "b"], "ner_tags": [0, 3]}, "line 2, word 2: label 3 has no name; only 3 names"),
        ({"tokens": ["a", "b"], "ner_tags": [0, -100]}, "line 2, word 2: label -100 has no name"),
        ({"tokens": ["a", None], "ner_tags": [0, 0]}, "line 2: word 2 is missing"),
        ({"tokens": ["a"], "ner_tags": [True]}, "line 2, word 1: label True has no name"),
    ],
)
def test_bad_rows_of_tables_are_named_or_skipped(tmp_path: Path, row: dict[str, Any], message: str) -> None:
    good = {"tokens": ["Bo"], "ner_tags": [1.0]}
    lines = "\n".join(map(json.dumps, [good, row, good]))
    test = json.dumps(good)
    options: dict[str, Any] = {"suffix": "jsonl", "label_names": ["O", "B-A", "I-A"], "test": test}
    with pytest.raises(HarnessError, match=message):
        tagging(tmp_path, lines, **options).splits()
    splits = tagging(tmp_path, lines, on_error="skip", **options).splits()
    assert [e.gold for e in splits.train] == [["B-A"], ["B-A"]]
    assert splits.card is not None
    assert splits.card.n_skipped == 1


def test_words_written_as_one_text_are_no_words_per_row(tmp_path: Path) -> None:
    for tokens, tags in (("Ada left", "B-PER O"), ("['Ada', 'left']", "[1, 0]")):
        with pytest.raises(HarnessError, match=r"not a list with one value per word; write lists as JSON"):
            tagging(tmp_path, json.dumps({"tokens": tokens, "ner_tags": tags}), suffix="jsonl").splits()


def test_a_name_for_two_numbers_is_refused(tmp_path: Path) -> None:
    row = json.dumps({"tokens": ["Bo"], "ner_tags": [1]})
    with pytest.raises(HarnessError, match="the label name 'O' stands for two numbers"):
        tagging(tmp_path, row, suffix="jsonl", label_names=["O", "O"]).splits()


def test_train_without_entities_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match=r"train.conll:1: train has no entities: all 2 labels are O"):
        tagging(tmp_path, "a O\n\nb O\n").splits()
    splits = tagging(tmp_path, "a B-X\n\nb O\n", test="a O\n\nb O\n").splits()
    assert "test has no entities: all 2 labels are O; its span_f1 means nothing" in splits.warnings


def test_a_split_of_one_sentence_is_reported(tmp_path: Path) -> None:
    splits = tagging(tmp_path, "a B-X\n" * 900, test="a O\n" * 600 + "\nb B-X\n").splits()
    assert "train is 1 sentence of 900 words: blank lines missing?" in splits.warnings
    assert not any("test: a sentence" in w for w in splits.warnings)
    long = tagging(tmp_path, "a B-X\n\nb O\n", test="a O\n" * 1000 + "\nb B-X\n").splits()
    assert any("test: a sentence of 1000 words" in w and "test.conll:1)" in w for w in long.warnings)


def test_too_many_plain_labels_are_reported(tmp_path: Path) -> None:
    splits = tagging(tmp_path, "".join(f"w{i} label{i}\n" for i in range(60))).splits()
    assert any(w.startswith("60 labels for 60 words of train") for w in splits.warnings)


def test_an_unlabelled_test_split_is_refused(tmp_path: Path) -> None:
    for test in ("a -\nb -\n", "a\nb\n"):
        with pytest.raises(HarnessError, match=r"test.conll.*no labels"):
            tagging(tmp_path, "a B-X\n\nb O\n", test=test).splits()


def test_zeros_for_o_and_other_spellings_of_a_whole_data_set(tmp_path: Path) -> None:
    text = "Ada PER_B\nWeiss PER_I\nleft 0\n\nOslo LOC_B\n"
    with pytest.raises(
        HarnessError, match=r"train.conll:3: label '0' beside entities .*task.outside_label=0;"
    ):
        tagging(tmp_path, text).splits()
    task = tagging(tmp_path, text, outside_label=0)
    splits = task.splits()
    assert (task.metric, task.scheme, splits.train[0].gold) == ("span_f1", "iob2", ["B-PER", "I-PER", "O"])
    assert splits.card is not None
    assert splits.card.splits["train"].classes == {"PER": 1, "LOC": 1}
    plain = tagging(tmp_path, text, scheme="none")
    assert plain.splits().train[0].gold == ["PER_B", "PER_I", "0"]


def test_conllu_is_scored_by_word(tmp_path: Path) -> None:
    row = "{i}\t{w}\t{w}\t{u}\tB-X\t_\t0\troot\t_\t_\n"
    text = (
        row.format(i=1, w="a", u="DET") + "1-2\tb" + "\t_" * 8 + "\n" + row.format(i=2, w="b", u="X") + "\n"
    )
    task = tagging(tmp_path, text + row.format(i=1, w="c", u="X"), suffix="conllu", label_column="xpos")
    splits = task.splits()
    assert (task.scheme, task.metric, task.labels) == ("none", "token_accuracy", ["B-X"])
    assert splits.card is not None
    assert len(splits.card.excluded) == 2
    assert "label scheme none (a column of CoNLL-U), 1 plain labels, no entities" in splits.notes


def test_copies_of_a_sentence_stay_on_one_side_of_a_cut(tmp_path: Path) -> None:
    text = "".join(f"w{i} B-X\nz O\n\n" for i in range(20)) * 3
    path = tmp_path / "train.conll"
    path.write_text(text)
    splits = Tagging(name="t", train=str(path)).splits()
    sides = [{tuple(e.texts[0].words) for e in part} for _, part in splits.items()]
    assert [sides[a] & sides[b] for a, b in ((0, 1), (0, 2), (1, 2))] == [set()] * 3
    assert tagging(tmp_path, text, test="q B-X\n", duplicates="drop").splits().train[20:] == []
    path.write_text("a B-X\n\n" * 10)  # copies of one sentence only are cut all the same
    assert len(Tagging(name="t", train=str(path)).splits().test) == 1


def independent(path: Path, comment: str | None) -> tuple[int, int, dict[str, int]]:
    """Sentences, words and entities per type, by a parse that shares no code with the reader."""
    n_sentences = n_words = 0
    types: dict[str, int] = {}
    inside = False
    for row in path.read_text(encoding="utf-8").split("\n"):
        if comment and row.startswith(comment):
            continue
        n_sentences += not inside and bool(row.strip())
        inside = bool(row.strip())
        n_words += inside
        label = row.rstrip().split("\t")[-1]
        if inside and label.startswith("B-"):
            types[label[2:]] = types.get(label[2:], 0) + 1
    return n_sentences, n_words, types


@pytest.mark.parametrize(
    ("name", "comment"),
    [
        ("wnut17/train.conll", None),
        ("wnut17/test.conll", None),
        ("wnut17/dev.conll", None),
        ("klue_ner_dev/klue-ner-v1.1_dev.tsv", "## "),
    ],
)
def test_real_files_agree_with_an_independent_parse(name: str, comment: str | None) -> None:
    root = os.environ.get("HARNESS_TEST_DATA")
    if not root:
        pytest.skip("HARNESS_TEST_DATA names no folder of real data")
    path = Path(root) / "data" / name
    n_sentences, n_words, types = independent(path, comment)
    task = Tagging(name="t", train=str(path))
    log = task._source.log()
    sentences = recognise_labels(task._reader.read(log), LabelOptions(), log)[0]["train"]
    counted: dict[str, int] = {}
    for s in sentences:
        for kind, _, _ in entities(s.labels):
            counted[kind] = counted.get(kind, 0) + 1
    assert (len(sentences), sum(len(s.words) for s in sentences), counted) == (n_sentences, n_words, types)
    assert log.warnings == []
