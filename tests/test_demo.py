"""The bundled demo is what its script makes, and its parts fit together."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.paths import mini_dir
from tasks.mini import make_demo, pretrain, words

FILES = [f"{task}/{split}" for task in ("topic", "ner", "qa") for split in make_demo.SIZES]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("demo")
    make_demo.make_data(folder)
    make_demo.make_corpus(folder)
    return folder


def test_data_and_corpus_come_out_the_same_byte_for_byte(made: Path) -> None:
    paths = sorted(p.relative_to(made) for p in made.rglob("*") if p.is_file())
    assert len(paths) == len(FILES) + 1
    for path in paths:
        assert (mini_dir() / path).read_bytes() == (made / path).read_bytes(), path


def test_no_labelled_text_of_dev_or_test_is_in_the_corpus() -> None:
    corpus = (mini_dir() / "corpus.txt").read_text().splitlines()
    assert not set(corpus) & make_demo._held_out_texts()
    assert len(corpus) > 3000


def test_training_sees_half_of_each_word_list_and_test_sees_more() -> None:
    train = (mini_dir() / "ner/train.txt").read_text()
    test = (mini_dir() / "ner/test.txt").read_text()
    unseen = [firm.split()[0] for firm in words.FIRM[len(words.FIRM) // 2 :]]
    assert not any(name in train for name in unseen)
    assert sum(name in test for name in unseen) > len(unseen) / 2


def test_answers_lie_where_the_file_says() -> None:
    for split, size in make_demo.SIZES.items():
        (article,) = json.loads((mini_dir() / f"qa/{split}.json").read_text())["data"]
        assert len(article["paragraphs"]) == size
        for paragraph in article["paragraphs"]:
            (answer,) = paragraph["qas"][0]["answers"]
            assert paragraph["context"][answer["answer_start"] :].startswith(answer["text"])


def test_the_vocabulary_of_the_bundled_bert_is_the_one_the_script_makes() -> None:
    lines = (mini_dir() / "corpus.txt").read_text().splitlines()
    vocab = json.loads((mini_dir() / "bert/tokenizer.json").read_text())["model"]["vocab"]
    assert sorted(vocab, key=vocab.__getitem__) == pretrain._word_pieces(lines)


@pytest.mark.parametrize("name", ["bert", "gpt"])
def test_checkpoints_are_small_and_in_full_precision(name: str) -> None:
    from safetensors import safe_open

    path = mini_dir() / name / "model.safetensors"
    assert path.stat().st_size < 1_000_000
    with safe_open(path, framework="np") as file:
        assert {str(file.get_tensor(key).dtype) for key in file.keys()} == {"float32"}  # noqa: SIM118
