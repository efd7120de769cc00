"""A bidirectional LSTM over the states of each text: the standard task network over features and tables."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from harness.bodies.base import Body
from harness.bodies.rnn import MaskedLSTM
from harness.data.tokens import EncoderOutput, TokenBatch
from harness.errors import HarnessError, did_you_mean

FEATURE_POSITIONS = ("before", "after", "both")


class BiLSTM(Body):
    """h = BiLSTM(dropout(x)), with shared weights for both texts of a pair; the head applies dropout to h.

    Special tokens are treated like other tokens; pooling is [mean; max] over the text tokens.

    Args:
        input_size: width of the encoder's states.
        hidden_size: width of each direction.
        layers: number of LSTM layers.
        dropout: on the input and between layers.
        features: ``before``: x are the encoder's features. ``both``: they are also concatenated to the
            output, [h; x'], mixed with other weights (Peters et al. 2018, section 3.3, last lines, and table
            3). ``after``: only concatenated to the output; x is the encoder's context-free layer.

    Raises:
        HarnessError: unknown ``features``.
    """

    pooling = "meanmax"

    def __init__(
        self,
        input_size: int,
        *,
        hidden_size: int = 200,
        layers: int = 1,
        dropout: float = 0.3,
        features: str = "before",
    ) -> None:
        super().__init__()
        if features not in FEATURE_POSITIONS:
            raise HarnessError(f"body.features={features}: {did_you_mean(str(features), FEATURE_POSITIONS)}")
        self.features = features
        self.rnn = MaskedLSTM(input_size, hidden_size=hidden_size, layers=layers, dropout=dropout)
        self.dropout = nn.Dropout(dropout)
        self.hidden_size = 2 * hidden_size + (0 if features == "before" else input_size)

    def forward(
        self, encoded: tuple[EncoderOutput, ...], tokens: tuple[TokenBatch, ...]
    ) -> tuple[EncoderOutput, ...]:
        return tuple(EncoderOutput(self._states(e, u)) for e, u in zip(encoded, tokens, strict=True))

    def _states(self, encoded: EncoderOutput, tokens: TokenBatch) -> Tensor:
        out: Tensor = self.rnn(self.dropout(encoded.last_hidden_state), tokens.mask)
        if self.features == "before":
            return out
        late = encoded.last_hidden_state if encoded.hidden_states is None else encoded.hidden_states[-1]
        return torch.cat([out, self.dropout(late)], dim=2)
