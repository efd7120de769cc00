"""Sub-word tokens: alignment with words, windows, pairs, truncation, unknown tokens."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.data.text import Text
from harness.data.tokenizer import WindowOptions
from harness.data.tokens import TokenizedWindow
from harness.encoders.transformer.template import Template, read_template
from harness.encoders.transformer.tokenizer import HFTokenizer
from harness.errors import HarnessError
from tests.helpers.tiny_transformers import TEXT, byte_level, unigram, wordpiece


def bert_like(backend=None, max_length=None) -> HFTokenizer:
    backend = backend or wordpiece()
    return HFTokenizer(
        backend,
        read_template(backend, pair=False),
        pair=read_template(backend, pair=True),
        unknown=backend.token_to_id("[UNK]"),
        types=True,
        max_length=max_length,
    )


def gpt_like(max_length=None) -> HFTokenizer:
    backend = byte_level()
    start = backend.get_vocab_size()
    return HFTokenizer(
        backend,
        read_template(backend, pair=False),
        pair=Template.of([start], 0, [start + 1], 1, [start + 2]),
        empty=Template.of([start + 2]),
        max_length=max_length,
    )


MAKERS = {
    "wordpiece": bert_like,
    "byte level": gpt_like,
    "roberta": lambda max_length=None: bert_like(byte_level(roberta=True), max_length),
    "unigram": lambda max_length=None: bert_like(unigram(), max_length),
}
TOKENIZERS = {name: make() for name, make in MAKERS.items()}


def tokens(tokenizer: HFTokenizer, row: TokenizedWindow) -> list[str | None]:
    return [tokenizer.backend.id_to_token(i) for i in row.inputs["input_ids"].tolist()]


def check_row(row: TokenizedWindow, texts: list[Text]) -> None:
    """Check the contract of a tokenized window."""
    size = len(row)
    assert row.offsets.shape == (size, 2)
    assert all(len(v) == size for v in row.inputs.values())
    for word, (a, b), segment in zip(row.word_ids, row.offsets, row.sequence_ids, strict=True):
        if segment < 0:
            assert (word, a, b) == (-1, 0, 0)
            continue
        source = texts[segment]
        assert 0 <= a <= b <= len(source.text)
        piece = source.text[a:b]
        if word >= 0:
            lo, hi = source.spans[word]
            assert lo <= a < hi
            assert piece
        else:
            assert piece == piece.strip()
    for word, token in enumerate(row.word_to_token):
        if token >= 0:
            assert row.sequence_ids[token] == len(texts) - 1
            lo, hi = texts[-1].spans[word]
            assert row.word_ids[token] <= word
            assert row.offsets[token, 0] < hi
            assert row.offsets[token, 1] > lo


def check_owned_once(tokenizer: HFTokenizer, rows: list[TokenizedWindow], text: Text) -> None:
    """Check that every word that the tokenizer did not remove has its token in exactly one window."""
    full = tokenizer.table().tokenize([text], WindowOptions())[0][0]
    owned = np.stack([r.word_to_token >= 0 for r in rows]).sum(0)
    assert owned.tolist() == (full.word_to_token >= 0).astype(int).tolist()
    assert [r.window for r in rows] == list(range(len(rows)))


any_text = st.one_of(
    st.text(max_size=60),
    st.text("ab \u200b\t\n\u00a0é한국́\u0345ﬁ😀.'-<>[]SEPCLSUNK", max_size=60),
)


@pytest.mark.parametrize("kind", TOKENIZERS)
@settings(max_examples=40, deadline=None)
@given(raw=any_text, room=st.one_of(st.none(), st.integers(8, 20)), stride=st.integers(0, 3))
def test_alignment_of_any_text(kind, raw, room, stride):
    """Offsets lie within the text and exclude whitespace; every word with pieces has a token."""
    tokenizer, text = TOKENIZERS[kind], Text.from_string(raw)
    (rows,) = tokenizer.tokenize([text], WindowOptions(room, stride))
    for row in rows:
        check_row(row, [text])
        assert room is None or len(row) <= room
    check_owned_once(tokenizer, rows, text)
    aligned = {int(w) for r in rows for w in r.word_ids if w >= 0}
    owned = {w for r in rows for w in range(len(text)) if r.word_to_token[w] >= 0}
    assert aligned <= owned


@pytest.mark.parametrize("kind", TOKENIZERS)
@settings(max_examples=25, deadline=None)
@given(first=any_text, second=any_text, room=st.integers(10, 20), cut=st.booleans())
def test_alignment_of_any_pair(kind, first, second, room, cut):
    tokenizer, pair = TOKENIZERS[kind], (Text.from_string(first), Text.from_string(second))
    (rows,) = tokenizer.tokenize_pairs([pair], WindowOptions(room, 2, truncate=cut, max_first=3))
    for row in rows:
        check_row(row, list(pair))
        assert len(row) <= room
    if cut:
        assert len(rows) == 1
    else:
        check_owned_once(tokenizer, rows, pair[1])


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_pretokenized_words(kind):
    words = ["Ana", "runs", "1,000", "D.C.", "naïve", "ana's", "", "x"]
    text = Text.from_words(words)
    (row,) = TOKENIZERS[kind].tokenize([text], WindowOptions())[0]
    check_row(row, [text])
    assert (row.word_to_token >= 0).tolist() == [True] * 6 + [False, True]
    for word, token in enumerate(row.word_to_token):
        if token >= 0:
            assert row.offsets[token, 0] == text.spans[word][0]


def test_removed_word_does_not_shift_later_words():
    """A zero-width space as a pretokenized word gets no token; the words after it keep theirs."""
    tokenizer = bert_like()
    text = Text.from_words(["Ana", "\u200b", "runs"])
    (row,) = tokenizer.tokenize([text], WindowOptions())[0]
    assert row.word_ids.tolist() == [-1, 0, 2, -1]
    assert row.word_to_token.tolist() == [1, -1, 2]
    assert tokenizer.coverage()["words_deleted"] == 1


def test_token_of_a_word_is_its_first_piece():
    """Check word ids of the pieces and the first token of each word."""
    tokenizer = bert_like()
    text = Text.from_words(["Washington", "d.c."])
    (row,) = tokenizer.tokenize([text], WindowOptions())[0]
    assert tokens(tokenizer, row) == ["[CLS]", "wash", "##ington", "d", ".", "c", ".", "[SEP]"]
    assert row.word_ids.tolist() == [-1, 0, 0, 1, 1, 1, 1, -1]
    assert row.word_to_token.tolist() == [1, 3]


def test_token_types_of_a_pair():
    """Token types are 0 for the first and 1 for the second text, also if truncated; 0 for a single text."""
    tokenizer = bert_like()
    pair = (Text.from_string("how are you"), Text.from_string("fine"))
    (row,) = tokenizer.tokenize_pairs([pair], WindowOptions())[0]
    assert tokens(tokenizer, row) == ["[CLS]", "how", "are", "you", "[SEP]", "fine", "[SEP]"]
    assert row.inputs["token_type_ids"].tolist() == [0, 0, 0, 0, 0, 1, 1]
    assert row.sequence_ids.tolist() == [-1, 0, 0, 0, -1, 1, -1]
    assert row.word_to_token.tolist() == [5]
    (single,) = tokenizer.tokenize([pair[0]], WindowOptions())[0]
    assert single.inputs["token_type_ids"].tolist() == [0] * 5
    (short,) = tokenizer.tokenize_pairs([pair], WindowOptions(6, truncate=True))[0]
    assert short.inputs["token_type_ids"].tolist() == [0, 0, 0, 0, 1, 1]


@pytest.mark.parametrize(("a", "b"), [(5, 20), (20, 5), (3, 20), (20, 3), (0, 20), (20, 0), (4, 5)])
def test_pair_is_truncated_longest_first(a, b):
    """The window is never too long, and the longer text is truncated first."""
    tokenizer = bert_like()
    pair = (Text.from_string("a " * a), Text.from_string("b " * b))
    (row,) = tokenizer.tokenize_pairs([pair], WindowOptions(12, truncate=True))[0]
    first, second = ((row.sequence_ids == s).sum() for s in (0, 1))
    assert len(row) == min(12, a + b + 3)
    assert tokenizer.coverage()["texts_cut"] == (a + b > 9)
    if min(a, b) >= 5:
        assert abs(first - second) <= 1
    else:
        assert min(first, second) == min(a, b)


def test_long_question_leaves_room_for_the_context():
    """A question that fills the window must not loop forever.

    It is truncated and counted, and each word of the context is owned by one window.
    """
    tokenizer = bert_like(max_length=12)
    pair = (Text.from_string("q " * 20), Text.from_string("c " * 30))
    began = time.perf_counter()
    (rows,) = tokenizer.tokenize_pairs([pair], WindowOptions(512, 64, max_first=8))
    assert time.perf_counter() - began < 1
    assert max(map(len, rows)) <= 12
    check_owned_once(tokenizer, rows, pair[1])
    assert tokenizer.coverage()["firsts_cut"] == 1


def test_error_quotes_a_question_that_leaves_no_room():
    """Without a limit for the question, a question that fills the window is an error."""
    tokenizer = bert_like()
    question = "which of the many questions is this one " * 3
    with pytest.raises(HarnessError, match=r"which of the many.*trainer\.max_length"):
        tokenizer.tokenize_pairs([(Text.from_string(question), Text.from_string("c"))], WindowOptions(12, 4))


def test_unknown_hangul_is_reported():
    """A lower-casing tokenizer decomposes Hangul into [UNK]: the word keeps its token; coverage() warns."""
    text = Text.from_string("한국")
    lower, cased = bert_like(wordpiece(lower=True)), bert_like(wordpiece(lower=False))
    (row,) = lower.tokenize([text], WindowOptions())[0]
    assert tokens(lower, row)[1:-1] == ["[UNK]"]
    assert row.offsets[1].tolist() == [0, 2]
    assert row.word_to_token.tolist() == [1]
    with pytest.warns(UserWarning, match="100% of the tokenizer's tokens are unknown"):
        report = lower.coverage()
    assert (report["unknown_tokens"], report["tokens"], report["unknown_share"]) == (1, 1, 1.0)
    assert lower.coverage() == report  # warns once
    (row,) = cased.tokenize([text], WindowOptions())[0]
    assert tokens(cased, row)[1:-1] == ["한국"]
    assert cased.coverage()["unknown_tokens"] == 0


def test_long_text_is_covered_by_windows_with_specials():
    tokenizer = bert_like(max_length=10)
    text = Text.from_string("washington " * 40)
    (rows,) = tokenizer.tokenize([text], WindowOptions(stride=3))
    assert len(rows) > 10
    for row in rows:
        assert tokens(tokenizer, row)[0] == "[CLS]"
        assert tokens(tokenizer, row)[-1] == "[SEP]"
    check_owned_once(tokenizer, rows, text)


def test_truncation_keeps_the_first_window_and_counts():
    tokenizer = bert_like(max_length=10)
    texts = [Text.from_string("a " * 20), Text.from_string("a b")]
    first, second = tokenizer.tokenize(texts, WindowOptions(truncate=True))
    assert [len(first), len(second)] == [1, 1]
    assert first[0].word_to_token.tolist() == [*range(1, 9), *[-1] * 12]
    report = tokenizer.coverage()
    assert (report["texts"], report["texts_cut"]) == (2, 1)


def test_errors_for_windows_without_room_or_too_large_stride():
    with pytest.raises(HarnessError, match="2 special tokens but not for text"):
        bert_like().tokenize([Text.from_string("a")], WindowOptions(2, 0))
    with pytest.raises(HarnessError, match="stride=64"):
        bert_like().tokenize([Text.from_string("a")], WindowOptions(32, 64))


def test_padding_and_truncation_of_tokenizer_files_are_disabled():
    """Some published tokenizer files pad and truncate every text to 128 tokens."""
    backend = wordpiece()
    backend.enable_truncation(5)
    backend.enable_padding(length=5)
    (row,) = bert_like(backend).tokenize([Text.from_string("a " * 9)], WindowOptions())[0]
    assert len(row) == 11


def test_special_token_names_in_a_text_are_text():
    tokenizer = bert_like()
    (row,) = tokenizer.tokenize([Text.from_string("a [SEP] b")], WindowOptions())[0]
    assert tokens(tokenizer, row).count("[SEP]") == 1


def test_roberta_template_and_byte_offsets():
    tokenizer = TOKENIZERS["roberta"]
    pair = (Text.from_string("the  the"), Text.from_string(" 한"))
    (row,) = tokenizer.tokenize_pairs([pair], WindowOptions())[0]
    shown = tokens(tokenizer, row)
    assert shown[0] == "<s>"
    assert shown.count("</s>") == 3
    assert row.sequence_ids.tolist()[:7] == [-1, 0, 0, 0, -1, -1, 1]
    assert row.offsets[1:4].tolist() == [[0, 3], [4, 4], [5, 8]]
    assert row.word_ids[1:4].tolist() == [0, -1, 1]
    assert {tuple(o) for o in row.offsets[7:-1].tolist()} == {(1, 2)}  # all bytes of one character


def test_gpt_template_and_empty_text():
    tokenizer = gpt_like()
    base = tokenizer.backend.get_vocab_size()
    (row,) = tokenizer.tokenize_pairs([(Text.from_string("a"), Text.from_string("b"))], WindowOptions())[0]
    assert row.inputs["input_ids"][[0, 2, 4]].tolist() == [base, base + 1, base + 2]
    assert row.sequence_ids.tolist() == [-1, 0, -1, 1, -1]
    (empty,) = tokenizer.tokenize([Text.from_string("")], WindowOptions())[0]
    assert empty.inputs["input_ids"].tolist() == [base + 2]
    assert empty.sequence_ids.tolist() == [-1]


def test_lone_surrogates_keep_their_offsets():
    text = Text("a\ud800 b", ((0, 2), (3, 4)))
    (row,) = bert_like().tokenize([text], WindowOptions())[0]
    assert row.word_to_token.tolist()[1] >= 0
    assert row.offsets[row.word_to_token[1]].tolist() == [3, 4]


def test_words_in_one_piece_share_its_token():
    """Words that the tokenizer merges into one piece share that token."""
    tokenizer = bert_like()
    text = Text("washington", ((0, 4), (4, 7), (7, 10)), pretokenized=True)
    (row,) = tokenizer.tokenize([text], WindowOptions())[0]
    assert tokens(tokenizer, row) == ["[CLS]", "wash", "##ington", "[SEP]"]
    assert row.word_ids.tolist() == [-1, 0, 1, -1]
    assert row.word_to_token.tolist() == [1, 2, 2]


def test_ids_match_the_backend_tokenizer():
    for tokenizer in TOKENIZERS.values():
        (row,) = tokenizer.tokenize([Text.from_string(TEXT)], WindowOptions())[0]
        assert row.inputs["input_ids"].tolist() == tokenizer.backend.encode(TEXT).ids
