"""GPT and similar models: continue the causal language model (Radford et al. 2018, 2019).

Each text is a row between end-of-text tokens, as far as the tokenizer has them. The measure on dev is the
perplexity per word: exp(nats of all tokens / words of the common word splitter).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from harness.adaptation.job import AdaptationJob, AdaptationResult
from harness.adaptation.trainer import continue_training, word_perplexity
from harness.adaptation.transformer import TransformerObjective, adapted_config, summed_nll
from harness.data.targets import IGNORE_INDEX
from harness.pretraining.base import EvalResult, TrainingBatch
from harness.pretraining.text.packing import TokenSequence, pad

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["ContinuedCausalLM", "adapt", "adapted_config"]


def adapt(job: AdaptationJob) -> AdaptationResult:
    """Continue a causal language model."""
    return continue_training(ContinuedCausalLM(job))


class ContinuedCausalLM(TransformerObjective):
    """See the module."""

    causal = True
    min_row = 2

    def set_special_tokens(self, model: PreTrainedModel) -> None:
        config, rows = model.config, self.vocabulary_size()
        start = config.bos_token_id if config.bos_token_id is not None else config.eos_token_id
        ends = config.eos_token_id
        end = ends[0] if isinstance(ends, list) else ends
        self.prefix = [start] if start is not None and 0 <= start < rows else []
        self.suffix = [end] if end is not None and 0 <= end < rows else []

    def _batch(self, rows: Sequence[TokenSequence], *, predict_end: bool) -> TrainingBatch:
        """Make a batch; ``predict_end``: the token after the text is predicted as well."""
        ids = pad([row.ids for row in rows], 0)
        lengths = np.array([len(row) for row in rows])[:, None]
        position = np.arange(ids.shape[1])[None]
        predicted = position[:, 1:] < lengths - (0 if predict_end else len(self.suffix))
        tensors = {
            "input_ids": torch.from_numpy(ids[:, :-1].copy()),
            "attention_mask": torch.from_numpy((position[:, :-1] < lengths).astype(np.int64)),
            "labels": torch.from_numpy(np.where(predicted, ids[:, 1:], IGNORE_INDEX)),
        }
        words = sum(int(row.words.sum()) for row in rows)
        return TrainingBatch(tensors, tokens=sum(self.text_tokens(row) for row in rows), words=words)

    def batches(self, *, seed: int, epoch: int) -> Iterator[TrainingBatch]:
        for indices in self.draw_batches(np.random.default_rng([seed, epoch])):
            yield self._batch([self.train[i] for i in indices], predict_end=True)

    @torch.no_grad()
    def evaluate(self, model: PreTrainedModel) -> EvalResult:
        device = next(model.parameters()).device
        nll, predicted = 0.0, 0
        for rows in self.eval_batches():
            batch = self._batch(rows, predict_end=False)
            tensors = {k: v.to(device) for k, v in batch.tensors.items()}
            labels = tensors.pop("labels")
            batch_nll, count = summed_nll(model, tensors, labels)
            nll, predicted = nll + batch_nll, predicted + count
        return EvalResult(nll, predicted, words=sum(int(row.words.sum()) for row in self.test))

    def measures(self, result: EvalResult) -> dict[str, float]:
        return word_perplexity(result)
