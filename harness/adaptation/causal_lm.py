"""GPT and its kin: the causal language model goes on (Radford et al. 2018, 2019).

A text is a row, behind the end-of-text token and before it where the tokenizer has one. On dev the measure is
the perplexity per word: exp(nats of all tokens / words of the common word splitter).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from harness.adaptation.job import Job, Told
from harness.adaptation.trainer import continue_training
from harness.adaptation.transformer import Row, TransformerTexts, placed, summed
from harness.data.targets import IGNORE_INDEX
from harness.pretraining.base import Batch, HeldOut
from harness.pretraining.text.packing import padded

__all__ = ["CausalTexts", "adapt", "placed"]


def adapt(job: Job) -> Told:
    """Continue a causal language model."""
    return continue_training(CausalTexts(job))


class CausalTexts(TransformerTexts):
    """See the module."""

    causal = True
    shortest = 2

    def special(self, model: Any) -> None:
        config, rows = model.config, self.vocabulary_size()
        start = config.bos_token_id if config.bos_token_id is not None else config.eos_token_id
        ends = config.eos_token_id
        end = ends[0] if isinstance(ends, list) else ends
        self.before = [start] if start is not None and 0 <= start < rows else []
        self.behind = [end] if end is not None and 0 <= end < rows else []

    def _batch(self, rows: Sequence[Row], *, ends: bool) -> Batch:
        """``ends``: the token behind the text is predicted, too."""
        ids = padded([row.ids for row in rows], 0)
        lengths = np.array([len(row) for row in rows])[:, None]
        place = np.arange(ids.shape[1])[None]
        asked = place[:, 1:] < lengths - (0 if ends else len(self.behind))
        tensors = {
            "input_ids": torch.from_numpy(ids[:, :-1].copy()),
            "attention_mask": torch.from_numpy((place[:, :-1] < lengths).astype(np.int64)),
            "labels": torch.from_numpy(np.where(asked, ids[:, 1:], IGNORE_INDEX)),
        }
        words = sum(int(row.words.sum()) for row in rows)
        return Batch(tensors, tokens=sum(self.counted(row) for row in rows), words=words)

    def batches(self, *, seed: int, epoch: int) -> Iterator[Batch]:
        for numbers in self.chosen(np.random.default_rng([seed, epoch])):
            yield self._batch([self.train[i] for i in numbers], ends=True)

    @torch.no_grad()
    def held_out(self, model: Any) -> HeldOut:
        device = next(model.parameters()).device
        rows = sorted(self.test, key=len)
        nll, total, size = 0.0, 0, int(self.job.options.batch_size or 1)
        for at in range(0, len(rows), size):
            tensors = {
                k: v.to(device) for k, v in self._batch(rows[at : at + size], ends=False).tensors.items()
            }
            labels = tensors.pop("labels")
            its, predicted = summed(model, tensors, labels)
            nll, total = nll + its, total + predicted
        return HeldOut(nll, total, words=sum(int(row.words.sum()) for row in rows))

    def measured(self, held: HeldOut) -> dict[str, float]:
        per_word = held.word_perplexity if held.words else None
        return {} if per_word is None else {"perplexity per word": per_word}
