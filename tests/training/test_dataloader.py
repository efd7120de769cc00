"""Steps, micro-batches and the distinct sequences of a task."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.data.text import Example, Text
from harness.data.tokens import TokenizedWindow
from harness.training.dataloader import Batching, HarnessData, Item, make_items, split_by_tokens, step_order
from harness.training.sequences import Sequences, align_rows


def row(n: int) -> TokenizedWindow:
    ids = np.arange(n)
    return TokenizedWindow({"input_ids": ids}, ids, np.zeros((n, 2), int), np.zeros(n, int), ids)


def items_of(lengths: list[int]) -> list[Item]:
    return [Item(i, Example(str(i), (), None), [(row(n),)], [{}]) for i, n in enumerate(lengths)]


@given(lengths=st.lists(st.integers(1, 50), min_size=1, max_size=200), size=st.integers(1, 17))
def test_an_epoch_contains_every_example_once(lengths: list[int], size: int) -> None:
    items = items_of(lengths)
    steps = step_order(items, batch_size=size, seed=1, epoch=0)
    assert Counter(i for step in steps for i in step) == Counter(range(len(items)))
    assert len(steps) == -(-len(items) // size)
    assert all(len(step) <= size for step in steps)


def test_order_is_a_function_of_seed_and_epoch() -> None:
    items = items_of([i % 13 + 1 for i in range(100)])

    def order(seed: int, epoch: int) -> list[list[int]]:
        return step_order(items, batch_size=8, seed=seed, epoch=epoch)

    assert order(0, 0) == order(0, 0)
    assert order(0, 0) != order(0, 1)
    assert order(0, 0) != order(1, 0)


def test_steps_hold_examples_of_similar_length() -> None:
    items = items_of([i % 50 + 1 for i in range(800)])
    spread = [
        max(items[i].width for i in step) - min(items[i].width for i in step)
        for step in step_order(items, batch_size=16, seed=0, epoch=0)
    ]
    assert np.mean(spread) < 20


@given(lengths=st.lists(st.integers(1, 50), min_size=1, max_size=40), budget=st.integers(1, 200))
def test_micro_batches_stay_within_the_token_limit_and_are_complete(lengths: list[int], budget: int) -> None:
    items = items_of(lengths)
    parts = split_by_tokens(items, range(len(items)), max_length=budget)
    assert Counter(i for part in parts for i in part) == Counter(range(len(items)))
    for part in parts:
        assert len(part) == 1 or max(items[i].width for i in part) * len(part) <= budget


@pytest.mark.parametrize("size", [1, 2, 5])
def test_evaluation_contains_every_example_once(size: int) -> None:
    """Also where the last batch has a single example."""
    items = items_of([3, 1, 2, 5, 4])
    batching = Batching(batch_size=4, eval_batch_size=size, max_length=None, seed=0)
    data = HarnessData({"test": items}, batching=batching, pad={})
    seen = [e.id for step in data.eval_loader("test") for b in step.batches for e in b.examples]
    assert sorted(seen) == ["0", "1", "2", "3", "4"]


def test_a_shared_context_is_one_sequence_and_its_windows_are_paired_with_each_question() -> None:
    context = Text.from_string("one long context of words")
    examples = [Example(str(i), (Text.from_string(f"question {i}"), context), None) for i in range(3)]
    apart = Sequences.of(examples, joint=False)
    assert len(apart.items) == 4
    windows = [[row(2)], [row(3), row(3)], [row(2)], [row(2)]]
    items = make_items(examples, apart, windows, task=None)
    assert [len(i.rows) for i in items] == [2, 2, 2]
    assert all(pair[0] is items[0].rows[0][0] for pair in items[0].rows)
    assert len(Sequences.of(examples, joint=True).items) == 3


def test_a_single_window_is_repeated_for_each_window_of_the_other_text() -> None:
    question, first, second = row(1), row(2), row(3)
    assert align_rows([[question], [first, second]]) == [(question, first), (question, second)]


def test_the_fingerprint_depends_on_words_and_order() -> None:
    def of(*texts: Text) -> str:
        return Sequences.of([Example("x", (t,), None) for t in texts], joint=False).fingerprint()

    a, b = Text.from_string("a b"), Text.from_string("b a")
    assert of(a, b) != of(b, a)
    assert of(Text.from_words(["a b"])) != of(Text.from_words(["a", "b"]))
    assert of(a) == of(Text.from_string("a b"))
