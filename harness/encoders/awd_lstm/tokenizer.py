"""Tokenizer of AWD-LSTMs: fastai's tokens, with one vocabulary or, for two models, two.

A row is ``xxbos`` and the tokens of its window. ``xxbos`` belongs to no word but counts as text, as in
fastai's pooling. Markers belong to the word that they precede.

**Which token represents a word.** The state at ``xxmaj`` has not read the following word, so a marker never
represents a word. A forward LSTM has read the whole word at its last token, a backward LSTM at its first:
``word_state`` selects one of them. A bidirectional encoder uses the last token, where the forward half has
read the whole word and the backward half everything after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from harness.data.text import Text
from harness.data.tokenizer import WindowOptions
from harness.data.tokens import TokenizedWindow
from harness.data.windows import owners, windows
from harness.encoders.alignment import align
from harness.encoders.awd_lstm.fastai_rules import (
    BOS,
    MAJ,
    PAD,
    REP,
    UNKNOWN,
    UP,
    WREP,
    FastaiToken,
    fastai_tokens,
)
from harness.errors import HarnessError

_OLD_NAMES = {UNKNOWN: "_unk_", PAD: "_pad_", BOS: "xbos", UP: "t_up", REP: "tk_rep", WREP: "tk_wrep"}
"""Names in the vocabularies of 2018, before version 1 of fastai."""
_MARKERS = (UP, MAJ, REP, WREP)
_fastai_tokens = lru_cache(maxsize=4096)(fastai_tokens)


class Vocabulary:
    """Maps words to rows of a table.

    Args:
        words: in the order of the rows.
        task: words that are not in the table get a row after the table's if they were given to
            :meth:`extend`, and otherwise share the first such row; if False, they are the unknown word.

    Attributes:
        added: number of rows after the table's.

    Example: with the words [a, b] and ``task``, "c" has the row 2; after ``extend(["c"])`` it has the row 3.
    """

    def __init__(self, words: Sequence[str], *, task: bool) -> None:
        self.words = list(words)
        # reversed: the first row of a word that is listed twice wins
        self.ids = {word: i for i, word in reversed(list(enumerate(words)))}
        for new, old in _OLD_NAMES.items():
            if new not in self.ids and old in self.ids:
                self.ids[new] = self.ids[old]
        self.task = task
        self._new: dict[str, int] = {}
        if not task and UNKNOWN not in self.ids:
            raise HarnessError(
                f"encoder.vocabulary=pretrained: the vocabulary has no {UNKNOWN}; set encoder.vocabulary=task"
            )

    @property
    def added(self) -> int:
        return 1 + len(self._new) if self.task else 0

    def known(self, token: str) -> bool:
        """Return whether the table contains the token."""
        return token in self.ids

    def id_of(self, token: str) -> int:
        index = self.ids.get(token)
        if index is not None:
            return index
        # row len(words) is shared by all new words that were not added
        return self._new.get(token, len(self.words)) if self.task else self.ids[UNKNOWN]

    def extend(self, tokens: Iterable[str]) -> list[str]:
        """Add rows for tokens that are not in the table, in alphabetical order; return all added tokens."""
        if self.task:
            for token in sorted({t for t in tokens if t not in self.ids} - self._new.keys()):
                # + 1 for the shared row
                self._new[token] = len(self.words) + 1 + len(self._new)
        return list(self._new)

    def all_words(self) -> list[str]:
        """Return the words of all rows; the shared row of new words is named ``xxnew``."""
        return self.words + (["xxnew", *self._new] if self.task else [])


@dataclass(slots=True)
class _TokenizedText:
    """Ids (S, inputs), word of each token (S,), offsets (S, 2), and the token of each word."""

    ids: np.ndarray
    word: np.ndarray
    offsets: np.ndarray
    tokens: np.ndarray


@dataclass
class FastaiTokenizer:
    """See :class:`harness.data.tokenizer.Tokenizer`.

    Attributes:
        vocabularies: by the name of the input that contains their ids.
        word_state: the token that represents a word, ``first`` or ``last``.
        start: whether rows begin with ``xxbos``.
    """

    vocabularies: Mapping[str, Vocabulary]
    word_state: str = "last"
    start: bool = True
    counts: dict[str, int] = field(default_factory=dict)
    _types: dict[str, bool] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        names = ("texts", "texts_cut", "words", "words_known", "words_deleted", "tokens", "unknown_tokens")
        self.counts = dict.fromkeys(names, 0)

    @property
    def pad(self) -> Mapping[str, float]:
        return dict.fromkeys(self.vocabularies, 0)

    def table(self) -> FastaiTokenizer:
        """Return the tokenizer of a context-free table: the same tokens, no ``xxbos``."""
        return FastaiTokenizer(self.vocabularies, word_state="first", start=False)

    def tokenize(self, texts: Sequence[Text], windowing: WindowOptions) -> list[list[TokenizedWindow]]:
        room = windowing.max_length
        first = self._first()
        if room is not None and room <= len(first):
            raise HarnessError(
                f"rows of {room} tokens have room for {BOS} but not for text: raise trainer.max_length"
            )
        return [self._windows(self._encode(t), windowing, room and room - len(first)) for t in texts]

    def tokenize_pairs(
        self, pairs: Sequence[tuple[Text, Text]], windowing: WindowOptions
    ) -> list[list[TokenizedWindow]]:
        """Not supported, since an AWD-LSTM has no separators: always an error."""
        raise HarnessError(
            "an AWD-LSTM encodes the two texts of a pair separately: set encoder.pairs=separate"
        )

    def coverage(self) -> dict[str, float]:
        """Return counts of words, tokens, token types and texts.

        ``words``, ``words_known`` (all tokens of the word are in the vocabulary), ``words_deleted``;
        ``tokens``, ``unknown_tokens``, ``unknown_share``; ``types``, ``types_known``; ``texts``,
        ``texts_cut``. With two vocabularies, known means known by both.
        """
        share = self.counts["unknown_tokens"] / max(1, self.counts["tokens"])
        types = {"types": len(self._types), "types_known": sum(self._types.values())}
        return {k: float(v) for k, v in {**self.counts, **types, "unknown_share": share}.items()}

    def extend(self, words: Iterable[str]) -> None:
        """Add the tokens of ``words`` to every vocabulary."""
        tokens = {t.text for word in set(words) for t in _fastai_tokens(word) if not t.marker}
        for vocabulary in self.vocabularies.values():
            vocabulary.extend(tokens)

    def _first(self) -> list[int]:
        """Return the ids of ``xxbos``, one per input; empty if a vocabulary does not contain it."""
        known = all(v.known(BOS) for v in self.vocabularies.values())
        return [v.id_of(BOS) for v in self.vocabularies.values()] if self.start and known else []

    def _encode(self, text: Text) -> _TokenizedText:
        tokens = [t for t in fastai_tokens(text.text) if not self._is_unsupported_marker(t)]
        # (S, 2); the reshape keeps two columns if there are no tokens
        raw = np.array([(t.start, t.end) for t in tokens], dtype=np.int64).reshape(-1, 2)
        word, offsets, _ = align(text, raw)
        text_tokens = np.array([i for i, t in enumerate(tokens) if not t.marker], dtype=np.int64)
        # markers cannot represent a word, so only the other tokens are candidates
        word_to_token = _word_to_token(text, raw[text_tokens], text_tokens, last=self.word_state == "last")
        known = np.array(
            [all(v.known(t.text) for v in self.vocabularies.values()) for t in tokens], dtype=bool
        )
        self._count(tokens, word, word_to_token, known)
        numbers = [[v.id_of(t.text) for v in self.vocabularies.values()] for t in tokens]
        ids = np.array(numbers, dtype=np.int64).reshape(-1, len(self.vocabularies))
        return _TokenizedText(ids, word, offsets, word_to_token)

    def _is_unsupported_marker(self, token: FastaiToken) -> bool:
        """Return whether the model was trained without this marker, such as ``xxmaj`` in the vocabularies of
        2018."""
        is_marker = token.marker and token.text in _MARKERS
        return is_marker and not all(v.known(token.text) for v in self.vocabularies.values())

    def _count(
        self, tokens: Sequence[FastaiToken], word: np.ndarray, word_to_token: np.ndarray, known: np.ndarray
    ) -> None:
        # words with an unknown token; -1 among them stands for tokens of no word and is dropped below
        unknown = np.unique(word[~known])
        counts = self.counts
        counts["texts"] += 1
        counts["words"] += len(word_to_token)
        counts["words_deleted"] += int((word_to_token < 0).sum())
        # words that have a token, less those of them that have an unknown one
        counts["words_known"] += int((word_to_token >= 0).sum()) - int(
            (word_to_token[unknown[unknown >= 0]] >= 0).sum()
        )
        counts["tokens"] += len(tokens)
        counts["unknown_tokens"] += int((~known).sum())
        self._types |= {t.text: k for t, k in zip(tokens, known.tolist(), strict=True) if not t.marker}

    def _windows(
        self, row: _TokenizedText, windowing: WindowOptions, room: int | None
    ) -> list[TokenizedWindow]:
        n = len(row.word)
        if room is None or n <= room:
            wins = [(0, n)]
        elif windowing.truncate:
            wins = [(0, room)]
            self.counts["texts_cut"] += 1
        else:
            wins = windows(n, room, windowing.stride)
        owner = owners(n, wins)
        return [self._window(row, win, owner == i, i) for i, win in enumerate(wins)]

    def _window(
        self, row: _TokenizedText, window: tuple[int, int], owned: np.ndarray, index: int
    ) -> TokenizedWindow:
        start, length = window
        inside = slice(start, start + length)
        first = np.array(self._first(), dtype=np.int64).reshape(-1, len(self.vocabularies))
        ids = np.concatenate([first, row.ids[inside]])
        # in two steps, since -1 (a deleted word) would index the last token
        has = row.tokens >= 0
        has[has] = owned[row.tokens[has]]
        before = len(first)
        return TokenizedWindow(
            inputs={name: ids[:, i].copy() for i, name in enumerate(self.vocabularies)},
            # xxbos belongs to no word (-1), but its sequence id is that of text (0)
            word_ids=np.concatenate([np.full(before, -1), row.word[inside]]),
            offsets=np.concatenate([np.zeros((before, 2), dtype=np.int64), row.offsets[inside]]),
            sequence_ids=np.zeros(len(ids), dtype=np.int64),
            # token 12 of the text, in a window that starts at 10 behind xxbos, is token 12 - 10 + 1 = 3
            word_to_token=np.where(has, row.tokens - start + before, -1),
            window=index,
        )


def _word_to_token(text: Text, spans: np.ndarray, numbers: np.ndarray, *, last: bool) -> np.ndarray:
    """Return the index of the first or last token that covers a character of each word, -1 if none does.

    Example: the word "don't" has the tokens "do" and "n't", which are tokens 3 and 4: first gives 3, last
        gives 4.

    Args:
        text: the words.
        spans: (N, 2) characters of the tokens that may represent a word, in order.
        numbers: (N,) their indices in the row.
        last: use the last token instead of the first.
    """
    first = align(text, spans)[2]
    if not len(spans):
        return first
    # first = -1 reads the last number, which the condition discards
    out = np.where(first >= 0, numbers[first], -1)
    if not last or not len(text):
        return out
    words = np.array(text.spans, dtype=np.int64)
    # tokens that are not blank
    keep = np.flatnonzero([bool(text.text[a:b].strip()) for a, b in spans.tolist()])
    if not len(keep):
        return out
    # the last token that starts before the word's end
    # "I don't" has the words (0, 1) and (2, 7), and tokens that start at 0, 2 and 4: 1 and 3 of them start
    # before the words' ends 1 and 7, so the last ones are the tokens 0 and 2
    at = np.maximum(np.searchsorted(spans[keep, 0], words[:, 1]) - 1, 0)
    covers = (first >= 0) & (spans[keep[at], 1] > words[:, 0]) & (spans[keep[at], 0] < words[:, 1])
    return np.where(covers, numbers[keep[at]], out)
