"""Interface of the tokenizers: texts in, windows of tokens out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from harness.data.text import Text
from harness.data.tokens import TokenizedWindow


@dataclass(frozen=True, slots=True)
class WindowOptions:
    """How a text that is longer than the encoder's maximum length is split.

    Attributes:
        max_length: maximum number of tokens per window, special tokens included; None = no limit.
        stride: number of text tokens that neighbouring windows share (>= 0, less than the room for text).
        truncate: keep only the first window (classification) and count the truncated texts.
        max_first: maximum number of tokens of the first text of a joint pair (question) before it is
            truncated; the second text is split into windows.
    """

    max_length: int | None = None
    stride: int = 64
    truncate: bool = False
    max_first: int | None = None


class Tokenizer(Protocol):
    """Converts texts into windows of tokens.

    ``pad`` gives the fill value of each input (:meth:`harness.data.tokens.TokenBatch.collate`).
    """

    @property
    def pad(self) -> Mapping[str, float]: ...

    def tokenize(self, texts: Sequence[Text], windowing: WindowOptions) -> list[list[TokenizedWindow]]:
        """Return the windows of each text, at least one per text (also for an empty text)."""
        ...

    def tokenize_pairs(
        self, pairs: Sequence[tuple[Text, Text]], windowing: WindowOptions
    ) -> list[list[TokenizedWindow]]:
        """Return the windows of each pair as one sequence with separators.

        Only for encoders that accept joint pairs. With ``windowing.truncate`` the longer text is shortened
        first (special tokens are never removed). Otherwise the second text is split into windows, and the
        first text is repeated in each of them.

        Raises:
            HarnessError: the first text leaves no room for the second; the message quotes it.
        """
        ...

    def coverage(self) -> dict[str, float]:
        """Return counts over all texts tokenized so far, for the record.

        Examples: ``words``, ``words_known``, ``types_known``, ``unknown_tokens``, ``texts_cut``.
        """
        ...
