"""BERT and similar models: continue the masked language model (Gururangan et al. 2020).

In every epoch 15 % of a row's pieces are sampled again; 80 % of them are replaced by the mask token, 10 % by
a random piece (Devlin et al. 2019, section 3.1). Each text is a row between the checkpoint's own special
tokens. Sentence-pair objectives of some checkpoints (next sentence, sentence order) are not continued, so a
pooler remains unchanged.

On dev every piece is masked once, in rounds; the measure is the mean loss per masked piece in nats.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from harness.adaptation.job import AdaptationJob, AdaptationResult
from harness.adaptation.trainer import continue_training
from harness.adaptation.transformer import TransformerObjective, adapted_config, summed_nll
from harness.data.targets import IGNORE_INDEX
from harness.errors import HarnessError
from harness.pretraining.base import EvalResult, TrainingBatch
from harness.pretraining.objectives.masked_lm import MASKED, NO_PERPLEXITY, RANDOM, ROUNDS, choose_pieces
from harness.pretraining.text.packing import TokenSequence, pad

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["ContinuedMaskedLM", "adapt", "adapted_config"]
MASKS = ("[MASK]", "<mask>")


def adapt(job: AdaptationJob) -> AdaptationResult:
    """Continue a masked language model."""
    return continue_training(ContinuedMaskedLM(job))


class ContinuedMaskedLM(TransformerObjective):
    """See the module."""

    causal = False

    def set_special_tokens(self, model: PreTrainedModel) -> None:
        tokenizer = self.tokenizer
        # the template of a single text, such as [CLS] text [SEP]: part.text is 0 for the text itself
        text_slot = next(i for i, part in enumerate(tokenizer.single.parts) if part.text == 0)
        self.prefix = [i for part in tokenizer.single.parts[:text_slot] for i in part.ids]
        self.suffix = [i for part in tokenizer.single.parts[text_slot + 1 :] for i in part.ids]
        self.mask, self.padding = self._mask_id(), tokenizer.pad_id
        special = {*self.prefix, *self.suffix, self.mask, self.padding}
        special |= set() if tokenizer.unknown is None else {tokenizer.unknown}
        self.special = np.array(sorted(special))
        size = min(self.vocabulary_size(), tokenizer.backend.get_vocab_size())
        # random replacements: ids that both the model and the tokenizer have, without special ones
        self.pieces = np.setdiff1d(np.arange(size), self.special)

    def _mask_id(self) -> int:
        for name in MASKS:
            number = self.tokenizer.backend.token_to_id(name)
            if number is not None:
                return int(number)
        raise HarnessError(
            f"{self.source}: the tokenizer has no {' or '.join(MASKS)}, so its objective cannot be "
            "continued; remove strategy.adapt"
        )

    def batches(self, *, seed: int, epoch: int) -> Iterator[TrainingBatch]:
        rng = np.random.default_rng([seed, epoch])
        for indices in self.draw_batches(rng):
            rows = [self.train[i] for i in indices]
            ids, attention = self._pad(rows)
            inputs, labels = self._mask(ids, attention, rng)
            tensors = {"input_ids": inputs, "labels": labels, "attention_mask": attention.astype(np.int64)}
            yield TrainingBatch(
                {k: torch.from_numpy(v) for k, v in tensors.items()},
                tokens=sum(self.text_tokens(row) for row in rows),
                words=int(sum(row.words.sum() for row in rows)),
            )

    def _pad(self, rows: Sequence[TokenSequence]) -> tuple[np.ndarray, np.ndarray]:
        """(B, S) ids, and (B, S) Bool, True where there is a token."""
        ids = pad([row.ids for row in rows], self.padding)
        # from the lengths: the padding id may be that of a token which also occurs in texts
        return ids, np.arange(ids.shape[1]) < np.array([len(row) for row in rows])[:, None]

    def _mask(
        self, ids: np.ndarray, attention: np.ndarray, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Inputs and labels; see :func:`harness.pretraining.objectives.masked_lm.mask`."""
        chosen = choose_pieces(attention & ~np.isin(ids, self.special), rng)
        # [0, 0.8) mask token, [0.8, 0.9) unchanged, [0.9, 1) a random piece
        how = rng.random(ids.shape)
        inputs = np.where(chosen & (how < MASKED), self.mask, ids)
        inputs = np.where(chosen & (how >= 1 - RANDOM), rng.choice(self.pieces, ids.shape), inputs)
        return inputs, np.where(chosen, ids, IGNORE_INDEX)

    @torch.no_grad()
    def evaluate(self, model: PreTrainedModel) -> EvalResult:
        device = next(model.parameters()).device
        nll, predicted = 0.0, 0
        for rows in self.eval_batches():
            ids, attention = self._pad(rows)
            attention_mask = torch.from_numpy(attention.astype(np.int64)).to(device)
            for offset in range(ROUNDS):
                inputs, labels = self._mask_every(ids, attention, offset)
                tensors = {
                    "input_ids": torch.from_numpy(inputs).to(device), "attention_mask": attention_mask,
                }  # fmt: skip
                batch_nll, count = summed_nll(model, tensors, torch.from_numpy(labels).to(device))
                nll, predicted = nll + batch_nll, predicted + count
        return EvalResult(nll, predicted, words=None, reason=NO_PERPLEXITY)

    def _mask_every(
        self, ids: np.ndarray, attention: np.ndarray, offset: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Mask every seventh piece of each row, beginning with piece number ``offset``."""
        text = attention & ~np.isin(ids, self.special)
        # cumsum - 1 numbers the pieces 0, 1, ...: offset 0 masks pieces 0, 7, 14, ...
        chosen = text & ((text.cumsum(1) - 1) % ROUNDS == offset)
        return np.where(chosen, self.mask, ids), np.where(chosen, ids, IGNORE_INDEX)

    def measures(self, result: EvalResult) -> dict[str, float]:
        return {"nats per masked piece": result.nll / result.predicted} if result.predicted else {}
