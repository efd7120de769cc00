"""Texts, their words, and examples.

One word splitter serves every task over raw text, so that word-level encoders, sub-word encoders and spans
all speak of the same words. Tagging data bring their own words: :meth:`Text.from_words`. In both cases a
:class:`Text` is a string and the character span of each word in it; nothing else is needed to align any
encoder's tokens with words.

The splitter keeps what GloVe's and word2vec's vocabularies keep (hyphenated words, abbreviations with
periods, English clitics such as *n't* and *'s* on their own) and splits off other punctuation; before Hangul
all of it. Combining marks stay with their letter, Han characters stand alone, format characters such as a
zero-width space separate and belong to no word.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import regex

_LETTER = r"[\p{L}\p{M}\p{N}_--\p{Han}]"
# case is ignored here alone: ignoring it everywhere makes the splitter twelve times slower
_CLITIC = r"(?i:s|re|ve|ll|d|m)"
_WORD = regex.compile(
    rf"""
    (?:\p{{L}}\.){{2,}}                                  # U.S.
    | {_LETTER}+?(?=(?i:n['’]t)\b) | (?i:n['’]t)\b   # do n't
    | ['’]{_CLITIC}\b                                   # 's
    | \p{{N}}+(?:[.,:/]\p{{N}}+)+%?                       # 1,000.5  10:30
    # well-known, O'Brien; but 서울-부산 is two words
    | {_LETTER}+(?:(?!['’]{_CLITIC}\b|[-'’·]\p{{Hangul}})[-'’·\u00AD\u200C\u200D]{_LETTER}+)*
    | \p{{Han}}\p{{M}}*
    | \.{{2,}} | -{{2,}} | `` | ''                      # runs that vocabularies hold as one word
    | (?![\s\p{{Cc}}\p{{Cf}}])\X
    """,
    regex.VERBOSE | regex.VERSION1,
)


def split_words(text: str) -> list[tuple[int, int]]:
    """Character spans ``(start, end)`` of the words of ``text``, in order, never empty, never overlapping."""
    return [m.span() for m in _WORD.finditer(text)]


@dataclass(frozen=True, slots=True)
class Text:
    """A string and the character spans of its words.

    ``pretokenized`` is True when the words came with the data (tagging) rather than from the splitter.
    """

    text: str
    spans: tuple[tuple[int, int], ...]
    pretokenized: bool = False

    @classmethod
    def from_string(cls, text: str) -> Text:
        return cls(text, tuple(split_words(text)))

    @classmethod
    def from_words(cls, words: Sequence[str]) -> Text:
        """Words joined by one space each; sub-word encoders tokenise the joined string."""
        spans, at = [], 0
        for word in words:
            spans.append((at, at + len(word)))
            at += len(word) + 1
        return cls(" ".join(words), tuple(spans), pretokenized=True)

    @property
    def words(self) -> list[str]:
        return [self.text[a:b] for a, b in self.spans]

    def __len__(self) -> int:
        """Number of words."""
        return len(self.spans)


@dataclass(frozen=True, slots=True)
class Example:
    """One labelled example.

    Attributes:
        id: unique within its split; predictions are keyed by it.
        texts: one text, or two for pairs (first/second, question/context).
        gold: the task's own gold value; anything ``json.dumps`` takes.
        tags: slices of the leaderboard this example belongs to.
    """

    id: str
    texts: tuple[Text, ...]
    gold: Any
    tags: tuple[str, ...] = field(default=())
