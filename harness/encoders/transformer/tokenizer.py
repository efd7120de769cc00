"""Sub-word tokenisation of raw text with fast tokenizers: pieces aligned with words, windows, pairs.

Each text is tokenised once, as a whole and without special tokens; windows are then cut from its pieces and
the special tokens set around each of them as the tokenizer's own template says (BERT: [CLS] a [SEP] b [SEP],
RoBERTa: <s> a </s></s> b </s>). Names of special tokens inside a text ("[SEP]" typed by someone) are text.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from harness.data.text import Text
from harness.data.tokenizer import WindowOptions
from harness.data.tokens import TokenizedWindow
from harness.data.windows import owners, windows
from harness.encoders.alignment import align
from harness.encoders.transformer.template import END, ID, SEGMENT, START, TYPE, WORD, Template, plain
from harness.errors import HarnessError

MUCH_UNKNOWN = 0.1
"""Share of unknown tokens from which a tokenizer does not fit its texts."""
_BATCH = 1024
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(slots=True)
class _Pieces:
    """A tokenised text: (S, 6) tokens and the first token of each of its W words (-1 = deleted)."""

    source: Text
    block: np.ndarray
    first_token: np.ndarray


@dataclass
class HFTokenizer:
    """See :class:`harness.encoders.base.Tokenizer`.

    Attributes:
        backend: the fast tokenizer, a ``tokenizers.Tokenizer``; see :func:`plain`.
        single, pair: templates of one text and of two; ``empty`` for a row that would have no token.
        unknown: id of the unknown piece, if there is one.
        pad_id: fills ``input_ids`` (never looked at: masks come from lengths).
        types: whether rows carry ``token_type_ids``.
        max_length: longest row the encoder takes; None = any.
    """

    backend: Any
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
        plain(self.backend)
        self.counts = dict.fromkeys(
            ("texts", "texts_cut", "firsts_cut", "words", "words_deleted", "tokens", "unknown_tokens"), 0
        )

    @property
    def pad(self) -> Mapping[str, float]:
        return {"input_ids": self.pad_id, "token_type_ids": 0}

    def table(self) -> HFTokenizer:
        """The same pieces for a context-free table: no special tokens, no pairs, rows of any length."""
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
        return [self._windows(self.single, [], pieces, room, windowing) for pieces in self._encode(texts)]

    def tokenize_pairs(
        self, pairs: Sequence[tuple[Text, Text]], windowing: WindowOptions
    ) -> list[list[TokenizedWindow]]:
        if self.pair is None:
            raise HarnessError("this encoder takes no joint pairs: set encoder.pairs=separate")
        room = self._room(windowing, self.pair)
        firsts, seconds = self._encode([a for a, _ in pairs]), self._encode([b for _, b in pairs])
        rows = self._truncated if windowing.truncate else self._windowed
        return [rows(a, b, room, windowing) for a, b in zip(firsts, seconds, strict=True)]

    def coverage(self) -> dict[str, float]:
        """Counts so far, and ``unknown_share`` of all tokens of text. Warns, once, when it exceeds a tenth:
        the tokenizer does not know these texts' script or spelling."""
        share = self.counts["unknown_tokens"] / max(1, self.counts["tokens"])
        if share > MUCH_UNKNOWN and not self._warned:
            self._warned = True
            warnings.warn(
                f"{share:.0%} of the tokenizer's tokens are unknown: it does not fit these texts (a "
                "lower-casing BERT takes Hangul apart, for one); choose a cased, multilingual or the "
                "language's own model",
                stacklevel=2,
            )
        return {**self.counts, "unknown_share": share}

    def _room(self, windowing: WindowOptions, template: Template) -> int | None:
        """Units of text in a row; None = any number."""
        limits = [n for n in (windowing.max_length, self.max_length) if n is not None]
        if not limits:
            return None
        room = min(limits) - template.specials
        if room < 1:
            raise HarnessError(
                f"rows of {min(limits)} tokens hold {template.specials} special tokens and no text: "
                "raise trainer.max_length"
            )
        return room

    def _encode(self, texts: Sequence[Text]) -> Iterator[_Pieces]:
        for at in range(0, len(texts), _BATCH):
            part = texts[at : at + _BATCH]
            raw = [_SURROGATE.sub("\ufffd", t.text) for t in part]
            for text, encoding in zip(
                part, self.backend.encode_batch(raw, add_special_tokens=False), strict=True
            ):
                yield self._pieces(text, encoding)

    def _pieces(self, text: Text, encoding: Any) -> _Pieces:
        block = np.zeros((len(encoding.ids), 6), dtype=np.int64)
        block[:, ID] = encoding.ids
        raw = np.asarray(encoding.offsets, dtype=np.int64)
        block[:, WORD], block[:, START : END + 1], first_token = align(text, raw)
        counts = self.counts
        counts["texts"] += 1
        counts["words"] += len(first_token)
        counts["words_deleted"] += int((first_token < 0).sum())
        counts["tokens"] += len(block)
        if self.unknown is not None:
            counts["unknown_tokens"] += int((block[:, ID] == self.unknown).sum())
        return _Pieces(text, block, first_token)

    def _windows(
        self,
        template: Template,
        before: list[np.ndarray],
        last: _Pieces,
        room: int | None,
        windowing: WindowOptions,
    ) -> list[TokenizedWindow]:
        """One row for each window over ``last``, the texts ``before`` it repeated in each."""
        n = len(last.block)
        if room is None:
            wins = [(0, n)]
        elif windowing.truncate:
            wins = [(0, min(n, room))]
            self.counts["texts_cut"] += n > room
        else:
            wins = windows(n, room, windowing.stride)
        owner = owners(n, wins) if len(wins) > 1 or windowing.truncate else np.zeros(n, dtype=np.int64)
        return [
            self._row(template, before, last, (start, length), owner == index, index)
            for index, (start, length) in enumerate(wins)
        ]

    def _row(
        self,
        template: Template,
        before: list[np.ndarray],
        last: _Pieces,
        window: tuple[int, int],
        owned: np.ndarray,
        index: int,
    ) -> TokenizedWindow:
        start, length = window
        block, at = template.fill([*before, last.block[start : start + length]])
        if not len(block) and self.empty is not None:
            block, at = self.empty.fill([])
        has = last.first_token >= 0
        has[has] = owned[last.first_token[has]]
        inputs = {"input_ids": block[:, ID].copy()}
        if self.types:
            inputs["token_type_ids"] = block[:, TYPE].copy()
        return TokenizedWindow(
            inputs=inputs,
            word_ids=block[:, WORD].copy(),
            offsets=block[:, START : END + 1].copy(),
            sequence_ids=block[:, SEGMENT].copy(),
            word_to_token=np.where(has, last.first_token - start + at, -1),
            window=index,
        )

    def _truncated(
        self, a: _Pieces, b: _Pieces, room: int | None, windowing: WindowOptions
    ) -> list[TokenizedWindow]:
        """One row; the longer text is shortened until both fit."""
        assert self.pair is not None
        first, second = len(a.block), len(b.block)
        if room is not None and first + second > room:
            half = room // 2
            first = min(first, max(half, room - second))
            second = min(second, room - first)
            self.counts["texts_cut"] += 1
        wins = [(0, second)]
        owner = owners(len(b.block), wins)
        return [self._row(self.pair, [a.block[:first]], b, wins[0], owner == 0, 0)]

    def _windowed(
        self, a: _Pieces, b: _Pieces, room: int | None, windowing: WindowOptions
    ) -> list[TokenizedWindow]:
        """Windows over the second text, the first (cut to ``max_first``) repeated in each."""
        assert self.pair is not None
        first = a.block
        if windowing.max_first is not None and len(first) > windowing.max_first:
            first = first[: windowing.max_first]
            self.counts["firsts_cut"] += 1
        if room is None:
            return self._windows(self.pair, [first], b, None, windowing)
        left = room - len(first)
        if left < 1:
            raise HarnessError(
                f"the first text takes {len(first)} tokens and leaves no room for the second in rows of "
                f"{room + self.pair.specials}: {a.source.text[:200]!r}; shorten it, lower the bound on first "
                "texts (max_first) or raise trainer.max_length"
            )
        stride = min(windowing.stride, left // 2)  # a long first text leaves less than the stride wanted
        fitted = WindowOptions(windowing.max_length, stride, False, windowing.max_first)
        return self._windows(self.pair, [first], b, left, fitted)
