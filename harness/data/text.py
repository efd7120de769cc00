"""Texts, their words, and examples.

All tasks over raw text use one word splitter, so that word-level encoders, subword encoders and spans refer
to the same words. Tagging data are already tokenized: :meth:`Text.from_words`. In both cases a
:class:`Text` is a string and the character span of each word in it; nothing else is needed to align any
encoder's tokens with words.

The splitter keeps what GloVe's and word2vec's vocabularies keep (hyphenated words, abbreviations with
periods, English clitics such as *n't* and *'s* as separate words) and splits off other punctuation; before
Hangul, all punctuation. Combining marks stay with their letter, each Han character is a word, and format
characters such as a zero-width space separate words and belong to none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import regex

_LETTER = r"[\p{L}\p{M}\p{N}_--\p{Han}]"
# case is ignored only here: ignoring it everywhere makes the splitter twelve times slower
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
    | \.{{2,}} | -{{2,}} | `` | ''                      # runs that are one word in vocabularies
    | (?![\s\p{{Cc}}\p{{Cf}}])\X
    """,
    regex.VERBOSE | regex.VERSION1,
)


def split_words(text: str) -> list[tuple[int, int]]:
    """Return the character spans ``(start, end)`` of the words: in order, non-empty, not overlapping."""
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
        """Split a string into words."""
        return cls(text, tuple(split_words(text)))

    @classmethod
    def from_words(cls, words: Sequence[str]) -> Text:
        """Join words by single spaces; subword encoders tokenise the joined string."""
        spans, at = [], 0
        for word in words:
            spans.append((at, at + len(word)))
            at += len(word) + 1
        return cls(" ".join(words), tuple(spans), pretokenized=True)

    @property
    def words(self) -> list[str]:
        """The words as strings."""
        return [self.text[start:end] for start, end in self.spans]

    def __len__(self) -> int:
        """Number of words."""
        return len(self.spans)


@dataclass(frozen=True, slots=True)
class Example:
    """One labelled example.

    Attributes:
        id: unique within its split; predictions are keyed by it.
        texts: one text, or two for pairs (first/second, question/context).
        gold: the gold value of the task; JSON-serialisable.
        tags: slices of the leaderboard this example belongs to.
    """

    id: str
    texts: tuple[Text, ...]
    gold: Any
    tags: tuple[str, ...] = field(default=())
