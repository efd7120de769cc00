"""The biLM: its likelihood against a plain reading of the formula, the shared parts, batches, the files."""

from __future__ import annotations

import dataclasses
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from harness.encoders.elmo.encoder import load
from harness.encoders.elmo.files import ElmoOptions, read_options
from harness.encoders.elmo.weights import read_weights
from harness.errors import HarnessError
from harness.pretraining.base import Outcome, Run
from harness.pretraining.budget import Budget, Recipe
from harness.pretraining.objectives.bilm import BiLMObjective, group_rows, join_lines
from harness.pretraining.objectives.bilm_model import MARKERS, BiLM
from harness.pretraining.objectives.summed_nll import SummedNLL
from harness.pretraining.text.corpus import Corpus
from harness.pretraining.trainer import train
from tests.helpers.tiny_elmo import PlainElmo

torch.set_num_threads(1)
TINY = ElmoOptions(
    dim=7, projection_dim=5, num_layers=2, cell_clip=3.0, proj_clip=3.0, use_skip_connections=True,
    dropout=0.1, char_dim=3, filters=((1, 3), (2, 4)), n_highway=1, activation="relu", max_characters=50,
)  # fmt: skip


def corpus(documents: int = 20) -> Corpus:
    draw = random.Random(0)
    lines = ["the sea ship runs a sail .", "a cow runs .", "the ship .", "sail the sea ."]
    made = [tuple(draw.choices(lines, k=3)) for _ in range(documents)]
    return Corpus(
        tuple(made), (("the unseen ship runs .", "a cow runs ."), ("sail the sea .",)), "fingerprint"
    )


def objective(**changes: Any) -> BiLMObjective:
    given: dict[str, Any] = {
        "max_vocabulary": 100, "min_frequency": 1, "softmax": "full", "row_words": 12, "batch_words": 40,
    }  # fmt: skip
    given |= changes
    out = BiLMObjective(dataclasses.replace(TINY), Recipe(lr=0.03, epochs=2, weight_decay=0.0), **given)
    out.prepare(corpus(), seed=0)
    return out


def model_of(made: BiLMObjective, *, seed: int = 0) -> BiLM:
    torch.manual_seed(seed)
    return made.build()


def log_softmax(x: np.ndarray) -> np.ndarray:
    return x - x.max() - np.log(np.exp(x - x.max()).sum())


def plain_nll(made: BiLMObjective, model: BiLM, words: list[str], folder: Path) -> tuple[float, float]:
    """Forward and backward nats of the words of a row, the marks not counted, step by step in float64."""
    model.encoder.save(folder)
    plain = PlainElmo(TINY, read_weights(folder / "weights.hdf5", TINY))
    assert model.softmax is not None
    weight, bias = (p.detach().double().numpy() for p in (model.softmax.weight, model.softmax.bias))
    tokens = np.stack([plain.token(w) for w in ["<S>", *words, "</S>"]])
    forward, backward = tokens, tokens[::-1]
    for layer in range(TINY.num_layers):
        forward, backward = plain.run(forward, 0, layer, 0), plain.run(backward, 1, layer, 0)
        plain.states.clear()
    sums = [0.0, 0.0]
    rank = {w: i for i, w in enumerate(made.words)}
    for direction, states, order in ((0, forward, words), (1, backward, words[::-1])):
        for k, word in enumerate(order):
            sums[direction] -= log_softmax(weight @ states[k] + bias)[rank.get(word, 0)]
    return sums[0], sums[1]


def test_both_likelihoods_are_those_of_the_formula(tmp_path: Path) -> None:
    made = objective()
    model = model_of(made).eval()
    rows = [np.concatenate(d) for d in made.test]
    with torch.no_grad():
        nll, real = model(made.batch(rows).tensors)
    names = list(made.types)
    wanted = [plain_nll(made, model, [names[t] for t in row], tmp_path / "m") for row in rows]
    got = torch.where(real, nll, 0.0).sum(1)
    np.testing.assert_allclose(got.numpy(), np.array(wanted).sum(0), rtol=1e-5)
    held = made.evaluate(model)
    assert held.nll == pytest.approx(np.array(wanted).sum() / 2, rel=1e-5)
    assert held.words == held.predicted == sum(map(len, rows))
    assert held.unknown_rate == pytest.approx(1 / held.words)
    forward, backward = (held.metrics[f"perplexity_{d}"] for d in ("forward", "backward"))
    assert held.word_perplexity == pytest.approx((forward * backward) ** 0.5, rel=1e-6)


def test_the_loss_is_the_sum_of_both_directions_with_the_marks_and_its_gradient_is_exact() -> None:
    made = objective()
    model = model_of(made).eval()
    batch = next(made.batches(seed=0, epoch=0))
    loss = made.loss(model, batch, None)
    nll, _ = model(batch.tensors)
    rows = int(batch.tensors["mask"].any(1).sum())
    assert loss.predicted == nll.shape[1] == batch.words + rows
    torch.testing.assert_close(loss.mean, nll.sum() / nll.shape[1])
    assert loss.nll == pytest.approx(float(nll.detach().sum()) / 2, rel=1e-5)
    parameters = list(model.parameters())
    fast = torch.autograd.grad(loss.mean, parameters)
    plain = torch.autograd.grad(nll.sum() / nll.shape[1], parameters)
    for a, b in zip(fast, plain, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


def test_the_summed_loss_has_right_gradients_whatever_it_is_cut_into(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SummedNLL, "ROWS", 3)
    torch.manual_seed(0)
    shapes = ((7, 4), (5, 4), (5,))
    inputs = [torch.randn(*s, dtype=torch.float64, requires_grad=True) for s in shapes]
    gold = torch.tensor([0, 4, 2, 2, 1, 3, 0])
    assert torch.autograd.gradcheck(lambda *x: SummedNLL.apply(*x, gold), inputs)


def test_directions_have_weights_of_their_own_and_share_characters_and_softmax() -> None:
    made = objective()
    model = model_of(made).eval()
    batch = made.batch([np.concatenate(made.train[0])])
    nll, _ = model(batch.tensors)
    model.zero_grad()
    nll[0].sum().backward()
    for layer in model.encoder.layers:
        assert isinstance(layer.weight, nn.Parameter)
        assert layer.weight.grad is not None
        assert layer.weight.grad[0].abs().sum() > 0
        assert layer.weight.grad[1].abs().sum() == 0
    assert model.softmax is not None
    for shared in (model.softmax.weight, model.encoder.characters.characters):
        one = shared.grad
        assert one is not None
        assert one.abs().sum() > 0


def test_a_word_is_predicted_without_being_read() -> None:
    made = objective()
    model = model_of(made).eval()
    row = np.concatenate(made.train[0])[:5]
    changed = row.copy()
    changed[2] = (row[2] + 1) % len(made.types)
    with torch.no_grad():
        before, after = (model(made.batch([r]).tensors)[0] for r in (row, changed))
    differs = (before - after).abs() > 1e-7
    # forward: places before the changed word are as they were; backward likewise from the other end
    assert not differs[0, :2].any()
    assert not differs[1, : len(row) - 3].any()
    assert differs[0, 2:].any()


@pytest.mark.parametrize("softmax", ["full", "adaptive"])
def test_probabilities_of_all_classes_sum_to_one(softmax: str) -> None:
    made = objective(softmax=softmax)
    model = model_of(made).eval()
    state = torch.randn(1, TINY.projection_dim)
    every = torch.arange(len(made.words))
    nll = model.nll(state.expand(len(every), -1), every)
    assert float((-nll.detach()).exp().sum()) == pytest.approx(1.0, rel=1e-5)
    batch = next(made.batches(seed=0, epoch=0))
    assert made.loss(model, batch, None).mean.requires_grad


def test_rows_hold_every_word_of_the_corpus_once_a_pass_and_differ_between_passes() -> None:
    made = objective()
    total = sum(len(line) for d in made.train for line in d)
    assert made.tokens_per_epoch == total
    passes = [list(made.batches(seed=0, epoch=e)) for e in (0, 0, 1)]
    assert all(sum(b.tokens for b in one) == total for one in passes)
    assert all(b.tokens <= 40 for b in passes[0])
    same = [[b.tensors["classes"].tolist() for b in one] for one in passes]
    assert same[0] == same[1]
    assert same[0] != same[2]


def test_rows_are_neighbouring_lines_and_long_lines_are_cut() -> None:
    lines = [np.arange(3), np.arange(3, 5), np.arange(5, 30)]
    rows = list(join_lines(lines, 10, np.random.default_rng(0)))
    assert np.concatenate(rows).tolist() == list(range(30))
    assert max(map(len, rows)) <= 10
    parts = list(group_rows([np.arange(0), np.arange(3), np.arange(9)], 4))
    assert [[len(r) for r in part] for part in parts] == [[3], [9]]


def run_of(folder: Path, **budget: Any) -> Run:
    for name in ("files", "work"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    trainer = {
        "accelerator": "cpu", "precision": "32-true", "threads": 1, "checkpoint_seconds": 1000.0,
        "log_seconds": 1000.0, "logger": "none",
    }  # fmt: skip
    said: list[str] = []
    return Run(corpus(), Budget(**budget), folder / "files", folder / "work", 0, trainer, said.append)


def test_training_writes_a_published_model_that_elmo_reads_and_lowers_the_perplexity(tmp_path: Path) -> None:
    outcomes: list[Outcome] = []
    for name, budget in (("none", {"steps": 0}), ("more", {"epochs": 12.0})):
        run = run_of(tmp_path / name, **budget)
        outcomes.append(train(objective(), run))
    first, last = (o.held_out for o in outcomes)
    assert first is not None
    assert last is not None
    assert first.nll > 0.9 * first.predicted * math.log(outcomes[0].vocabulary)  # drawn, not trained
    assert last.nll < 0.9 * first.nll
    folder = tmp_path / "more" / "files"
    assert read_options(folder / "options.json") == TINY
    encoder = load(name="x", path=folder, cache_dir=tmp_path / "cache").eval()
    assert all(p.dtype == torch.float32 for p in encoder.parameters())
    assert outcomes[1].encoder_parameters == sum(p.numel() for p in encoder.parameters())
    (states,) = encoder.encode(["the ship runs"], "all")
    plain = PlainElmo(TINY, read_weights(folder / "weights.hdf5", TINY)).sentence(["the", "ship", "runs"], 0)
    np.testing.assert_allclose(states, plain, rtol=1e-4, atol=1e-5)
    lines = (folder / "vocabulary.txt").read_text().splitlines()
    assert tuple(lines[:3]) == MARKERS
    assert len(lines) == outcomes[1].vocabulary


def test_the_same_seed_gives_the_same_weights(tmp_path: Path) -> None:
    folders = []
    for name in ("a", "b"):
        run = run_of(tmp_path / name, steps=3)
        train(objective(), run)
        folders.append(run.folder)
    for name in ("weights.hdf5", "softmax.safetensors", "options.json"):
        assert (folders[0] / name).read_bytes() == (folders[1] / name).read_bytes()


def test_the_configuration_makes_the_objective_and_bad_values_are_refused() -> None:
    from harness.pretraining.config import compose, validate_config
    from harness.pretraining.factories import build_pretrainer

    def make(*more: str) -> Any:
        config = validate_config(compose(["encoder=elmo", "corpus=c.txt", "output=o", *more]))
        return build_pretrainer(config["encoder"])

    for size in ("mini", "small", "base"):
        assert isinstance(make(f"encoder.size={size}"), BiLMObjective)
    with pytest.raises(HarnessError, match="softmax"):
        make("encoder.softmax=fulll")
    with pytest.raises(HarnessError, match="cells"):
        make("encoder.cells=0")
