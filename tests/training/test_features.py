"""Frozen features: the same bits from the cache, from memory and computed again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from harness.data.tokens import TokenBatch
from harness.records.cell import Cell
from harness.records.inputs import read_data
from harness.task import Task
from harness.training import encoding, features
from harness.training.dataloader import all_examples
from harness.training.encoding import Encoding, frozen_features, load_transferred, windowing
from harness.training.sequences import Sequences
from harness.training.streamed import StreamedFeatures
from tests.helpers.cells import make_cell

QUICK = ["limit=16", "strategy=frozen"]


def inputs(folder: Path, *overrides: str) -> tuple[Cell, Task, Sequences]:
    cell = make_cell(folder, *QUICK, *overrides)
    task, splits = read_data(cell)
    return cell, task, Sequences.of(all_examples(splits), joint=False)


def states(encoded: Encoding) -> list[np.ndarray]:
    return [np.array(w.inputs["states"]) for windows in encoded.windows for w in windows]


def encoded(folder: Path, *overrides: str) -> Encoding:
    cell, task, sequences = inputs(folder, *overrides)
    return frozen_features(cell, task, sequences, lambda event: None)


@pytest.mark.parametrize("encoder", ["mini_bert", "mini_elmo", "mini_ulmfit"])
@pytest.mark.parametrize("more", [[], ["encoder.layers=mix"]], ids=["top", "mix"])
def test_cached_and_streamed_features_are_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoder: str, more: list[str]
) -> None:
    """Also if memory holds one batch only, so that batches are computed again in the order of access."""
    monkeypatch.setattr(features, "BATCH_TOKENS", 128)
    over = ["task=mini_qa", f"encoder={encoder}", *more]
    cached = states(encoded(tmp_path, *over))
    in_memory = encoded(tmp_path / "second", *over, "feature_cache_gb=0")
    monkeypatch.setattr(encoding, "memory_for_features", lambda **_: 1)
    with pytest.warns(UserWarning, match="increase feature_cache_gb"):
        recomputed = encoded(tmp_path / "third", *over, "feature_cache_gb=0")
    order = np.random.default_rng(0).permutation(len(cached))
    for others in (states(in_memory), states(recomputed)):
        for i in order:
            assert np.array_equal(cached[i], others[i])


def test_features_are_the_states_of_the_encoder(tmp_path: Path) -> None:
    """Up to rounding, whatever the batch."""
    cell, task, sequences = inputs(tmp_path, "task=mini_ner", "encoder=mini_bert")
    found = states(frozen_features(cell, task, sequences, lambda event: None))
    encoder = load_transferred(cell).eval()
    windows = sequences.tokenize(encoder.tokenizer, windowing(cell, task, encoder))
    rows = [w for ws in windows for w in ws]
    with torch.inference_mode():
        expected = encoder(TokenBatch.collate(rows, pad=encoder.tokenizer.pad)).last_hidden_state.numpy()
    for row, state, one in zip(rows, expected, found, strict=True):
        assert np.allclose(state[: len(row)], one, atol=1e-5)


def test_batches_that_do_not_fit_are_dropped_and_computed_again(tmp_path: Path) -> None:
    cell, task, sequences = inputs(tmp_path, "task=mini_topic", "encoder=mini_bert")
    source = features.FeatureSource(
        load_transferred(cell),
        sequences,
        windowing=windowing(cell, task, load_transferred(cell)),
        layers="top",
        device=torch.device("cpu"),
        autocast=None,
    )
    source.batches = [[i] for i in range(len(source.rows))]
    two = sum(next(source.states([i])).nbytes for i in (0, 1))
    streamed = StreamedFeatures(source, max_bytes=two)
    for number in (0, 1, 0, 1):
        streamed.row(number)
    assert streamed.computed == 2
    streamed.row(2)
    streamed.row(1)
    assert streamed.computed >= 3
    streamed.row(0)
    assert streamed.computed >= 4
