"""Texts as rows of an AWD-LSTM: fastai's tokens, numbered by one vocabulary or, for two models, by two.

A row is ``xxbos`` and the tokens of its window. ``xxbos`` belongs to no word but counts as text, since
fastai's pooling counts it. Markers belong to the word they precede.

**Which token stands for a word.** The state at ``xxmaj`` has not read the word behind it, so a marker never
stands for a word. An LSTM that reads from the left has read the whole word at its last token, one that reads
from the right at its first: ``stands`` says which. Where both are joined it is the last, where the forward
half has read all of it and the backward half all that follows.
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
from harness.encoders.awd_lstm.fastai_rules import BOS, MAJ, PAD, REP, UNKNOWN, UP, WREP, Token, fastai_tokens
from harness.errors import HarnessError

_OLD_NAMES = {UNKNOWN: "_unk_", PAD: "_pad_", BOS: "xbos", UP: "t_up", REP: "tk_rep", WREP: "tk_wrep"}
"""Names in the vocabularies of 2018, before fastai 1."""
_MARKERS = (UP, MAJ, REP, WREP)
_fastai_tokens = lru_cache(maxsize=4096)(fastai_tokens)


class Vocabulary:
    """Words to rows of a table.

    Args:
        words: in the order of the rows.
        task: a word the table lacks gets a row of its own behind the table's once :meth:`extend` was given
            it, and shares the first such row before; else it is the unknown word.

    Attributes:
        added: rows behind the table's.
    """

    def __init__(self, words: Sequence[str], *, task: bool) -> None:
        self.words = list(words)
        self.ids = {word: i for i, word in reversed(list(enumerate(words)))}
        for new, old in _OLD_NAMES.items():
            if new not in self.ids and old in self.ids:
                self.ids[new] = self.ids[old]
        self.task = task
        self._new: dict[str, int] = {}
        if not task and UNKNOWN not in self.ids:
            raise HarnessError(f"encoder.vocabulary=pretrained: the vocabulary has no {UNKNOWN}; use task")

    @property
    def added(self) -> int:
        return 1 + len(self._new) if self.task else 0

    def known(self, token: str) -> bool:
        """Whether the table has it."""
        return token in self.ids

    def number(self, token: str) -> int:
        found = self.ids.get(token)
        if found is not None:
            return found
        return self._new.get(token, len(self.words)) if self.task else self.ids[UNKNOWN]

    def extend(self, tokens: Iterable[str]) -> list[str]:
        """Give those that the table lacks rows of their own, in alphabetical order, and return them."""
        if self.task:
            for token in sorted({t for t in tokens if t not in self.ids} - self._new.keys()):
                self._new[token] = len(self.words) + 1 + len(self._new)
        return list(self._new)

    def all_words(self) -> list[str]:
        """Words of all rows; the one row that unnamed new words share has no word of a text."""
        return self.words + (["xxnew", *self._new] if self.task else [])


@dataclass(slots=True)
class _Row:
    """A tokenised text: ids (S, inputs), word (S,), offsets (S, 2) and the token of each word."""

    ids: np.ndarray
    word: np.ndarray
    offsets: np.ndarray
    tokens: np.ndarray


@dataclass
class FastaiTokenizer:
    """See :class:`harness.encoders.base.Tokenizer`.

    Attributes:
        vocabularies: by the name of the input their ids go to.
        stands: which token of a word stands for it, ``first`` or ``last``.
        start: rows begin with ``xxbos``.
    """

    vocabularies: Mapping[str, Vocabulary]
    stands: str = "last"
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
        """For a context-free table: the same tokens, no ``xxbos``."""
        return FastaiTokenizer(self.vocabularies, stands="first", start=False)

    def tokenize(self, texts: Sequence[Text], windowing: WindowOptions) -> list[list[TokenizedWindow]]:
        room = windowing.max_length
        first = self._first()
        if room is not None and room <= len(first):
            raise HarnessError(f"rows of {room} tokens hold {BOS} and no text: raise trainer.max_length")
        return [self._windows(self._read(t), windowing, room and room - len(first)) for t in texts]

    def tokenize_pairs(
        self, pairs: Sequence[tuple[Text, Text]], windowing: WindowOptions
    ) -> list[list[TokenizedWindow]]:
        """An AWD-LSTM knows no separators: always an error."""
        raise HarnessError("an AWD-LSTM takes the two texts of a pair apart: encoder.pairs=separate")

    def coverage(self) -> dict[str, float]:
        """By token ``words`` and ``words_known`` (all tokens of the word in the vocabulary), ``tokens``,
        ``unknown_tokens`` and their ``unknown_share``; by type of token ``types`` and ``types_known``; and
        ``words_deleted``, ``texts``, ``texts_cut``. Of two vocabularies known is what both know."""
        share = self.counts["unknown_tokens"] / max(1, self.counts["tokens"])
        types = {"types": len(self._types), "types_known": sum(self._types.values())}
        return {k: float(v) for k, v in {**self.counts, **types, "unknown_share": share}.items()}

    def extend(self, words: Iterable[str]) -> None:
        """Let every vocabulary know the tokens of ``words``."""
        tokens = {t.text for word in set(words) for t in _fastai_tokens(word) if not t.marker}
        for vocabulary in self.vocabularies.values():
            vocabulary.extend(tokens)

    def _first(self) -> list[int]:
        """Ids of ``xxbos``, one an input; nothing where a vocabulary has none."""
        known = all(v.known(BOS) for v in self.vocabularies.values())
        return [v.number(BOS) for v in self.vocabularies.values()] if self.start and known else []

    def _read(self, text: Text) -> _Row:
        tokens = [t for t in fastai_tokens(text.text) if not self._left_out(t)]
        raw = np.array([(t.start, t.end) for t in tokens], dtype=np.int64).reshape(-1, 2)
        word, offsets, _ = align(text, raw)
        own = np.array([i for i, t in enumerate(tokens) if not t.marker], dtype=np.int64)
        word_to_token = _word_to_token(text, raw[own], own, last=self.stands == "last")
        known = np.array(
            [all(v.known(t.text) for v in self.vocabularies.values()) for t in tokens], dtype=bool
        )
        self._count(tokens, word, word_to_token, known)
        numbers = [[v.number(t.text) for v in self.vocabularies.values()] for t in tokens]
        ids = np.array(numbers, dtype=np.int64).reshape(-1, len(self.vocabularies))
        return _Row(ids, word, offsets, word_to_token)

    def _left_out(self, token: Token) -> bool:
        """Markers the model was not trained with, such as ``xxmaj`` in the vocabularies of 2018."""
        marker = token.marker and token.text in _MARKERS
        return marker and not all(v.known(token.text) for v in self.vocabularies.values())

    def _count(
        self, tokens: Sequence[Token], word: np.ndarray, word_to_token: np.ndarray, known: np.ndarray
    ) -> None:
        unknown = np.unique(word[~known])
        counts = self.counts
        counts["texts"] += 1
        counts["words"] += len(word_to_token)
        counts["words_deleted"] += int((word_to_token < 0).sum())
        counts["words_known"] += int((word_to_token >= 0).sum()) - int(
            (word_to_token[unknown[unknown >= 0]] >= 0).sum()
        )
        counts["tokens"] += len(tokens)
        counts["unknown_tokens"] += int((~known).sum())
        self._types |= {t.text: k for t, k in zip(tokens, known.tolist(), strict=True) if not t.marker}

    def _windows(self, row: _Row, windowing: WindowOptions, room: int | None) -> list[TokenizedWindow]:
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

    def _window(self, row: _Row, window: tuple[int, int], owned: np.ndarray, index: int) -> TokenizedWindow:
        start, length = window
        here = slice(start, start + length)
        first = np.array(self._first(), dtype=np.int64).reshape(-1, len(self.vocabularies))
        ids = np.concatenate([first, row.ids[here]])
        has = row.tokens >= 0
        has[has] = owned[row.tokens[has]]
        before = len(first)
        return TokenizedWindow(
            inputs={name: ids[:, i].copy() for i, name in enumerate(self.vocabularies)},
            word_ids=np.concatenate([np.full(before, -1), row.word[here]]),
            offsets=np.concatenate([np.zeros((before, 2), dtype=np.int64), row.offsets[here]]),
            sequence_ids=np.zeros(len(ids), dtype=np.int64),
            word_to_token=np.where(has, row.tokens - start + before, -1),
            window=index,
        )


def _word_to_token(text: Text, spans: np.ndarray, numbers: np.ndarray, *, last: bool) -> np.ndarray:
    """For each word the number of the first or last token that covers a character of it, -1 if none does.

    Args:
        text: the words.
        spans: (N, 2) characters of the tokens that may stand for a word, in order.
        numbers: (N,) their numbers.
        last: the last rather than the first.
    """
    first = align(text, spans)[2]
    if not len(spans):
        return first
    out = np.where(first >= 0, numbers[first], -1)
    if not last or not len(text):
        return out
    words = np.array(text.spans, dtype=np.int64)
    keep = np.flatnonzero([bool(text.text[a:b].strip()) for a, b in spans.tolist()])
    if not len(keep):
        return out
    at = np.maximum(np.searchsorted(spans[keep, 0], words[:, 1]) - 1, 0)
    covers = (first >= 0) & (spans[keep[at], 1] > words[:, 0]) & (spans[keep[at], 0] < words[:, 1])
    return np.where(covers, numbers[keep[at]], out)
