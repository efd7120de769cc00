"""What one adaptation is given and what it tells; free of torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from harness.core.fingerprint import data_fingerprint
from harness.data.text import Example, Text
from harness.errors import HarnessError
from harness.strategies.adapt import Adapt

DEV_MOST = 1000
"""Texts of dev that the loss is measured on, the first ones."""
LEAST_STEPS = 10
"""A pass has at least so many steps where there are as many texts: smaller batches on little text."""


@dataclass(frozen=True, slots=True)
class Texts:
    """Distinct texts, in the order of the data, none without words.

    Attributes:
        train: what is trained on.
        dev: what the loss is measured on, before and after; nothing is chosen by it.
    """

    train: tuple[Text, ...]
    dev: tuple[Text, ...]

    @classmethod
    def of(cls, train: Sequence[Example], dev: Sequence[Example]) -> Texts:
        """The texts of examples; labels are not looked at."""
        return cls(_distinct(train), _distinct(dev)[:DEV_MOST])

    def fingerprint(self) -> str:
        """Hex digest of the texts, their words and their order."""
        return data_fingerprint([[[t.text, t.spans] for t in part] for part in (self.train, self.dev)])


def _distinct(examples: Sequence[Example]) -> tuple[Text, ...]:
    return tuple(dict.fromkeys(t for example in examples for t in example.texts if len(t)))


@dataclass(slots=True)
class Job:
    """One encoder to adapt.

    Attributes:
        encoder: its configuration; it is not made of others.
        options: filled; ``seed`` a number.
        random_init: start from random weights.
        texts: see :class:`Texts`.
        folder: empty; gets the files that the adapted encoder is loaded from.
        cache_dir: the harness's own files.
        trainer: ``accelerator`` and ``precision``; ``device`` of the measure, a ``torch.device``.
        progress: gets events of the phase ``adapt``.
    """

    encoder: Mapping[str, Any]
    options: Adapt
    random_init: bool
    texts: Texts
    folder: Path
    cache_dir: Path
    trainer: Mapping[str, Any]
    progress: Callable[[dict[str, Any]], None]

    @property
    def seed(self) -> int:
        return int(self.options.seed)

    @property
    def lr(self) -> float:
        assert self.options.lr is not None
        return self.options.lr

    def per_step(self, count: int) -> int:
        """Texts (or what else is counted) a step, of ``count``."""
        return max(1, min(int(self.options.batch_size or 1), count // LEAST_STEPS))

    def load(self) -> Any:
        """The encoder before it is adapted, in training mode."""
        from harness.core.instantiate import build

        return build(self.encoder, random_init=self.random_init, cache_dir=self.cache_dir)

    def tell(self, **event: Any) -> None:
        """Show how far it is."""
        self.progress({"phase": "adapt", **event})


@dataclass(slots=True)
class Told:
    """What an adaptation leaves beside the encoder's files.

    Attributes:
        before, after: what was measured on dev, by name.
        notes: what a reader must know.
        seconds: wall time of all of it.
    """

    before: dict[str, float] = field(default_factory=dict)
    after: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def need_texts(texts: Texts) -> None:
    """Raises HarnessError where there is nothing to train on."""
    if not texts.train:
        raise HarnessError(
            "strategy.adapt: no text of the training split has a word; leave strategy.adapt out"
        )
