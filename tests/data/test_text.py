"""The word splitter and texts."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.data.text import Text, split_words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Don't stop, it's well-known.", ["Do", "n't", "stop", ",", "it", "'s", "well-known", "."]),
        ("does n't", ["does", "n't"]),
        ("O'Brien's U.S. office", ["O'Brien", "'s", "U.S.", "office"]),
        ("1,000.5 at 10:30, 5%", ["1,000.5", "at", "10:30", ",", "5", "%"]),
        ("서울에서 왔다.", ["서울에서", "왔다", "."]),
        ("नमस्ते दुनिया", ["नमस्ते", "दुनिया"]),
        ("東京タワー", ["東", "京", "タワー"]),
        ("wait... what--no", ["wait", "...", "what", "--", "no"]),
        ("a\u200bb", ["a", "b"]),
        ("\u200b", []),
        ("Go 🚀🚀 team", ["Go", "🚀", "🚀", "team"]),
        ("café e\u0301te", ["café", "e\u0301te"]),
        ("snake_case @user #tag", ["snake_case", "@", "user", "#", "tag"]),
        ("", []),
    ],
)
def test_words(text: str, words: list[str]) -> None:
    assert Text.from_string(text).words == words


@given(st.text())
def test_spans_are_ordered_disjoint_and_cover_every_visible_character(text: str) -> None:
    spans = split_words(text)
    assert all(0 <= a < b <= len(text) for a, b in spans)
    assert all(first[1] <= second[0] for first, second in itertools.pairwise(spans))
    covered = {i for a, b in spans for i in range(a, b)}
    letters = {i for i, c in enumerate(text) if c.isalnum()}
    assert letters <= covered


@given(st.lists(st.text(min_size=1), max_size=8))
def test_given_words_come_back(words: list[str]) -> None:
    text = Text.from_words(words)
    assert text.words == words
    assert text.pretokenized
