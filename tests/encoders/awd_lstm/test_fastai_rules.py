"""fastai's tokenization rules: tokens equal to fastai 2.8, each with its span in the text."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.encoders.awd_lstm.english_tokens import english_tokens
from harness.encoders.awd_lstm.fastai_rules import BOS, FastaiToken, fastai_tokens

EXPECTED = Path(__file__).parent / "data" / "awd_lstm_expected.json"
GOLDEN = json.loads(EXPECTED.read_text(encoding="utf-8"))


def words(text: str) -> list[str]:
    return [t.text for t in fastai_tokens(text)]


@pytest.mark.parametrize(("text", "expected"), list(zip(GOLDEN["sentences"], GOLDEN["tokens"], strict=True)))
def test_tokens_equal_fastai(text: str, expected: list[str]) -> None:
    """The expected tokens were written by benchmarks/awd_lstm_parity.py with fastai and spaCy."""
    assert [BOS, *words(text)] == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("NASA", ["xxup", "nasa"]),
        ("Nasa", ["xxmaj", "nasa"]),
        ("I am", ["i", "am"]),
        ("iPhone", ["iphone"]),
        ("!!!!", ["xxrep", "4", "!"]),
        ("!!", ["!", "!"]),
        ("very very very good", ["xxwrep", "3", "very", "good"]),
        ("very very good", ["very", "very", "good"]),
        ("a/b", ["a", "/", "b"]),
        ("AT&#38;T", ["xxup", "at&t"]),
        ("cannot he'll it's i'd've", ["can", "not", "he", "'ll", "it", "'s", "i", "'d", "'ve"]),
        ("its hell", ["its", "hell"]),
        ("5kg, 10%.", ["5", "kg", ",", "10", "%", "."]),
        ("mail.example.org.", ["mail.example.org", "."]),
        ("e.g. the u.s. x.", ["e.g.", "the", "u.s", ".", "x."]),
        ("a\n b", ["a", "\n▁", "b"]),
    ],
)
def test_each_rule(text: str, expected: list[str]) -> None:
    assert words(text) == expected


def test_token_spans() -> None:
    text = "Sooo  GREAT, isn't it? &lt;b&gt; no no no!"
    pairs = [(t.text, text[t.start : t.end]) for t in fastai_tokens(text)]
    assert pairs[:5] == [("s", "S"), ("xxrep", "ooo"), ("3", "ooo"), ("o", "ooo"), ("xxup", "GREAT")]
    assert pairs[5:10] == [("great", "GREAT"), (",", ","), ("is", "is"), ("n't", "n't"), ("it", "it")]
    assert ("<", "&lt;") in pairs
    assert pairs[-4:] == [("xxwrep", "no no no"), ("3", "no no no"), ("no", "no no no"), ("!", "!")]


def test_markers_have_the_span_of_their_token() -> None:
    tokens = fastai_tokens("The USA won")
    assert tokens[0] == FastaiToken("xxmaj", 0, 3, True)
    assert tokens[1] == FastaiToken("the", 0, 3)
    assert [t.marker for t in tokens] == [True, False, True, False, False]
    assert not fastai_tokens("xxmaj typed")[0].marker


ALPHABET = st.text(
    st.sampled_from("aA bB.,'’-!/#&;<>:=)$10\n\t\u00a0éİßﬁ서🚀\u0301\u200b\ud800"), max_size=40
)


@settings(max_examples=100, deadline=None)
@given(ALPHABET | st.text(max_size=40))
def test_token_spans_are_ordered_and_within_the_text(text: str) -> None:
    at = 0
    for token in fastai_tokens(text):
        assert token.text
        assert 0 <= token.start <= token.end <= len(text)
        assert token.start >= at
        at = token.start


@settings(max_examples=100, deadline=None)
@given(ALPHABET)
def test_tokens_cover_all_non_space_characters(text: str) -> None:
    spans = english_tokens(text)
    joined = "".join(text[a:b] for a, b in spans)
    assert joined.replace(" ", "") == text.replace(" ", "")
    assert all(a < b for a, b in spans)
    assert all(b <= c for (_, b), (c, _) in pairwise(spans))
