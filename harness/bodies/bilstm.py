"""A bidirectional LSTM over the states of each text: the usual task network over features and tables."""

from __future__ import annotations

from torch import nn

from harness.bodies.base import Body
from harness.bodies.rnn import MaskedLSTM
from harness.data.units import Encoded, Units


class BiLSTM(Body):
    """h = BiLSTM(dropout(x)); one set of weights for both texts of a pair. The head drops out of h.

    Special units are read like any other; pooling is [mean; max] over the units that are text.

    Args:
        input_size: width of the encoder's states.
        hidden: width of each direction.
        layers: LSTM layers.
        dropout: of the input, and between layers.
    """

    pooling = "meanmax"

    def __init__(self, input_size: int, *, hidden: int = 200, layers: int = 1, dropout: float = 0.3) -> None:
        super().__init__()
        self.rnn = MaskedLSTM(input_size, hidden=hidden, layers=layers, dropout=dropout)
        self.dropout = nn.Dropout(dropout)
        self.hidden = 2 * hidden

    def forward(self, encoded: tuple[Encoded, ...], units: tuple[Units, ...]) -> tuple[Encoded, ...]:
        return tuple(
            Encoded(self.rnn(self.dropout(e.states), u.mask)) for e, u in zip(encoded, units, strict=True)
        )
