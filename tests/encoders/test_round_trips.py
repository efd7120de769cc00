"""Texts, labels and answers survive tokenization by every bundled encoder, whatever the text contains."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness import load_encoder
from harness.data.text import Example, Text
from harness.data.tokenizer import Tokenizer, WindowOptions
from harness.data.tokens import TokenizedWindow
from harness_tasks.span_qa.targets import token_spans
from harness_tasks.tagging.task import Tagging

ENCODERS = ("mini_static", "mini_elmo", "mini_ulmfit", "mini_bert", "mini_gpt")
TEXTS = st.one_of(
    st.text(max_size=50),
    st.text("abé한국 \t\n\u00a0\u200b\u0345\u202eﬁ😀.'-<>[]xUX", max_size=50),
    st.lists(st.sampled_from(["The", "rindir", "ran", "'s", "aaaa", "XX", "<unk>", "[SEP]", "3.5"])).map(
        " ".join
    ),
)
WORDS = ["The", "Bo", "한국", "é", "aaaa", "3.5", "\u200b", "😀"]
WINDOWS = st.sampled_from([WindowOptions(), WindowOptions(12, 2), WindowOptions(8, 0)])


@cache
def tokenizer(encoder: str) -> Tokenizer:
    return load_encoder(encoder).tokenizer


def windows(encoder: str, text: Text, options: WindowOptions) -> list[TokenizedWindow]:
    (rows,) = tokenizer(encoder).tokenize([text], options)
    return rows


def owners(rows: list[TokenizedWindow]) -> np.ndarray:
    """Number of windows that own each word."""
    return np.sum([row.word_to_token >= 0 for row in rows], axis=0)


@pytest.mark.parametrize("encoder", ENCODERS)
@settings(max_examples=40, deadline=None)
@given(raw=TEXTS, options=WINDOWS)
def test_offsets_lead_back_to_the_words(encoder: str, raw: str, options: WindowOptions) -> None:
    text = Text.from_string(raw)
    rows = windows(encoder, text, options)
    for row in rows:
        real = row.sequence_ids >= 0
        assert (row.offsets[real, 0] <= row.offsets[real, 1]).all()
        assert (row.offsets[real] <= len(raw)).all()
        for token in np.flatnonzero(real & (row.word_ids >= 0)):
            start, end = text.spans[row.word_ids[token]]
            assert row.offsets[token, 0] < end
            assert row.offsets[token, 1] > start
        for word, token in enumerate(row.word_to_token):
            if token >= 0:
                start, end = text.spans[word]
                assert row.offsets[token, 0] < end
                assert row.offsets[token, 1] > start
    assert owners(rows).max(initial=0) <= 1
    whole = windows(encoder, text, WindowOptions())
    assert owners(rows).tolist() == owners(whole).tolist()
    if encoder in ("mini_static", "mini_elmo"):  # every word is a token
        assert owners(rows).tolist() == [1] * len(text)


@pytest.mark.parametrize("encoder", ENCODERS)
@settings(max_examples=30, deadline=None)
@given(
    sentence=st.lists(
        st.tuples(
            st.sampled_from(["The", "Bo", "한국", "é", "aaaa", "3.5", "\u200b", "😀"]), st.sampled_from("OBI")
        ),
        min_size=1,
        max_size=20,
    ),
    options=WINDOWS,
)
def test_labels_of_words_survive_as_targets_of_tokens(
    encoder: str, sentence: list[tuple[str, str]], options: WindowOptions
) -> None:
    """Each word that has a token gives its label to exactly one window, and no other label appears."""
    task = Tagging(name="t", train="unused")
    task.labels = ["O", "B-X", "I-X"]
    gold = [label if label == "O" else f"{label}-X" for _, label in sentence]
    text = Text.from_words([word for word, _ in sentence])
    rows = windows(encoder, text, options)
    targets = [target["labels"] for target in task.row_targets(Example("0", (text,), gold), rows)]
    for word, label in enumerate(gold):
        given_labels = [int(target[word]) for target in targets if target[word] != -100]
        owned = sum(int(row.word_to_token[word] >= 0) for row in rows)
        assert given_labels == [task.labels.index(label)] * owned
        assert owned <= 1


@pytest.mark.parametrize("encoder", ENCODERS)
@settings(max_examples=30, deadline=None)
@given(raw=TEXTS, data=st.data())
def test_answers_survive_as_spans_of_tokens(encoder: str, raw: str, data: st.DataObject) -> None:
    """The token span of an answer covers its characters, except those that the tokenizer drops."""
    text = Text.from_string(raw)
    if not len(text):
        return
    first = data.draw(st.integers(0, len(text) - 1))
    last = data.draw(st.integers(first, min(len(text) - 1, first + 4)))
    start, end = text.spans[first][0], text.spans[last][1]
    (row,) = windows(encoder, text, WindowOptions())
    (span,) = token_spans([row], start, end)
    real = row.sequence_ids >= 0
    touching = real & (row.offsets[:, 0] < end) & (row.offsets[:, 1] > start)
    if span is None:
        assert not touching.any()
        return
    covered = SimpleNamespace(start=row.offsets[span[0], 0], end=row.offsets[span[1], 1])
    assert covered.start <= row.offsets[touching, 0].min()
    assert covered.end >= row.offsets[touching, 1].max()
    assert touching[span[0]]
    assert touching[span[1]]
