"""What a body is: states of each text in, states of each text out, tokens unchanged."""

from __future__ import annotations

from abc import abstractmethod

from torch import nn

from harness.data.tokens import EncoderOutput, TokenBatch


class Body(nn.Module):
    """A network over the tokens of one or two texts; built as ``Body(input_size, **options)``.

    Attributes:
        hidden_size: width of the states it returns.
        pooling: how its states become a vector; None = as the encoder does, pretrained pooler included.
        pairs: ``separate`` when it needs the two texts apart; None = either way.
        features: where the encoder's features come in. ``before``: ``states`` are the features. ``after``:
            ``states`` are the embedding layer, the features are the one layer in ``layers``. ``both``:
            ``states`` are the features, ``layers`` holds them again, mixed by other weights; without a mix
            ``layers`` is None and ``states`` serve for both.
    """

    hidden_size: int
    pooling: str | None = None
    pairs: str | None = None
    features: str = "before"

    @abstractmethod
    def forward(
        self, encoded: tuple[EncoderOutput, ...], tokens: tuple[TokenBatch, ...]
    ) -> tuple[EncoderOutput, ...]:
        """One :class:`EncoderOutput` a text, ``states`` (B, S, hidden); ``pooled`` is dropped where it no longer
        describes the states."""
