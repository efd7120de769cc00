"""Cutting splits and taking samples: fixed by the seed, fair to classes, whole in groups."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.data.splits import complete, cut, join_groups, limit
from harness.errors import HarnessError


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.sampled_from("abcd"), min_size=2, max_size=200),
    st.floats(0.01, 0.6),
    st.integers(0, 100),
)
def test_a_cut_is_a_partition_that_leaves_every_class_in_train(
    classes: list[str], f: float, seed: int
) -> None:
    items = list(enumerate(classes))
    done = cut(items, f, seed, stratify=lambda item: item[1])
    assert sorted(done.rest + done.part) == items
    assert done.rest == sorted(done.rest)
    assert done.rest
    counts = Counter(classes)
    if max(counts.values()) > 1:
        assert {c for _, c in done.rest} == set(counts)
        assert all(n <= f * counts[c] + 1 for c, n in Counter(c for _, c in done.part).items())
    else:
        assert done.notes
    assert cut(items, f, seed, stratify=lambda item: item[1]) == done


def test_stratified_shares_are_exact_where_they_can_be() -> None:
    items = list("a" * 600 + "b" * 300 + "c" * 100)
    part = cut(items, 0.1, 13, stratify=str).part
    assert Counter(part) == {"a": 60, "b": 30, "c": 10}


def test_a_class_with_one_example_stays_in_train_with_a_note() -> None:
    done = cut(["a"] * 9 + ["b"], 0.2, 13, stratify=str)
    assert Counter(done.rest) == {"a": 7, "b": 1}
    assert "'b'" in done.notes[0]


def test_the_cut_is_the_same_on_every_machine() -> None:
    assert cut(list(range(20)), 0.25, 13).part == [1, 4, 11, 14, 17]


def test_seeds_differ() -> None:
    assert cut(list(range(100)), 0.1, 1).part != cut(list(range(100)), 0.1, 2).part


def test_groups_stay_whole() -> None:
    done = cut(list(range(100)), 0.2, 13, group=lambda i: i // 7)
    assert not {i // 7 for i in done.rest} & {i // 7 for i in done.part}
    assert abs(len(done.part) - 20) <= 4


def test_one_big_group_never_empties_train() -> None:
    done = cut(list(range(10)), 0.5, 3, group=lambda i: i == 0)
    assert done.rest
    assert done.part


@pytest.mark.parametrize(
    ("items", "fraction", "group"),
    [([1, 2], 0, None), ([1, 2], 1, None), ([1], 0.5, None), ([1, 2], 0.5, str.__len__)],
)
def test_impossible_cuts_are_errors(items: list[int], fraction: float, group: object) -> None:
    with pytest.raises(HarnessError, match="cut"):
        cut(items, fraction, 13, group=None if group is None else lambda item: 0)


def test_limit_keeps_the_order_and_grows() -> None:
    items = list(range(50))
    small, large = limit(items, 5), limit(items, 20)
    assert small == sorted(small)
    assert set(small) < set(large)
    assert len(large) == 20
    assert limit(items, 100) == limit(items, None) == items
    assert limit([], 3) == []
    with pytest.raises(HarnessError, match="limit=0"):
        limit(items, 0)


def test_what_the_data_lack_is_cut_from_train_test_first() -> None:
    notes: list[str] = []
    fractions = {"dev": 0.1, "test": 0.2}
    read = {"train": list(range(100))}
    out = complete(read, no_dev=False, fractions=fractions, seed=13, notes=notes)
    assert {k: len(v) for k, v in out.items()} == {"train": 72, "dev": 8, "test": 20}
    assert sorted(i for part in out.values() for i in part) == list(range(100))
    assert [n.split(":")[0] for n in notes] == ["test", "dev"]
    again = complete(read, no_dev=False, fractions=fractions, seed=13, notes=[])
    assert again == out
    given = complete({**read, "test": [7]}, no_dev=True, fractions=fractions, seed=13, notes=notes)
    assert (len(given["train"]), given["dev"], given["test"]) == (100, [], [7])
    assert notes[-1] == "dev: none, as requested"


def test_examples_with_equal_keys_are_joined_through_others() -> None:
    assert join_groups(["a", "b", "a", "c"], [1, 2, 3, 2]) == [0, 1, 0, 1]
    assert join_groups(["a", "b", "c"], [1, None, None]) == [0, 1, 2]


@given(st.lists(st.tuples(st.integers(0, 12), st.sampled_from("ab")), min_size=30, max_size=60))
def test_a_stratified_cut_never_splits_a_group_nor_empties_a_class(rows: list[tuple[int, str]]) -> None:
    examples = [(i, *row) for i, row in enumerate(rows)]
    try:
        done = cut(examples, 0.2, 13, stratify=lambda e: e[2], group=lambda e: e[1])
    except HarnessError:
        return
    assert {e[1] for e in done.part}.isdisjoint({e[1] for e in done.rest})
    assert sorted(done.part + done.rest) == examples
    assert {e[2] for e in done.rest} == {e[2] for e in examples}
    assert done.part


def test_a_stratified_cut_of_copies_keeps_the_shares() -> None:
    examples = [(text, "ab"[text % 2]) for text in range(60) for _ in range(6)]
    part = cut(examples, 0.1, 13, stratify=lambda e: e[1], group=lambda e: e[0]).part
    assert Counter(label for _, label in part) == {"a": 18, "b": 18}
