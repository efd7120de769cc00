"""Classification by the states of words that the data point at (``task.target``)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from harness.data.batch import Batch
from harness.data.text import Text
from harness.data.tokens import EncoderOutput, TokenizedWindow
from harness.errors import HarnessError
from harness.task import HeadInput
from harness_tasks.classification.head import ClassificationHead, target_states
from harness_tasks.classification.reader import TargetExample
from harness_tasks.classification.task import TextClassification
from tests.helpers.data_files import copied

torch.set_num_threads(1)
LABELS = ["different", "same"]


def row(
    word_ids: list[int], segment: list[int] | None = None, tokens: list[int] | None = None
) -> TokenizedWindow:
    ids = np.array(word_ids)
    words = max(word_ids) + 1
    first = [word_ids.index(w) if w in word_ids else -1 for w in range(words)]
    return TokenizedWindow(
        inputs={},
        word_ids=ids,
        offsets=np.zeros((len(ids), 2), dtype=np.int64),
        sequence_ids=np.where(ids < 0, -1, np.array(segment or [0] * len(ids))),
        word_to_token=np.array(tokens if tokens is not None else first),
    )


def batch_of(at: list[tuple[int, ...]], rows: list[tuple[TokenizedWindow, ...]]) -> Batch:
    text = Text.from_string("a b c d e f")
    items = []
    for i, (places, pair) in enumerate(zip(at, rows, strict=True)):
        example = TargetExample(str(i), (text,) * len(places), "same", (), places)
        items.append((i, example, [pair], [{}]))
    return Batch.collate(items)


def encoded(batch: Batch, hidden: int = 3) -> tuple[EncoderOutput, ...]:
    torch.manual_seed(0)
    return tuple(EncoderOutput(torch.randn(*u.mask.shape, hidden)) for u in batch.tokens)


def test_separate_pairs_read_the_word_of_each_text_as_the_mean_of_its_units() -> None:
    rows = [(row([0, 1, 1, 2]), row([0, 1])), (row([0, 0, 1]), row([0, 1, 2, 2, 2]))]
    batch = batch_of([(1, 0), (0, 2)], rows)
    states = encoded(batch)
    u, v = target_states(states, batch)
    torch.testing.assert_close(u[0], states[0].last_hidden_state[0, 1:3].mean(0))
    torch.testing.assert_close(u[1], states[0].last_hidden_state[1, :2].mean(0))
    torch.testing.assert_close(v[0], states[1].last_hidden_state[0, 0])
    torch.testing.assert_close(v[1], states[1].last_hidden_state[1, 2:5].mean(0))


def test_joint_pairs_read_both_words_in_their_row() -> None:
    joint = row([-1, 0, 1, -1, 0, 1, 1, -1], [0, 0, 0, 0, 1, 1, 1, 0], tokens=[4, 5])
    batch = batch_of([(1, 1)], [(joint,)])
    states = encoded(batch)
    u, v = target_states(states, batch)
    torch.testing.assert_close(u[0], states[0].last_hidden_state[0, 2])
    torch.testing.assert_close(v[0], states[0].last_hidden_state[0, 5:7].mean(0))


def test_a_word_joined_to_its_neighbour_stands_there_and_a_lost_one_is_the_mean_of_the_text() -> None:
    joined = row([0, 1, 3], tokens=[0, 1, 1, 2])
    lost = row([-1, 0, 1])
    batch = batch_of([(2,), (5,)], [(joined,), (lost,)])
    states = encoded(batch)
    (u,) = target_states(states, batch)
    torch.testing.assert_close(u[0], states[0].last_hidden_state[0, 1])
    torch.testing.assert_close(u[1], states[0].last_hidden_state[1, 1:3].mean(0))


@pytest.mark.parametrize(("pairs", "wide"), [("single", 1), ("joint", 4), ("separate", 4)])
def test_the_head_is_as_wide_as_its_features_whatever_the_pooling(pairs: str, wide: int) -> None:
    spec = HeadInput(hidden_size=3, pooling="concat", pooled=True, pairs=pairs, dropout=0.0)
    head = ClassificationHead(spec, LABELS, target=True)
    assert head.output.in_features == 3 * wide
    sides = 2 if pairs == "separate" else 1
    words = row([0, 1, 2]) if pairs != "joint" else row([0, 1, 0, 1], [0, 0, 1, 1], tokens=[2, 3])
    batch = batch_of([(0,) if pairs == "single" else (0, 1)] * 2, [(words,) * sides] * 2)
    assert head(encoded(batch), batch)["logits"].shape == (2, 2)


def make(tmp_path: Path, rows: str, **options: Any) -> TextClassification:
    path = tmp_path / "a.csv"
    path.write_text("text,text_b,label,at,at_b\n" + rows, encoding="utf-8")
    return TextClassification(
        train=str(path), dev="none", test=copied(path), text="text", text_b="text_b",
        **{"target": ["at", "at_b"], **options},
    )  # fmt: skip


def test_places_are_read_with_the_rows(tmp_path: Path) -> None:
    task = make(tmp_path, "the bank .,a bank was,same,1,1\nthe bank .,a bank was,different,1,0\n")
    train = task.splits().train
    assert all(isinstance(e, TargetExample) for e in train)
    assert [e.at for e in train if isinstance(e, TargetExample)] == [(1, 1), (1, 0)]


@pytest.mark.parametrize(
    ("rows", "options", "said"),
    [
        ("a b,c d,same,x,0\n", {}, "column at holds 'x'"),
        ("a b,c d,same,-1,0\n", {}, "column at holds"),
        (
            "a b,c d,same,0,2\na b,c d,different,0,0\n",
            {},
            "the target is word 2 (task.target, counted from 0)",
        ),
        ("a b,c d,same,0,0\n", {"target": "at"}, "expected 2 column(s), one per text"),
        ("a b,c d,same,0,0\n", {"target": ["at", "place"]}, "no column place (task.target)"),
    ],
)
def test_places_that_are_none_are_refused(
    tmp_path: Path, rows: str, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(HarnessError) as e:
        make(tmp_path, rows, **options).splits()
    assert said in str(e.value)
