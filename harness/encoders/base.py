"""What every encoder is: a tokenizer, a forward pass over tokens, and a description of its own parts."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from torch import nn

from harness.data.text import Text
from harness.data.tokens import EncoderOutput, TokenBatch, TokenizedWindow

Group = tuple[str, list[nn.Parameter]]


@dataclass(frozen=True, slots=True)
class WindowOptions:
    """How a text that is longer than the encoder's reach is cut.

    Attributes:
        max_length: most tokens of a row, special ones included; None = no limit.
        stride: tokens of text that neighbouring windows share (>= 0, less than the room for text).
        truncate: keep the first window only (classification) and count what was cut.
        max_first: most tokens of the first text of a joint pair before the second is windowed (questions).
    """

    max_length: int | None = None
    stride: int = 64
    truncate: bool = False
    max_first: int | None = None


class Tokenizer(Protocol):
    """Turns texts into rows of tokens.

    ``pad`` gives the fill value of each input (:meth:`TokenBatch.collate`).
    """

    @property
    def pad(self) -> Mapping[str, float]: ...

    def tokenize(self, texts: Sequence[Text], windowing: WindowOptions) -> list[list[TokenizedWindow]]:
        """Windows of each text, at least one each (also for an empty text)."""
        ...

    def tokenize_pairs(
        self, pairs: Sequence[tuple[Text, Text]], windowing: WindowOptions
    ) -> list[list[TokenizedWindow]]:
        """Windows of each pair as one sequence with separators; only when the encoder takes joint pairs.

        With ``windowing.truncate`` the longer text is shortened first (never a special token). Otherwise the
        second text is windowed, the first repeated in each window.

        Raises:
            HarnessError: the first text leaves no room for the second; the message quotes it.
        """
        ...

    def coverage(self) -> dict[str, float]:
        """Counts over everything tokenised so far, such as ``words``, ``words_known``, ``types_known``,
        ``unknown_tokens``, ``texts_cut``; they go to the record."""
        ...


class Encoder(nn.Module):
    """A pretrained (or randomly initialised) encoder.

    Attributes:
        name: as in the configuration.
        hidden_size: H, the width of its states.
        num_layers: L, layers above the embeddings; 0 for a table.
        max_length: longest row it can take, special tokens included; None = any.
        pooling: its natural summary of a row (see :func:`harness.data.tokens.pool`).
        pairs: ``joint`` or ``separate``, how it naturally takes two texts.
        has_pooler: its checkpoint brings a pretrained summary of a row (:attr:`EncoderOutput.pooler_output`).
        tokenizer: see :class:`Tokenizer`.
    """

    name: str
    hidden_size: int
    num_layers: int
    max_length: int | None
    pooling: str
    pairs: str
    has_pooler: bool = False
    tokenizer: Tokenizer

    @abstractmethod
    def forward(self, tokens: TokenBatch, *, all_layers: bool = False) -> EncoderOutput:
        """States (B, S, H) of the tokens; with ``all_layers`` also ``layers`` (L + 1, B, S, H)."""

    @abstractmethod
    def layer_groups(self) -> list[Group]:
        """Named groups from bottom to top, [0] the embeddings: an exact partition of the parameters."""

    @abstractmethod
    def embedding_encoder(self) -> Encoder:
        """The input embedding table alone, with the same tokenizer: context-free, L = 0."""

    @abstractmethod
    def fingerprint(self) -> str:
        """Hex digest of weights, tokenizer and options: keys every cache, enters the cell id."""

    def gradient_checkpointing(self) -> None:
        """Trade time for memory where the architecture allows it (non-reentrant, so that frozen bottom
        layers do not cut the gradient); a no-op elsewhere."""

    def encode(
        self,
        sentences: Sequence[str | Sequence[str]],
        layers: str | int | Sequence[int] = "top",
        *,
        batch_size: int = 32,
    ) -> list[np.ndarray]:
        """Vectors of words, without gradient, in eval mode (the mode it was in comes back).

        Args:
            sentences: strings, which the common word splitter splits, or lists of words.
            layers: ``top``, ``all`` L + 1 layers, [0] the embeddings, the number of one, or a list of them.
            batch_size: windows a forward pass; sorted by length inside, which changes only rounding.

        Returns:
            one float32 array a sentence, in their order: (words, H), or (L + 1, words, H) for ``all``, (K,
            words, H) for a list. A word is the mean over its tokens; long sentences are read in windows and
            every word has a vector; a word that the tokenizer deletes has zeros; an empty sentence gives
            (0, H).

        Raises:
            HarnessError: ``sentences`` is one string, or holds what is not text.
        """
        from harness.encoders.loading import encode

        return encode(self, sentences, layers=layers, batch_size=batch_size)
