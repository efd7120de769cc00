"""Padding, masks, pooling and word states."""

import numpy as np
import pytest
import torch

from harness.data.batch import Batch
from harness.data.targets import IGNORE_INDEX
from harness.data.text import Example, Text
from harness.data.tokens import TokenBatch, TokenizedWindow, last_true, pool, pooled_size, word_states


def row(
    word_ids: list[int], word_to_token: list[int], *, segment: list[int] | None = None
) -> TokenizedWindow:
    ids = np.array(word_ids)
    seg = np.array(segment) if segment else np.where(ids < 0, -1, 0)
    offsets = np.zeros((len(ids), 2), dtype=int)
    return TokenizedWindow({"input_ids": np.arange(len(ids)) + 5}, ids, offsets, seg, np.array(word_to_token))


def test_mask_comes_from_the_length_and_not_from_a_pad_id() -> None:
    short, long = row([-1, 0, -1], [1]), row([-1, 0, 1, 1, -1], [1, 2])
    short.inputs["input_ids"][1] = 9
    tokens = TokenBatch.collate([short, long], pad={"input_ids": 9})
    assert tokens.mask.tolist() == [[True] * 3 + [False] * 2, [True] * 5]
    assert tokens.inputs["input_ids"][0].tolist() == [5, 9, 7, 9, 9]
    assert tokens.word_to_token.tolist() == [[1, -1], [1, 2]]
    assert tokens.special.tolist()[0] == [True, False, True, False, False]
    assert tokens.content.sum().item() == 4


def test_last_true_finds_the_last_real_unit_wherever_the_padding_is() -> None:
    """Left padding must not make the last token wrong."""
    mask = torch.tensor([[1, 1, 1, 0], [0, 1, 1, 1], [0, 0, 1, 1], [1, 1, 1, 1]]).bool()
    hidden = torch.tensor([7, 11, 13, 17])
    assert hidden[last_true(mask)].tolist() == [13, 17, 17, 17]


@pytest.mark.parametrize("pads", [0, 2, 10])
@pytest.mark.parametrize("side", ["right", "left"])
def test_concat_pooling_looks_at_real_units_only(pads: int, side: str) -> None:
    """Padding must not enter the maximum or the mean."""
    real = torch.tensor([[1.0, -1.0], [3.0, -5.0]])
    padding = torch.full((pads, 2), 99.0)
    states = torch.cat([padding, real] if side == "left" else [real, padding])[None]
    mask = torch.zeros(1, pads + 2, dtype=torch.bool)
    mask[:, slice(pads, None) if side == "left" else slice(0, 2)] = True
    tokens = TokenBatch.collate([row([0, 1], [0, 1])])
    tokens.mask, tokens.sequence_ids = mask, torch.where(mask, 0, -1)
    assert pool(states, tokens, "concat")[0].tolist() == [3, -5, 3, -1, 2, -3]
    assert pool(states, tokens, "meanmax")[0].tolist() == [2, -3, 3, -1]


def test_pooling_leaves_special_units_out_but_for_cls_and_last() -> None:
    tokens = TokenBatch.collate([row([-1, 0, 1, -1], [1, 2])])
    states = torch.tensor([[[100.0], [1.0], [3.0], [200.0]]])
    got = {how: pool(states, tokens, how)[0].tolist() for how in ("cls", "last", "mean", "max", "concat")}
    assert got == {"cls": [100], "last": [200], "mean": [2], "max": [3], "concat": [3, 3, 2]}
    assert pooled_size(7, "concat") == 21


def test_a_row_without_text_still_pools() -> None:
    tokens = TokenBatch.collate([row([-1, -1], []), row([-1, 0, -1], [1])])
    states = torch.arange(6.0).view(2, 3, 1)
    assert torch.isfinite(pool(states, tokens, "concat")).all()
    empty = TokenBatch.collate([row([], [])])
    assert torch.isfinite(pool(torch.zeros(1, 1, 2), empty, "mean")).all()


def test_word_states_first_mean_and_missing() -> None:
    tokens = TokenBatch.collate([row([-1, 0, 0, 2, -1], [1, -1, 3])])
    states = torch.tensor([[[9.0], [1.0], [3.0], [5.0], [9.0]]])
    assert word_states(states, tokens)[0, :, 0].tolist() == [1, 0, 5]
    assert word_states(states, tokens, how="mean")[0, :, 0].tolist() == [2, 0, 5]


def test_word_that_shares_a_unit_gets_that_unit() -> None:
    tokens = TokenBatch.collate([row([0, 2], [0, 0, 1])])  # words 0 and 1 are one token
    states = torch.tensor([[[1.0], [4.0]]])
    for how in ("first", "mean"):
        assert word_states(states, tokens, how=how)[0, :, 0].tolist() == [1, 1, 4]


def test_word_states_of_a_joint_pair_are_those_of_the_second_text() -> None:
    tokens = TokenBatch.collate([row([-1, 0, -1, 0, 1, -1], [3, 4], segment=[-1, 0, -1, 1, 1, -1])])
    states = torch.arange(6.0).view(1, 6, 1)
    assert word_states(states, tokens, how="mean")[0, :, 0].tolist() == [3, 4]


def test_batch_keeps_whole_examples_and_pads_targets() -> None:
    text = Text.from_words(["a", "b"])
    examples = [Example("x", (text,), None), Example("y", (text,), None)]
    two = [(row([0], [0, -1]),), (row([1], [-1, 0]),)]
    items = [
        (
            4,
            examples[0],
            two,
            [{"labels": np.array([1, IGNORE_INDEX])}, {"labels": np.array([IGNORE_INDEX, 2])}],
        ),
        (7, examples[1], [(row([0], [0]),)], [{"labels": np.array([3])}]),
    ]
    batch = Batch.collate(items)
    assert batch.groups == [[0, 1], [2]]
    assert batch.tokens[0].example.tolist() == [4, 4, 7]
    assert batch.targets["labels"].tolist() == [[1, IGNORE_INDEX], [IGNORE_INDEX, 2], [3, IGNORE_INDEX]]
    assert len(batch) == 2
