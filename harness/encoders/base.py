"""Interface of the encoders: a tokenizer, a forward pass over tokens, and a description of the parts."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np
from torch import nn

from harness.data.tokenizer import Tokenizer
from harness.data.tokens import EncoderOutput, TokenBatch

Group = tuple[str, list[nn.Parameter]]
"""Name and parameters of a layer group."""


class Encoder(nn.Module):
    """A pretrained (or randomly initialised) encoder.

    Attributes:
        name: name in the configuration.
        hidden_size: H, width of the states.
        num_layers: L, number of layers above the embeddings; 0 for an embedding table.
        max_length: maximum row length, special tokens included; None = no limit.
        pooling: default pooling of a row into one vector (see :func:`harness.data.tokens.pool`).
        pairs: default treatment of text pairs, ``joint`` or ``separate``.
        has_pooler: whether the checkpoint contains a pretrained pooler
            (:attr:`~harness.data.tokens.EncoderOutput.pooler_output`).
        stateful: whether row k of a batch starts from the final state of row k of the previous batch; None
            for encoders that have no state between batches.
        tokenizer: see :class:`~harness.data.tokenizer.Tokenizer`.
    """

    name: str
    hidden_size: int
    num_layers: int
    max_length: int | None
    pooling: str
    pairs: str
    has_pooler: bool = False
    stateful: bool | None = None
    tokenizer: Tokenizer

    @abstractmethod
    def forward(self, tokens: TokenBatch, *, all_layers: bool = False) -> EncoderOutput:
        """Compute the states (B, S, H) and, with ``all_layers``, ``hidden_states`` (L + 1, B, S, H)."""

    @abstractmethod
    def layer_groups(self) -> list[Group]:
        """Return named groups from bottom to top, [0] the embeddings: an exact partition of the
        parameters."""

    @abstractmethod
    def embedding_encoder(self) -> Encoder:
        """Return the input embedding table alone, with the same tokenizer: context-free, L = 0."""

    @abstractmethod
    def fingerprint(self) -> str:
        """Return the hex digest of weights, tokenizer and options, used as cache key and in the cell id."""

    def gradient_checkpointing(self) -> None:
        """Trade time for memory where the architecture supports it; otherwise a no-op.

        Non-reentrant, so that frozen bottom layers do not block the gradient.
        """

    def encode(
        self,
        sentences: Sequence[str | Sequence[str]],
        layers: str | int | Sequence[int] = "top",
        *,
        batch_size: int = 32,
    ) -> list[np.ndarray]:
        """Compute word vectors, without gradients and in eval mode (the previous mode is restored).

        Args:
            sentences: strings, which the shared word splitter splits, or lists of words.
            layers: ``top``, ``all`` (L + 1 layers, [0] the embeddings), a layer number, or a list of numbers.
            batch_size: windows per forward pass; windows are sorted by length, which changes only rounding.

        Returns:
            One float32 array per sentence, in input order: (words, H), or (L + 1, words, H) for ``all``, (K,
            words, H) for a list. A word vector is the mean over the word's tokens. Long sentences are split
            into windows, and every word gets a vector; a word that the tokenizer deletes gets zeros; an empty
            sentence gives (0, H).

        Raises:
            HarnessError: ``sentences`` is a single string, or contains values that are not text.
        """
        from harness.encoders.encode import encode

        return encode(self, sentences, layers=layers, batch_size=batch_size)
