"""Interface of bodies: networks that map the states of each text to new states over the same tokens."""

from __future__ import annotations

from abc import abstractmethod

from torch import nn

from harness.data.tokens import EncoderOutput, TokenBatch


class Body(nn.Module):
    """A network over the tokens of one or two texts, constructed as ``Body(input_size, **options)``.

    Attributes:
        hidden_size: width of the returned states.
        pooling: pooling of its states into one vector; None = the encoder's, including a pretrained pooler.
        pairs: ``separate`` if it requires separately encoded texts; None = both are supported.
        features: how the encoder's features are passed. ``before``: ``last_hidden_state`` contains the
            features. ``after``: ``last_hidden_state`` is the embedding layer, and the features are the only
            layer in ``hidden_states``. ``both``: ``last_hidden_state`` contains the features, and
            ``hidden_states`` contains them again, mixed with other weights; without a mix ``hidden_states``
            is None, and ``last_hidden_state`` is used for both.
    """

    hidden_size: int
    pooling: str | None = None
    pairs: str | None = None
    features: str = "before"

    @abstractmethod
    def forward(
        self, encoded: tuple[EncoderOutput, ...], tokens: tuple[TokenBatch, ...]
    ) -> tuple[EncoderOutput, ...]:
        """Return one :class:`EncoderOutput` per text with states (B, S, hidden_size).

        ``pooler_output`` is dropped if it no longer describes the states.
        """
