"""SentenceReader and dividing a corpus, budgets, and what perplexity means."""

from __future__ import annotations

import gzip
import math
from pathlib import Path

import pytest

from harness.errors import HarnessError
from harness.pretraining.base import EvalResult
from harness.pretraining.budget import Budget, Recipe, TrainingProgress
from harness.pretraining.config import compose, families, resolve_size, validate_config
from harness.pretraining.text.corpus import count_words, read_corpus

TEXT = "A first line .\nA second one .\n\nAnother document\n\n\n  \nThe third .  \n"


def test_blank_lines_end_documents_and_so_does_the_end_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_text(TEXT)
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"\xef\xbb\xbfUp\r\nfront\r\n"))
    (tmp_path / "notes.md").write_text("no corpus")
    corpus = read_corpus(tmp_path, held_out=0)
    assert corpus.train == (
        ("Up", "front"),
        ("A first line .", "A second one ."),
        ("Another document",),
        ("The third .",),
    )
    assert corpus.held_out == ()
    assert corpus.words() == count_words(corpus.train) == 15


def test_held_out_documents_are_the_same_for_all_and_never_trained_on(tmp_path: Path) -> None:
    path = tmp_path / "c.txt"
    path.write_text("\n\n".join(f"Document number {i}" for i in range(40)))
    one, two = read_corpus(path, held_out=0.1), read_corpus(path, held_out=0.1)
    assert one == two
    assert len(one.held_out) == 4
    assert not set(one.held_out) & set(one.train)
    assert len(one.train) + len(one.held_out) == 40
    assert read_corpus(path, held_out=0.2).fingerprint != one.fingerprint


@pytest.mark.parametrize(
    ("text", "held_out", "said"),
    [
        ("", 0.1, "contains no text"),
        ("one\ntwo", 0.1, "blank lines between documents"),
        ("a\n\nb", 1.5, "held_out=1.5"),
    ],
)
def test_a_corpus_that_does_not_do_is_refused(tmp_path: Path, text: str, held_out: float, said: str) -> None:
    (tmp_path / "c.txt").write_text(text)
    with pytest.raises(HarnessError, match=said):
        read_corpus(tmp_path / "c.txt", held_out=held_out)


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match="no such file"):
        read_corpus(tmp_path / "none.txt")
    with pytest.raises(HarnessError, match=r"no \.txt or"):
        read_corpus(tmp_path)


def test_another_text_may_be_held_out(tmp_path: Path) -> None:
    train, test = tmp_path / "train.txt", tmp_path / "test.txt"
    train.write_text("a a b\n\nc\n")
    test.write_text("a d\n")
    corpus = read_corpus(train, held_out=str(test))
    assert corpus.train == (("a a b",), ("c",))
    assert corpus.held_out == (("a d",),)
    # counts and one: a 3, b 2, c 2, all others together 1
    assert corpus.unigram_perplexity() == pytest.approx((8 / 3 * 8 / 1) ** 0.5)
    assert read_corpus(train, held_out=0).unigram_perplexity() is None
    test.write_text("a e\n")
    assert read_corpus(train, held_out=str(test)).fingerprint != corpus.fingerprint
    test.write_text("\n")
    with pytest.raises(HarnessError, match=r"held_out=.*test\.txt: contains no text"):
        read_corpus(train, held_out=str(test))
    assert validate_config(compose(["corpus=x", "output=y", f"held_out={test}"]))["held_out"] == str(test)
    assert validate_config(compose(["corpus=x", "output=y", "held_out=0.1"]))["held_out"] == 0.1
    with pytest.raises(HarnessError, match=r"held_out=no-such\.txt: no such file"):
        validate_config(compose(["corpus=x", "output=y", "held_out=no-such.txt"]))


def test_perplexity_is_per_word_whatever_the_units() -> None:
    """Total nats over words, never over subwords, and never a mean of the batches' perplexities."""
    batches = [(30, 2.0), (10, 6.0)]
    held = EvalResult(sum(n * mean for n, mean in batches), sum(n for n, _ in batches), words=30)
    assert held.token_perplexity == pytest.approx(20.085537)
    assert held.word_perplexity == pytest.approx(54.59815)
    wrong = sum(math.exp(mean) for _, mean in batches) / 2
    assert wrong == pytest.approx(205.408925)


def test_perplexity_per_word_can_be_undefined() -> None:
    assert EvalResult(10.0, 5, words=None, reason="no probability").word_perplexity is None
    assert math.isnan(EvalResult(0.0, 0, words=0).token_perplexity)


def test_the_first_limit_that_is_reached_ends_the_training() -> None:
    budget = Budget(tokens=100, steps=10)
    assert budget.used(TrainingProgress(tokens=50, steps=2), tokens_per_epoch=70) == 0.5
    assert budget.used(TrainingProgress(tokens=50, steps=10), tokens_per_epoch=70) == 1
    assert Budget().or_epochs(2).used(TrainingProgress(tokens=70), tokens_per_epoch=70) == 0.5
    assert budget.or_epochs(2) is budget


@pytest.mark.parametrize("schedule", ["linear", "cosine", "constant"])
def test_the_rate_rises_once_and_never_leaves_its_bounds(schedule: str) -> None:
    recipe = Recipe(lr=1.0, warmup=0.1, schedule=schedule)
    factors = [recipe.lr_factor(i / 100) for i in range(101)]
    assert 0 < factors[0] < factors[5] < factors[10] == max(factors) == 1
    assert factors[10:] == sorted(factors[10:], reverse=True)
    assert factors[-1] == pytest.approx(1.0 if schedule == "constant" else 0.0)


def test_what_is_given_wins_over_the_size() -> None:
    encoder = {
        "size": "mini",
        "width": None,
        "layers": 3,
        "recipe": {"lr": None, "warmup": 0.5},
        "sizes": {"mini": {"width": 8, "layers": 2, "recipe": {"lr": 0.1, "warmup": 0.1}}},
    }
    found = resolve_size(encoder)
    assert found == {"size": "mini", "width": 8, "layers": 3, "recipe": {"lr": 0.1, "warmup": 0.5}}
    with pytest.raises(HarnessError, match=r"encoder\.size=mni: did you mean mini"):
        resolve_size({**encoder, "size": "mni"})


@pytest.mark.parametrize("family", families())
def test_every_family_has_its_sizes(family: str) -> None:
    for size in ("mini", "small", "base"):
        config = validate_config(
            compose([f"encoder={family}", f"encoder.size={size}", "corpus=x", "output=a=b"])
        )
        assert config["output"] == "a=b"
        assert config["encoder"]["size"] == size


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["encoder=brt"], "did you mean bert"),
        (["corpus=x"], "output: required"),
        (["corpus=x", "output=y", "encoder.widht=3"], "encoder.widht: unknown key"),
        (["corpus=x", "output=y", "budget.tokens=-1"], "budget.tokens"),
        (["corpus=x", "output=y", "trainer.precision=64"], "trainer.precision"),
        (["verbose"], "expected key=value"),
    ],
)
def test_slips_are_named(arguments: list[str], said: str) -> None:
    with pytest.raises(HarnessError, match=said):
        validate_config(compose(arguments))


def test_bert_and_gpt_of_one_size_are_the_same_block() -> None:
    keys = ("layers", "width", "heads", "feed_forward", "positions", "dropout", "activation")
    for size in ("mini", "small", "base"):
        bert, gpt = (
            validate_config(compose([f"encoder={f}", f"encoder.size={size}", "corpus=x", "output=y"]))[
                "encoder"
            ]
            for f in ("bert", "gpt")
        )
        assert {k: bert[k] for k in keys} == {k: gpt[k] for k in keys}
