"""A bidirectional LSTM over the states of each text: the usual task network over features and tables."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from harness.bodies.base import Body
from harness.bodies.rnn import MaskedLSTM
from harness.data.tokens import Encoded, Units
from harness.errors import HarnessError, did_you_mean

PLACES = ("before", "after", "both")


class BiLSTM(Body):
    """h = BiLSTM(dropout(x)); one set of weights for both texts of a pair. The head drops out of h.

    Special units are read like any other; pooling is [mean; max] over the units that are text.

    Args:
        input_size: width of the encoder's states.
        hidden: width of each direction.
        layers: LSTM layers.
        dropout: of the input, and between layers.
        features: ``before``: x are the encoder's features. ``both``: they also stand beside the output,
            [h; x'], mixed by other weights (Peters et al. 2018, section 3.3, last lines, and table 3).
            ``after``: only there, and x is the encoder's context-free layer.

    Raises:
        HarnessError: ``features`` is none of these.
    """

    pooling = "meanmax"

    def __init__(
        self,
        input_size: int,
        *,
        hidden: int = 200,
        layers: int = 1,
        dropout: float = 0.3,
        features: str = "before",
    ) -> None:
        super().__init__()
        if features not in PLACES:
            raise HarnessError(f"body.features={features}: {did_you_mean(str(features), PLACES)}")
        self.features = features
        self.rnn = MaskedLSTM(input_size, hidden=hidden, layers=layers, dropout=dropout)
        self.dropout = nn.Dropout(dropout)
        self.hidden = 2 * hidden + (0 if features == "before" else input_size)

    def forward(self, encoded: tuple[Encoded, ...], units: tuple[Units, ...]) -> tuple[Encoded, ...]:
        return tuple(Encoded(self._states(e, u)) for e, u in zip(encoded, units, strict=True))

    def _states(self, encoded: Encoded, units: Units) -> Tensor:
        out: Tensor = self.rnn(self.dropout(encoded.states), units.mask)
        if self.features == "before":
            return out
        late = encoded.states if encoded.layers is None else encoded.layers[-1]
        return torch.cat([out, self.dropout(late)], dim=2)
