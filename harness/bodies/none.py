"""No task network: the head receives the encoder's states."""

from __future__ import annotations

from harness.bodies.base import Body
from harness.data.tokens import EncoderOutput, TokenBatch


class NoBody(Body):
    """Identity; the encoder's pooling is used."""

    def __init__(self, input_size: int) -> None:
        super().__init__()
        self.hidden_size = input_size

    def forward(
        self, encoded: tuple[EncoderOutput, ...], tokens: tuple[TokenBatch, ...]
    ) -> tuple[EncoderOutput, ...]:
        return encoded
