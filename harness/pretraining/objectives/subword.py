"""Shared parts of the objectives over subwords (BERT and GPT-2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from harness.errors import HarnessError
from harness.pretraining.base import Objective
from harness.pretraining.budget import Recipe
from harness.pretraining.text.packing import TokenSequence, TransformerSizes

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

SubwordModelT = TypeVar("SubwordModelT", bound="PreTrainedModel")


@dataclass(frozen=True, slots=True)
class RowOptions:
    """How text becomes rows and rows become batches.

    Attributes:
        packing: ``document`` joins neighbouring lines up to the longest row, ``line`` makes one row per line,
            ``mixed`` treats half of the documents like ``document`` in each epoch; GPT-2 also has ``stream``.
        batch_rows: rows of full length per step, or as many more shorter rows as have the same tokens.
        long_rows_after_epoch: with ``line``, epochs after which packing is ``mixed``.
    """

    packing: str
    batch_rows: int
    long_rows_after_epoch: int = 0

    def check(self, valid: Sequence[str]) -> None:
        """Raise HarnessError for an unknown packing."""
        if self.packing not in valid:
            raise HarnessError(f"encoder.packing={self.packing}: expected {', '.join(valid)}")


class SubwordObjective(Objective[SubwordModelT, None]):
    """Base of objectives whose model and tokenizer are saved by transformers.

    Args:
        family: see :class:`harness.pretraining.base.Objective`.
        sizes: of the transformer.
        recipe: optimizer hyperparameters.
        rows: rows and batches.
        vocabulary: maximum number of tokens.
        tokenizer: reuse the vocabulary of another output (see
            :mod:`harness.pretraining.text.shared_tokenizer`); None trains one.
    """

    tokenizer: PreTrainedTokenizerFast
    train: list[list[TokenSequence]]

    def __init__(
        self,
        family: str,
        sizes: TransformerSizes,
        recipe: Recipe,
        rows: RowOptions,
        *,
        vocabulary: int,
        tokenizer: str | None,
    ) -> None:
        self.family, self.sizes, self.recipe, self.rows = family, sizes, recipe, rows
        self.vocabulary, self.shared_tokenizer = vocabulary, tokenizer
        self.notes: list[str] = []

    def set_train(self, documents: list[list[TokenSequence]]) -> None:
        """Set the tokenized training documents, line by line."""
        self.train = documents
        self.tokens_per_epoch = sum(len(line) for document in documents for line in document)

    def save(self, model: SubwordModelT, folder: Path) -> None:
        model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)

    def vocabulary_size(self) -> int:
        return len(self.tokenizer)
