"""Korean: characters read as words and back, particles, numbers for pairs, and every encoder on all of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from harness.data.text import Example, Text, split_words
from harness.errors import HarnessError
from harness.records.inputs import read_data
from harness.records.predictions import read_predictions
from harness.task import Averages, Prediction, Task
from harness.training.run import run_cell
from harness_tasks.regression import scoring
from harness_tasks.regression.task import TextRegression
from harness_tasks.tagging.characters import Characters
from harness_tasks.tagging.schemes import entities
from harness_tasks.tagging.scoring import score_spans
from harness_tasks.tagging.task import Tagging
from tests.helpers.cells import make_cell
from tests.helpers.tiny_fasttext import fasttext_file

SENTENCES = [
    "<김민수:PS>는 <서울:LC>에서 왔다.",
    "<김 민수:PS>와 <이영희:PS>가 <3월 1일:DT>에 만났다.",
    "새로운 <삼성:OG>의 소식, <박:PS>모 씨.",
    "그는 <부산:LC>으로부터 왔다.",
    "<한국:LC><은행:OG>은 크다.",
    "(<10명:QT>)이 대<한국:LC>에 갔다.",
]


def characters(sentence: str) -> list[tuple[str, str]]:
    """Characters and labels of a sentence with entities in the notation of KLUE's comment lines."""
    out: list[tuple[str, str]] = []
    for part in sentence.replace(">", "<").split("<"):
        text, _, kind = part.partition(":")
        out += [(c, f"{'I' if i else 'B'}-{kind}" if kind else "O") for i, c in enumerate(text)]
    return out


def lines(sentences: Sequence[str]) -> str:
    head = "## 컬럼명 : CHAR\tNE_TAG\n"
    return head + "\n".join(
        f"## id-{i}\t{s}\n" + "".join(f"{c}\t{label}\n" for c, label in characters(s))
        for i, s in enumerate(sentences)
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "klue-ner-v1.1_dev.tsv").write_text(lines(SENTENCES * 4), encoding="utf-8")
    return tmp_path


def task(folder: Path, reading: str = "words") -> tuple[Tagging, list[Example]]:
    found = Tagging(name="t", train=str(folder / "klue-ner-v1.1_dev.tsv"), characters=reading)
    splits = found.splits()
    return found, [*splits.train, *splits.dev, *splits.test]


def test_words_are_split_at_blanks_and_punctuation() -> None:
    text = "김민수는 '서울'에서, 3월 1일(금)에 3,000원을 썼다."
    words = [text[a:b] for a, b in split_words(text)]
    assert words == [
        *(
            "김민수는",
            "'",
            "서울",
            "'",
            "에서",
            ",",
            "3월",
            "1일",
            "(",
            "금",
            ")",
            "에",
            "3,000",
            "원을",
            "썼다",
            ".",
        )
    ]


def test_decomposed_syllables_stay_one_word() -> None:
    import unicodedata

    text = unicodedata.normalize("NFD", "서울 사람")
    assert len(split_words(text)) == 2


@pytest.mark.parametrize(("reading", "lost"), [("words", 2), ("each", 0)])
def test_entities_come_back_from_units_but_those_that_are_counted(
    folder: Path, reading: str, lost: int
) -> None:
    """A particle behind an entity costs nothing; an entity that begins within a word does."""
    found, _ = task(folder, reading)
    text = found._characters
    assert text is not None
    missing = []
    for sentence in SENTENCES:
        pairs = [(c, label) for c, label in characters(sentence)]
        read = text.text([c for c, _ in pairs])
        gold = [label for c, label in pairs if not c.isspace()]
        back = text.to_characters(read, text.to_tokens(read, gold))
        assert len(back) == len(gold)
        missing += [e for e in entities(gold) if e not in entities(back)]
        assert set(entities(back)) <= set(entities(gold))
    assert len(missing) == lost


def test_labels_of_words_say_what_comes_behind(folder: Path) -> None:
    found, examples = task(folder)
    by_text = {e.texts[0].text: found._targets(e) for e in examples}
    assert by_text["김민수는 서울에서 왔다."] == ["B-PS+1", "B-LC+2", "O", "O"]
    expected = ["B-PS", "I-PS+1", "B-PS+1", "B-DT", "I-DT+1", "O", "O"]
    assert by_text["김 민수와 이영희가 3월 1일에 만났다."] == expected
    assert by_text["그는 부산으로부터 왔다."] == ["O", "B-LC+4", "O", "O"]


def test_the_loss_is_in_the_record(folder: Path) -> None:
    splits = Tagging(name="t", train=str(folder / "klue-ner-v1.1_dev.tsv"), characters="words").splits()
    total = sum(splits.report[f"{role}_entities"] for role in ("train", "dev", "test"))
    lost = sum(splits.report[f"{role}_entities_lost"] for role in ("train", "dev", "test"))
    assert (total, lost) == (48, 8)
    assert any("8 of 48 entities cannot be represented" in note for note in splits.notes)


def test_gold_is_the_same_whatever_the_units(folder: Path) -> None:
    words, each = (task(folder, reading)[1] for reading in ("words", "each"))
    assert [e.gold for e in words] == [e.gold for e in each]
    assert [e.id for e in words] == [e.id for e in each]
    perfect, found = task(folder)
    scores = perfect.score({e.id: Prediction(e.gold) for e in found}, found)
    assert (scores["span_f1"], scores["character_macro_f1"], scores["surface_f1"]) == (1, 1, 1)


def test_predicted_labels_that_make_no_sense_are_still_read(folder: Path) -> None:
    reading = Characters("words")
    text = Text.from_string("김 민수")
    assert reading.to_characters(text, ["B-PS+7", "I-PS+1"]) == ["B-PS", "I-PS", "O"]
    assert reading.to_characters(text, ["I-PS", "B-LC"]) == ["I-PS", "B-LC", "I-LC"]


def test_characters_are_checked(folder: Path) -> None:
    with pytest.raises(HarnessError, match=r"task.characters=word: did you mean words"):
        Tagging(name="t", characters="word")
    with pytest.raises(HarnessError, match="needs data that label characters"):
        Tagging(name="t", metric="character_macro_f1")


def test_macro_f1_leaves_out_what_is_outside() -> None:
    gold, predicted = [["B-A", "I-A", "O", "B-B"]], [["B-A", "O", "O", "O"]]
    assert score_spans(gold, predicted, characters=True)["character_macro_f1"] == pytest.approx(1 / 3)
    assert score_spans([["O"]], [["O"]], characters=True)["character_macro_f1"] == 0


def test_correlations() -> None:
    def scores(predicted: list[float], gold: list[float]) -> dict[str, float]:
        examples = [Example(str(i), (), g) for i, g in enumerate(gold)]
        return scoring.score({str(i): Prediction(p) for i, p in enumerate(predicted)}, examples)

    found = scores([1, 2, 2, 9], [0, 1, 3, 4])
    assert found["pearson"] == pytest.approx(np.corrcoef([1, 2, 2, 9], [0, 1, 3, 4])[0, 1])
    assert found["spearman"] == pytest.approx(np.corrcoef([1, 2.5, 2.5, 4], [1, 2, 3, 4])[0, 1])
    assert found["mse"] == pytest.approx(7)
    assert scores([1e6 + 1, 1e6 + 2, 1e6 + 3], [1, 2, 3])["pearson"] == pytest.approx(1)
    assert scores([0.1] * 3, [1, 2, 3])["pearson"] == 0
    assert np.isnan(scores([1, float("nan")], [1, 2])["spearman"])
    with pytest.raises(HarnessError, match="1 of 2 examples have no prediction"):
        scores([1], [1, 2])


PAIRS = "genre\tid\tscore\tsentence1\tsentence2\n" + "".join(
    f'g\t{i}\t{i % 6}.000\t한 남자가 "춤을 춘다.\t여자{i}가 말을 탄다.\n' for i in range(24)
)
INFERENCE = "sentence1\tsentence2\tgold_label\n" + "".join(
    f'그가 말했다, "엄마{i}.\t그는 말이 없다.\t{label}\n'
    for i, label in enumerate(["entailment", "neutral", "contradiction"] * 8)
)


def write_pairs(folder: Path) -> None:
    for name in ("train.tsv", "dev.tsv", "test.tsv"):
        (folder / name).write_text(PAIRS, encoding="utf-8")


def test_regression_reads_numbers(tmp_path: Path) -> None:
    write_pairs(tmp_path)
    cell = make_cell(tmp_path, "task=korsts", f"task.path={tmp_path}", "encoder=mini_bert", "strategy=full")
    found, splits = read_data(cell)
    assert isinstance(found, Task)
    assert isinstance(found, Averages)
    assert (found.metric, found.maximize, found.n_texts) == ("spearman", True, 2)
    assert [e.gold for e in splits.train[:3]] == [0.0, 1.0, 2.0]
    assert splits.train[0].texts[0].text == '한 남자가 "춤을 춘다.'
    assert splits.report == {"train_mean": 2.5, "train_std": pytest.approx(1.7078, abs=1e-4)}
    members = [{e.id: Prediction(e.gold + shift) for e in splits.test} for shift in (-1.0, 2.0)]
    joined = found.average(members, splits.test)
    assert joined[splits.test[1].id].value == splits.test[1].gold + 0.5
    assert not TextRegression(metric="mse").maximize


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (PAIRS.replace("5.000", "five"), "is no finite number"),
        (PAIRS.replace("5.000", "inf"), "is no finite number"),
        ("score\tsentence1\tsentence2\n1\ta\tb\n1\tc\td\n1\te\tf\n1\tg\th\n", "the same number 1 everywhere"),
    ],
)
def test_bad_numbers_are_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "t.tsv").write_text(text, encoding="utf-8")
    found = TextRegression(train=str(tmp_path / "t.tsv"), text="sentence1", text_b="sentence2", label="score")
    with pytest.raises(HarnessError, match=message):
        found.splits()
    with pytest.raises(HarnessError, match=r"task.metric=r2"):
        TextRegression(metric="r2")


@pytest.mark.parametrize(
    "encoder",
    [["encoder=fasttext", f"encoder.path={fasttext_file()}"], ["encoder=mini_bert"], ["encoder=mini_gpt"]],
    ids=["fasttext", "mini_bert", "mini_gpt"],
)
@pytest.mark.parametrize("name", ["klue_ner_dev", "korsts", "kornli_xnli"])
def test_every_family_runs_on_korean(folder: Path, encoder: list[str], name: str) -> None:
    if name == "korsts":
        write_pairs(folder)
    if name == "kornli_xnli":
        for split in ("dev.tsv", "test.tsv"):
            (folder / split).write_text(INFERENCE, encoding="utf-8")
    strategy = "embedding_init" if "fasttext" in encoder[0] else "full"
    quick = ["trainer.epochs=1", "trainer.batch_size=8", "trainer.threads=1"]
    cell = make_cell(folder, f"task={name}", f"task.path={folder}", *encoder, f"strategy={strategy}", *quick)
    record = run_cell(cell)
    assert record.status == "complete"
    assert record.test[record.metric] is not None
    rows = read_predictions(cell.folder)
    assert len(rows) == record.n_test
    if name == "klue_ner_dev":
        assert all(len(r["prediction"]) == len(r["gold"]) for r in rows)
        assert record.coverage["train_entities"] > 0
    if "fasttext" in encoder[0]:
        assert record.coverage["composed_from_subwords"] > 0
        assert record.coverage["words_known"] == record.coverage["words"]


def test_real_named_entities(shared_data: Path, tmp_path: Path) -> None:
    """Half the entities of KLUE-NER end within a word; labels of words can say nearly all of them."""
    place = shared_data / "data" / "klue_ner_dev"
    cell = make_cell(
        tmp_path, "task=klue_ner_dev", f"task.path={place}", "encoder=mini_static", "strategy=frozen"
    )
    _, splits = read_data(cell)
    sizes = [len(part) for _, part in splits.items()]
    assert sizes == [4050, 450, 500]
    counts = [
        sum(splits.report[f"{role}_{what}"] for role in ("train", "dev", "test"))
        for what in ("entities", "entities_inside_words", "entities_lost")
    ]
    assert counts == [14257, 7068, 287]


def test_real_pairs(shared_data: Path, tmp_path: Path) -> None:
    for name, sizes in (("korsts", [5749, 1500, 1379]), ("kornli_xnli", [2241, 249, 5010])):
        place = f"task.path={shared_data / 'data' / name}"
        cell = make_cell(tmp_path, f"task={name}", place, "encoder=mini_static", "strategy=frozen")
        _, splits = read_data(cell)
        assert [len(part) for _, part in splits.items()] == sizes
