"""Inputs and results of one adaptation; does not import torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from harness.core.events import Progress
from harness.core.fingerprint import data_fingerprint
from harness.data.text import Example, Text
from harness.encoders.config import EncoderConfig
from harness.errors import HarnessError
from harness.pretraining.base import TrainerOptions
from harness.strategies.adapt import Adapt

if TYPE_CHECKING:
    from harness.encoders.base import Encoder

MAX_DEV_TEXTS = 1000
"""Number of dev texts that the loss is measured on, the first ones."""
MIN_STEPS = 10
"""Minimum number of steps per epoch, if there are as many texts: little text gets smaller batches."""
EncoderT = TypeVar("EncoderT", bound="Encoder")


@dataclass(frozen=True, slots=True)
class AdaptationTexts:
    """Distinct texts in the order of the data, none without words.

    Attributes:
        train: trained on.
        dev: the loss is measured on these before and after; nothing is selected by it.
    """

    train: tuple[Text, ...]
    dev: tuple[Text, ...]

    @classmethod
    def of(cls, train: Sequence[Example], dev: Sequence[Example]) -> AdaptationTexts:
        """Collect the texts of examples; their labels are not read."""
        return cls(_distinct(train), _distinct(dev)[:MAX_DEV_TEXTS])

    def fingerprint(self) -> str:
        """Hex digest of the texts, their words and their order."""
        return data_fingerprint([[[t.text, t.spans] for t in part] for part in (self.train, self.dev)])


def _distinct(examples: Sequence[Example]) -> tuple[Text, ...]:
    return tuple(dict.fromkeys(t for example in examples for t in example.texts if len(t)))


@dataclass(slots=True)
class AdaptationJob:
    """One encoder to adapt.

    Attributes:
        encoder: its configuration; not that of a joint encoder.
        options: with all values set; ``seed`` is a number.
        random_init: start from random weights.
        texts: see :class:`AdaptationTexts`.
        folder: empty; receives the files that the adapted encoder is loaded from.
        cache_dir: the harness's cache.
        trainer: ``accelerator``, ``precision``, and the ``device`` to evaluate on.
        progress: receives events of the phase ``adapt``.
    """

    encoder: EncoderConfig
    options: Adapt
    random_init: bool
    texts: AdaptationTexts
    folder: Path
    cache_dir: Path
    trainer: TrainerOptions
    progress: Progress

    @property
    def seed(self) -> int:
        return int(self.options.seed)

    @property
    def lr(self) -> float:
        assert self.options.lr is not None
        return self.options.lr

    def items_per_step(self, count: int) -> int:
        """Batch size for ``count`` texts (or other items) per epoch."""
        return max(1, min(int(self.options.batch_size or 1), count // MIN_STEPS))

    def load(self, kind: type[EncoderT]) -> EncoderT:
        """Load the encoder before adaptation, in training mode.

        Raises:
            TypeError: the configuration builds something other than ``kind``.
        """
        encoder = self.encoder.build(random_init=self.random_init, cache_dir=self.cache_dir)
        if not isinstance(encoder, kind):
            raise TypeError(f"{self.encoder.target}: built a {type(encoder).__name__}, not a {kind.__name__}")
        return encoder

    def report(self, **event: object) -> None:
        """Send an event of the phase ``adapt``."""
        self.progress({"phase": "adapt", **event})


@dataclass(slots=True)
class AdaptationResult:
    """What an adaptation produces besides the encoder's files.

    Attributes:
        before, after: measures on dev, by name.
        notes: remarks for the record.
        seconds: total wall time.
    """

    before: dict[str, float] = field(default_factory=dict)
    after: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def to_json(self) -> dict[str, object]:
        return asdict(self)


AdaptFunction: TypeAlias = Callable[[AdaptationJob], AdaptationResult]
"""``adapt`` of a family's module."""
ConfigFunction: TypeAlias = Callable[[EncoderConfig, Path], EncoderConfig]
"""``adapted_config`` of a family's module: the encoder's configuration with its files in a folder."""


def require_texts(texts: AdaptationTexts) -> None:
    """Raise HarnessError if there is nothing to train on."""
    if not texts.train:
        raise HarnessError(
            "strategy.adapt: no text of the training split contains a word; remove strategy.adapt"
        )
