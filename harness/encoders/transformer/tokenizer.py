"""Subword tokenization of raw text with fast tokenizers: alignment with words, windows, pairs.

Each text is tokenized once, as a whole and without special tokens. Windows are then cut from its tokens, and
special tokens are added around each window according to the tokenizer's template (BERT: [CLS] a [SEP] b
[SEP], RoBERTa: <s> a </s></s> b </s>). Names of special tokens inside a text ("[SEP]" typed by a user) are
treated as text.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from tokenizers import Encoding
from tokenizers import Tokenizer as Backend

from harness.data.text import Text
from harness.data.tokenizer import WindowOptions
from harness.data.tokens import TokenizedWindow
from harness.data.windows import owners, windows
from harness.encoders.alignment import align
from harness.encoders.transformer.template import (
    END,
    ID,
    SEQUENCE,
    START,
    TYPE,
    WORD,
    Template,
    disable_processing,
)
from harness.errors import HarnessError

MAX_UNKNOWN_SHARE = 0.1
"""Share of unknown tokens above which a warning states that the tokenizer does not fit the texts."""
_BATCH = 1024
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(slots=True)
class _SubwordText:
    """A tokenized text: block (S, 6) and the first token of each of its W words (-1 = deleted)."""

    source: Text
    block: np.ndarray
    first_token: np.ndarray


@dataclass
class HFTokenizer:
    """See :class:`harness.data.tokenizer.Tokenizer`.

    Attributes:
        backend: the fast tokenizer.
        single, pair: templates of one text and of two; ``empty`` for a row that would have no tokens.
        unknown: id of the unknown token, if there is one.
        pad_id: fill value of ``input_ids`` (masks are derived from lengths, never from this id).
        types: whether rows have ``token_type_ids``.
        max_length: maximum row length of the encoder; None = no limit.
    """

    backend: Backend
    single: Template
    pair: Template | None = None
    empty: Template | None = None
    unknown: int | None = None
    pad_id: int = 0
    types: bool = False
    max_length: int | None = None
    counts: dict[str, int] = field(default_factory=dict)
    _warned: bool = field(default=False, repr=False)

    def __post_init__(self) -> None:
        disable_processing(self.backend)
        self.counts = dict.fromkeys(
            ("texts", "texts_cut", "firsts_cut", "words", "words_deleted", "tokens", "unknown_tokens"), 0
        )

    @property
    def pad(self) -> Mapping[str, float]:
        return {"input_ids": self.pad_id, "token_type_ids": 0}

    def table(self) -> HFTokenizer:
        """Return the tokenizer of a context-free table: no special tokens, no pairs, rows of any length."""
        return HFTokenizer(
            self.backend,
            Template.of(0),
            unknown=self.unknown,
            pad_id=self.pad_id,
            types=False,
            max_length=None,
        )

    def tokenize(self, texts: Sequence[Text], windowing: WindowOptions) -> list[list[TokenizedWindow]]:
        room = self._room(windowing, self.single)
        return [self._windows(self.single, [], text, room, windowing) for text in self._encode(texts)]

    def tokenize_pairs(
        self, pairs: Sequence[tuple[Text, Text]], windowing: WindowOptions
    ) -> list[list[TokenizedWindow]]:
        if self.pair is None:
            raise HarnessError("this encoder does not support joint pairs: set encoder.pairs=separate")
        room = self._room(windowing, self.pair)
        firsts, seconds = self._encode([a for a, _ in pairs]), self._encode([b for _, b in pairs])
        rows = self._truncated if windowing.truncate else self._windowed
        return [rows(a, b, room, windowing) for a, b in zip(firsts, seconds, strict=True)]

    def coverage(self) -> dict[str, float]:
        """Return the counts so far and ``unknown_share``, the share of unknown tokens.

        Warns once if it exceeds 10 %: the tokenizer does not support the script or spelling of these texts.
        """
        share = self.counts["unknown_tokens"] / max(1, self.counts["tokens"])
        if share > MAX_UNKNOWN_SHARE and not self._warned:
            self._warned = True
            warnings.warn(
                f"{share:.0%} of the tokenizer's tokens are unknown: it does not fit these texts (for "
                "example, a lower-casing BERT decomposes Hangul); choose a cased, multilingual or "
                "language-specific model",
                stacklevel=2,
            )
        return {**self.counts, "unknown_share": share}

    def _room(self, windowing: WindowOptions, template: Template) -> int | None:
        """Return the number of text tokens per row; None = no limit."""
        limits = [n for n in (windowing.max_length, self.max_length) if n is not None]
        if not limits:
            return None
        room = min(limits) - template.specials
        if room < 1:
            raise HarnessError(
                f"rows of {min(limits)} tokens have room for {template.specials} special tokens but not "
                "for text: "
                "raise trainer.max_length"
            )
        return room

    def _encode(self, texts: Sequence[Text]) -> Iterator[_SubwordText]:
        for at in range(0, len(texts), _BATCH):
            part = texts[at : at + _BATCH]
            # a lone surrogate has no UTF-8 form; replaced by one character, so that offsets remain valid
            raw = [_SURROGATE.sub("\ufffd", t.text) for t in part]
            for text, encoding in zip(
                part, self.backend.encode_batch(raw, add_special_tokens=False), strict=True
            ):
                yield self._align(text, encoding)

    def _align(self, text: Text, encoding: Encoding) -> _SubwordText:
        block = np.zeros((len(encoding.ids), 6), dtype=np.int64)  # TYPE and SEQUENCE are set by the template
        block[:, ID] = encoding.ids
        raw = np.asarray(encoding.offsets, dtype=np.int64)
        block[:, WORD], block[:, START : END + 1], first_token = align(text, raw)
        counts = self.counts
        counts["texts"] += 1
        counts["words"] += len(first_token)
        # -1: no token covers the word, such as a control character that the tokenizer removes
        counts["words_deleted"] += int((first_token < 0).sum())
        counts["tokens"] += len(block)
        if self.unknown is not None:
            counts["unknown_tokens"] += int((block[:, ID] == self.unknown).sum())
        return _SubwordText(text, block, first_token)

    def _windows(
        self,
        template: Template,
        before: list[np.ndarray],
        last: _SubwordText,
        room: int | None,
        windowing: WindowOptions,
    ) -> list[TokenizedWindow]:
        """Return one row per window over ``last``; the texts ``before`` it are repeated in each row."""
        n = len(last.block)
        if room is None:
            wins = [(0, n)]
        elif windowing.truncate:
            wins = [(0, min(n, room))]
            self.counts["texts_cut"] += n > room
        else:
            wins = windows(n, room, windowing.stride)
        # a single complete window owns all tokens; a truncated one owns none of those after its end (-1)
        owner = owners(n, wins) if len(wins) > 1 or windowing.truncate else np.zeros(n, dtype=np.int64)
        return [
            self._row(template, before, last, (start, length), owner == index, index)
            for index, (start, length) in enumerate(wins)
        ]

    def _row(
        self,
        template: Template,
        before: list[np.ndarray],
        last: _SubwordText,
        window: tuple[int, int],
        owned: np.ndarray,
        index: int,
    ) -> TokenizedWindow:
        start, length = window
        block, at = template.fill([*before, last.block[start : start + length]])
        if not len(block) and self.empty is not None:
            # an encoder without special tokens: an empty text would be a row of no tokens
            block, at = self.empty.fill([])
        has = last.first_token >= 0  # the word was not deleted,
        has[has] = owned[last.first_token[has]]  # and its first token belongs to this window
        inputs = {"input_ids": block[:, ID].copy()}
        if self.types:
            inputs["token_type_ids"] = block[:, TYPE].copy()
        return TokenizedWindow(
            inputs=inputs,
            word_ids=block[:, WORD].copy(),
            offsets=block[:, START : END + 1].copy(),
            sequence_ids=block[:, SEQUENCE].copy(),
            # token 130 of the text, in a window from 128 on, after [CLS]: 130 - 128 + 1 = 3 in the row
            word_to_token=np.where(has, last.first_token - start + at, -1),
            window=index,
        )

    def _truncated(
        self, a: _SubwordText, b: _SubwordText, room: int | None, windowing: WindowOptions
    ) -> list[TokenizedWindow]:
        """Return one row; the longer text is truncated until both fit.

        Example: 9 and 4 tokens in a room of 10 become 6 and 4; 9 and 8 become 5 and 5.
        """
        assert self.pair is not None
        first, second = len(a.block), len(b.block)
        if room is not None and first + second > room:
            half = room // 2
            # a text of at most half the room is kept whole, and the other one takes what remains
            first = min(first, max(half, room - second))
            second = min(second, room - first)
            self.counts["texts_cut"] += 1
        wins = [(0, second)]
        # only words of the second text have a token in word_to_token, as in every pair
        owner = owners(len(b.block), wins)
        return [self._row(self.pair, [a.block[:first]], b, wins[0], owner == 0, 0)]

    def _windowed(
        self, a: _SubwordText, b: _SubwordText, room: int | None, windowing: WindowOptions
    ) -> list[TokenizedWindow]:
        """Return windows over the second text; the first (truncated to ``max_first``) is repeated in each."""
        assert self.pair is not None
        first = a.block
        if windowing.max_first is not None and len(first) > windowing.max_first:
            first = first[: windowing.max_first]
            self.counts["firsts_cut"] += 1
        if room is None:
            return self._windows(self.pair, [first], b, None, windowing)
        # the first text is in every window, so only the rest of the room moves over the second
        left = room - len(first)
        if left < 1:
            raise HarnessError(
                f"the first text takes {len(first)} tokens and leaves no room for the second in rows of "
                f"{room + self.pair.specials}: {a.source.text[:200]!r}; shorten it, lower the limit for "
                "first "
                "texts (max_first) or raise trainer.max_length"
            )
        stride = min(windowing.stride, left // 2)  # a long first text can leave less room than the stride
        fitted = WindowOptions(windowing.max_length, stride, False, windowing.max_first)
        return self._windows(self.pair, [first], b, left, fitted)
