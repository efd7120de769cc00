"""Word vectors made from a corpus: counts, the least squares, budgets, resuming, and the files."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from harness.data.text import Text
from harness.errors import HarnessError
from harness.pretraining.base import Outcome, Run
from harness.pretraining.budget import Budget
from harness.pretraining.text.corpus import Corpus
from harness.pretraining.word_vectors import cooccurrence, glove, word2vec
from harness.pretraining.word_vectors.common import CheckpointManager, SentenceReader, write_vectors
from harness.pretraining.word_vectors.cooccurrence import (
    GAP,
    Cooccurrence,
    number_blocks,
    pairs_of,
    parts_for,
)
from harness.pretraining.word_vectors.fasttext import FastText
from harness.pretraining.word_vectors.glove import GloVe, GloVeFit, GloVeOptions
from harness.pretraining.word_vectors.word2vec import Word2Vec

torch.set_num_threads(1)
SMALL: dict[str, Any] = {"dim": 6, "min_count": 1, "window": 3}


def corpus(documents: int = 40) -> Corpus:
    """Two kinds of documents with words of their own."""
    draw = random.Random(0)
    kinds = [["sea", "ship", "sail", "wave"], ["field", "cow", "plough", "corn"]]
    lines = [
        tuple(" ".join(draw.choices([*kinds[i % 2], "the", "a"], k=8)) + " ." for _ in range(3))
        for i in range(documents)
    ]
    return Corpus(tuple(lines[2:]), (("the sea sails unseenly",),), "fingerprint")


def run_of(folder: Path, *, seed: int = 0, budget: Budget | None = None, **trainer: Any) -> Run:
    for name in ("files", "work"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    said: list[str] = []
    return Run(
        corpus(), budget or Budget(epochs=2), folder / "files", folder / "work", seed, trainer, said.append
    )


MAKERS = {
    "skipgram": lambda **k: Word2Vec(**SMALL, lr=0.05, **k),
    "cbow": lambda **k: Word2Vec(objective="cbow", lr=0.05, **SMALL, **k),
    "glove": lambda **k: GloVe(**SMALL, batch=32, squares=0.01, **k),
    "fasttext": lambda **k: FastText(buckets=50, minn=2, maxn=3, lr=0.05, **SMALL, **k),
}


def made(run: Run) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted(run.folder.iterdir())}


def plain_counts(ids: list[int], window: int) -> dict[tuple[int, int], float]:
    out: dict[tuple[int, int], float] = {}
    for t, i in enumerate(ids):
        for u in range(t + 1, min(len(ids), t + window + 1)):
            if GAP in ids[t : u + 1]:
                continue
            for pair in ((i, ids[u]), (ids[u], i)):
                out[pair] = out.get(pair, 0.0) + 1 / (u - t)
    return out


@pytest.mark.parametrize("parts", [1, 3])
def test_counts_are_those_of_a_plain_double_loop(parts: int, tmp_path: Path) -> None:
    draw = random.Random(1)
    blocks = [[draw.choice([*range(7), GAP]) for _ in range(60)] for _ in range(20)]
    table = Cooccurrence(7, window=4, folder=tmp_path / "p", parts=parts)
    table.count(np.array(block) for block in blocks)
    wanted: dict[tuple[int, int], float] = {}
    for block in blocks:
        for pair, count in plain_counts(block, 4).items():
            wanted[pair] = wanted.get(pair, 0.0) + count
    got: dict[tuple[int, int], float] = {}
    for number in range(len(table)):
        part = table.part(number)
        for i, j, count in zip(part.first.tolist(), part.second.tolist(), part.count.tolist(), strict=True):
            assert (i, j) not in got
            got[i, j] = got[j, i] = count
    assert got.keys() == wanted.keys()
    assert all(got[pair] == pytest.approx(wanted[pair], rel=1e-6) for pair in got)
    assert table.pairs() == len({tuple(sorted(p)) for p in wanted})


def test_blocks_end_with_sentences_and_leave_unknown_words_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cooccurrence, "BLOCK", 3)
    blocks = list(number_blocks([["a", "x", "b"], ["b"], ["a"]], {"a": 0, "b": 1}))
    assert [b.tolist() for b in blocks] == [[0, 1, GAP], [1, GAP, 0, GAP]]
    assert len(pairs_of(np.array([GAP]), window=2, words=2)[0]) == 0
    assert parts_for(1000, window=10, max_pairs=100) == 100


def test_a_step_of_glove_is_adagrad_on_the_gradient_of_the_weighted_squares(tmp_path: Path) -> None:
    settings = GloVeOptions(dim=3, window=2, x_max=2.0, lr=0.1, batch=64, squares=0.5)
    table = Cooccurrence(4, window=2, folder=tmp_path)
    table.count([np.array([0, 1, 1, 2, 3, 0, 2])])
    fit = GloVeFit(4, settings, seed=3)
    main, context = (t.clone().requires_grad_() for t in (fit.main, fit.context))
    part = table.part(0)
    loss = torch.zeros(())
    for i, j, x in zip(part.first.tolist(), part.second.tolist(), part.count.tolist(), strict=True):
        for a, b in {(i, j), (j, i)}:
            w, v = main[a], context[b]
            bracket = w[:3] @ v[:3] + w[3] + v[4] - np.log(x)
            loss = loss + min(1.0, x / 2.0) ** 0.75 * bracket**2 / 2
    loss.backward()
    fit.step(table, words_per_pair=1.0)
    for now, before in ((fit.main, main), (fit.context, context)):
        assert before.grad is not None
        wanted = before.detach() - 0.1 * before.grad / (0.5 + before.grad**2).sqrt()
        torch.testing.assert_close(now, wanted)
    assert fit.position.epoch == 1


@pytest.mark.parametrize("name", MAKERS)
def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(name: str, tmp_path: Path) -> None:
    runs = [run_of(tmp_path / str(n), seed=seed) for n, seed in enumerate((0, 0, 1))]
    outcomes = [MAKERS[name]().pretrain(run) for run in runs]
    first, again, other = map(made, runs)
    assert first == again
    assert first != other
    for outcome in outcomes:
        assert outcome.held_out is not None
        assert outcome.held_out.word_perplexity is None
        assert outcome.held_out.reason
        assert outcome.held_out.unknown_rate == pytest.approx(0.5)
        assert outcome.epochs == pytest.approx(2, rel=0.1)


class Killed(Exception):
    """Stands for a kill."""


@pytest.mark.parametrize("name", MAKERS)
def test_a_run_that_was_killed_goes_on_and_ends_with_the_same_bytes(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(word2vec, "BLOCK", 200)
    whole = run_of(tmp_path / "whole")
    MAKERS[name]().pretrain(whole)
    run = run_of(tmp_path / "killed")
    monkeypatch.setattr(CheckpointManager, "due", lambda self: True)
    save, saved = CheckpointManager.save, []

    def save_and_die(self: CheckpointManager, state: Any) -> None:
        save(self, state)
        saved.append(1)
        if len(saved) == 5:
            raise Killed

    monkeypatch.setattr(CheckpointManager, "save", save_and_die)
    with pytest.raises(Killed):
        MAKERS[name]().pretrain(run)
    assert not made(run)
    outcome = MAKERS[name]().pretrain(run)
    assert made(run) == made(whole)
    assert outcome.progress.steps > 5
    assert list(run.work.glob("pairs-*")) == []


@pytest.mark.parametrize("name", MAKERS)
def test_a_budget_of_tokens_or_steps_ends_the_training(name: str, tmp_path: Path) -> None:
    maker = MAKERS[name]
    steps = maker().pretrain(run_of(tmp_path / "a", budget=Budget(steps=3)))
    assert steps.progress.steps == 3
    few = maker().pretrain(run_of(tmp_path / "b", budget=Budget(tokens=10)))
    assert few.progress.steps >= 1
    assert few.progress.tokens >= 10


@pytest.mark.parametrize("name", MAKERS)
def test_no_steps_are_vectors_as_drawn(name: str, tmp_path: Path) -> None:
    none = run_of(tmp_path / "a", budget=Budget(steps=0))
    outcome = MAKERS[name]().pretrain(none)
    assert (outcome.progress.steps, outcome.progress.tokens) == (0, 0)
    assert math.isnan(outcome.loss)
    again, trained = (run_of(tmp_path / n, budget=Budget(steps=s)) for n, s in (("b", 0), ("c", 1)))
    MAKERS[name]().pretrain(again)
    MAKERS[name]().pretrain(trained)
    assert made(again) == made(none) != made(trained)


# gensim leaves a file without a header open
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("form", ["text", "text.gz", "binary"])
@pytest.mark.parametrize("name", ["skipgram", "glove"])
def test_the_family_reads_what_was_written_and_so_does_gensim(name: str, form: str, tmp_path: Path) -> None:
    from gensim.models import KeyedVectors

    from harness.encoders.static.encoder import load

    run = run_of(tmp_path)
    outcome: Outcome = MAKERS[name](format=form).pretrain(run)
    encoder = load(name="x", path=run.folder, cache_dir=tmp_path / "cache")
    (vectors,) = encoder.encode(["the ship"])
    file = next(run.folder.iterdir())
    plain = name == "glove" and form != "binary"
    read = KeyedVectors.load_word2vec_format(str(file), binary=form == "binary", no_header=plain)
    np.testing.assert_allclose(vectors[1], read["ship"], rtol=1e-5, atol=1e-6)
    assert len(read) == outcome.vocabulary


def test_a_fasttext_model_composes_what_gensim_composes(tmp_path: Path) -> None:
    from gensim.models.fasttext import load_facebook_vectors

    from harness.encoders.fasttext.encoder import load

    run = run_of(tmp_path)
    MAKERS["fasttext"]().pretrain(run)
    encoder = load(name="x", path=run.folder, cache_dir=tmp_path / "cache")
    read = load_facebook_vectors(str(run.folder / "model.bin"))
    words = ["ship", "shipping", "unseenly"]
    (vectors,) = encoder.encode([words])
    np.testing.assert_allclose(vectors, np.stack([read[w] for w in words]), rtol=1e-4, atol=1e-6)


def test_four_digits_are_half_precision_and_words_may_be_anything(tmp_path: Path) -> None:
    from harness.encoders.static.vectors import open_vectors

    words = Text.from_string("naïve 서울 U.S. 1,000 '' \"").words
    matrix = np.random.default_rng(0).normal(size=(len(words), 3)).astype(np.float32)
    path = write_vectors(tmp_path, words, matrix, form="text", digits=4, header=True)
    table = open_vectors(path, cache_dir=tmp_path / "cache")
    rows = table.lookup(words)
    assert (rows > 0).all()
    np.testing.assert_allclose(table.matrix[rows], matrix, rtol=6e-4)


def test_words_are_kept_by_count_then_by_the_alphabet_and_windows_may_stay_within_lines() -> None:
    document = ("B a a C", "C b")
    assert SentenceReader(across_lines=False).sentences([document]) == [["B", "a", "a", "C"], ["C", "b"]]
    whole = SentenceReader(lower=True, min_count=2, max_words=2)
    sentences = whole.sentences([document])
    assert sentences == [["b", "a", "a", "c", "c", "b"]]
    assert whole.vocabulary(sentences) == {"a": 2, "b": 2}
    with pytest.raises(HarnessError, match="min_count"):
        SentenceReader(min_count=9).vocabulary(sentences)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Word2Vec(objective="glove"), "objective"),
        (lambda: Word2Vec(format="csv"), "format"),
        (lambda: Word2Vec(window=0), "window"),
        (lambda: GloVe(dim=0), "dim"),
        (lambda: FastText(minn=4, maxn=3), "minn"),
        (lambda: FastText(buckets=0), "buckets"),
    ],
)
def test_options_that_do_not_do_are_refused(make: Any, said: str) -> None:
    with pytest.raises(HarnessError, match=said):
        make()


def test_vectors_of_words_that_stand_together_are_near(tmp_path: Path) -> None:
    run = run_of(tmp_path, budget=Budget(epochs=60))
    GloVe(**{**SMALL, "dim": 4}, batch=32, lr=0.1, squares=0.01).pretrain(run)
    lines = [line.split(" ") for line in (run.folder / "vectors.txt").read_text().splitlines()]
    at = {word: np.array(numbers, float) for word, *numbers in lines}
    near = {w: v / np.linalg.norm(v) for w, v in at.items()}
    assert near["ship"] @ near["sail"] > near["ship"] @ near["cow"] + 0.1
    assert glove.UNKNOWN in at


@pytest.mark.parametrize("name", ["skipgram", "fasttext"])
def test_a_budget_in_words_ends_at_the_word(name: str, tmp_path: Path) -> None:
    for n, (budget, words) in enumerate({Budget(tokens=10): 10, Budget(epochs=0.5): None}.items()):
        run = run_of(tmp_path / str(n), budget=budget)
        total = sum(map(len, SentenceReader().sentences(run.corpus.train)))
        assert MAKERS[name]().pretrain(run).progress.tokens == (words or math.ceil(total / 2))


def test_vectors_that_diverged_are_not_written(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match="diverged"):
        write_vectors(tmp_path, ["a"], np.array([[np.nan]]), form="text", digits=6, header=True)
    assert list(tmp_path.iterdir()) == []
