"""Twenty public files in their published form: what is read equals an independent parse of each.

The parses below use nothing of the harness, and the numbers beside them are those of the data sets' papers or
READMEs.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from harness.pretraining.text.corpus import read_corpus
from harness.task import Splits
from harness_tasks.tagging.schemes import entities
from tests.helpers.task_configs import build_task, task_config


@pytest.fixture
def data(shared_data: Path) -> Path:
    return shared_data / "data"


def lines(path: Path, encoding: str = "utf-8") -> list[str]:
    return [line for line in path.read_bytes().decode(encoding).split("\n") if line.strip()]


def tsv(path: Path) -> list[dict[str, str]]:
    header, *rows = (line.rstrip("\r").split("\t") for line in lines(path))
    return [dict(zip(header, row, strict=True)) for row in rows]


def read(name: str, *overrides: str) -> Splits:
    splits: Splits = build_task(task_config(name, *overrides)).splits()
    return splits


def contents(splits: Splits, *roles: str) -> Counter[tuple[object, ...]]:
    """Texts and gold of the examples of some splits."""
    parts = dict(splits.items())
    return Counter((*(t.text for t in e.texts), e.gold) for role in roles for e in parts[role])


def test_trec(data: Path) -> None:
    splits = read("trec_fine", f"path={data / 'trec'}")
    for name, roles, n in (("TREC.train", ("train", "dev"), 5452), ("TREC.test", ("test",), 500)):
        rows = [line.partition(" ") for line in lines(data / "trec" / name, "cp1252")]
        assert contents(splits, *roles) == Counter((text, label) for label, _, text in rows)
        assert len(rows) == n


def test_sst2(data: Path) -> None:
    splits = read("sst2", f"path={data / 'sst2'}")
    names = {"0": "negative", "1": "positive"}
    for role, n in (("train", 6920), ("dev", 872), ("test", 1821)):
        rows = [(line[2:], names[line[0]]) for line in lines(data / "sst2" / f"{role}.txt")]
        assert contents(splits, role) == Counter(rows)
        assert len(rows) == n


@pytest.mark.parametrize("regression", [False, True], ids=["classes", "numbers"])
def test_sick(data: Path, regression: bool) -> None:
    column = "relatedness_score" if regression else "entailment_judgment"
    config = task_config("text_regression" if regression else "text_classification")
    names = {"train": "train", "dev": "trial", "test": "test"}
    files = {split: str(data / "sick" / f"{name}.tsv") for split, name in names.items()}
    columns = {"text": "sentence_A", "text_b": "sentence_B", "label": column}
    splits = build_task({**config, **files, **columns}).splits()
    for role, name, n in (("train", "train", 4500), ("dev", "trial", 500), ("test", "test", 4927)):
        rows = tsv(data / "sick" / f"{name}.tsv")
        gold = [float(row[column]) if regression else row[column] for row in rows]
        expected = Counter((r["sentence_A"], r["sentence_B"], g) for r, g in zip(rows, gold, strict=True))
        assert contents(splits, role) == expected
        assert len(rows) == n


def pair(row: dict[str, str], gold: object) -> tuple[object, ...]:
    return row["sentence1"], row["sentence2"], gold


def test_korsts(data: Path) -> None:
    splits = read("korsts", f"path={data / 'korsts'}")
    for role, n in (("train", 5749), ("dev", 1500), ("test", 1379)):
        rows = tsv(data / "korsts" / f"{role}.tsv")
        assert contents(splits, role) == Counter(pair(r, float(r["score"])) for r in rows)
        assert len(rows) == n


def test_kornli(data: Path) -> None:
    splits = read("kornli_xnli", f"path={data / 'kornli_xnli'}")
    for name, roles, n in (("dev", ("train", "dev"), 2490), ("test", ("test",), 5010)):
        rows = tsv(data / "kornli_xnli" / f"{name}.tsv")
        assert contents(splits, *roles) == Counter(pair(r, r["gold_label"]) for r in rows)
        assert len(rows) == n


def column_rows(path: Path) -> list[list[list[str]]]:
    """The rows of each sentence of a tab-separated column file, without comments."""
    text = path.read_text(encoding="utf-8").replace("\r\n", "\n")
    parts = [[line for line in block.split("\n") if line] for block in re.split(r"\n[ \t]*(?=\n)", text)]
    sentences = [[line.split("\t") for line in part if not line.startswith("## ")] for part in parts]
    return [sentence for sentence in sentences if sentence]


def test_wnut17(data: Path) -> None:
    splits = read("wnut17", f"path={data / 'wnut17'}")
    for role, part in splits.items():
        sentences = column_rows(data / "wnut17" / f"{role}.conll")
        assert [e.texts[0].words for e in part] == [[row[0].strip() for row in s] for s in sentences]
        starts = sum(row[1].startswith("B-") for s in sentences for row in s)
        assert sum(len(entities(e.gold)) for e in part) == starts
    assert [len(part) for _, part in splits.items()] == [3394, 1009, 1287]


def test_klue_ner(data: Path) -> None:
    splits = read("klue_ner_dev", f"path={data / 'klue_ner_dev'}")
    sentences = column_rows(data / "klue_ner_dev" / "klue-ner-v1.1_dev.tsv")
    assert len(sentences) == 5000
    parts = [e for _, part in splits.items() for e in part]
    texts = Counter("".join(character for character, _ in s if not character.isspace()) for s in sentences)
    assert Counter("".join(e.texts[0].text.split()) for e in parts) == texts
    starts = sum(label.startswith("B-") for s in sentences for _, label in s)
    assert sum(len(entities(e.gold)) for e in parts) == starts


def test_xquad(data: Path) -> None:
    path = data / "xquad_en" / "xquad.en.json"
    splits = read("span_qa", f"path={path}")
    articles = json.loads(path.read_text(encoding="utf-8"))["data"]
    expected = {
        qa["id"]: (qa["question"], p["context"], [a["text"] for a in qa["answers"]])
        for article in articles
        for p in article["paragraphs"]
        for qa in p["qas"]
    }
    examples = [e for _, part in splits.items() for e in part]
    assert len(examples) == len(expected) == 1190
    for e in examples:
        question, context, answers = expected[e.id]
        assert [t.text for t in e.texts] == [question, context]
        assert [a["text"] for a in e.gold["answers"]] == answers
        assert all(context[a["start"] : a["end"]] == a["text"] for a in e.gold["answers"])


@pytest.mark.parametrize(("name", "words"), [("valid", 217_646 - 3_760), ("test", 245_569 - 4_358)])
def test_wikitext(data: Path, name: str, words: int) -> None:
    """WikiText counts 217,646 and 245,569 tokens with one end-of-line token for each of its lines."""
    path = data / "wikitext2_small" / f"{name}.txt"
    corpus = read_corpus(path, held_out=0.05)
    assert sum(len(line.split()) for d in (*corpus.train, *corpus.held_out) for line in d) == words
    assert words == len(path.read_text(encoding="utf-8").split())
