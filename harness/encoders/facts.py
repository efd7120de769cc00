"""What is known of an encoder before it is loaded; torch-free.

An encoder's YAML names in ``_check_`` a function ``(arguments, cache_dir) -> EncoderFacts`` that reads its
files as far as possible without torch and refuses those that could not be loaded, so that they cost no cell.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from harness.errors import HarnessError


@dataclass(frozen=True, slots=True)
class EncoderFacts:
    """Properties of an encoder according to its files.

    Attributes:
        num_layers: L, number of layers above the embeddings; None = unknown until it is loaded.
        no_bfloat16: why it cannot run in bfloat16; "" = it can, as far as is known.
    """

    num_layers: int | None = None
    no_bfloat16: str = ""

    @classmethod
    def joined(cls, members: Iterable[EncoderFacts]) -> EncoderFacts:
        """Return the facts of encoders that run side by side, aligned at the bottom layer."""
        facts = list(members)
        layers = [f.num_layers for f in facts if f.num_layers is not None]
        return cls(
            num_layers=max(layers) if len(layers) == len(facts) and layers else None,
            no_bfloat16=next((f.no_bfloat16 for f in facts if f.no_bfloat16), ""),
        )

    def check(self, name: str, *, layers: str | Iterable[int], precision: str) -> None:
        """Check what a cell requests of the encoder.

        Args:
            name: of the encoder, for messages.
            layers: ``encoder.layers``.
            precision: ``trainer.precision``.

        Raises:
            HarnessError: a layer that it does not have, or a precision in which it cannot run.
        """
        if not isinstance(layers, str) and self.num_layers is not None:
            numbers = list(layers)
            if max(numbers) > self.num_layers:
                shown = ",".join(map(str, numbers))
                raise HarnessError(
                    f"encoder.layers=[{shown}]: encoder {name} has layers 0 to {self.num_layers}"
                )
        if self.no_bfloat16 and precision.startswith("bf16"):
            raise HarnessError(f"trainer.precision={precision}: {self.no_bfloat16}; use 16-mixed or 32-true")
