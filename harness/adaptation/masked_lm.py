"""BERT and its kin: the masked language model goes on (Gururangan et al. 2020, task-adaptive pretraining).

In every pass 15 % of a row's pieces are chosen anew; of these 80 % are shown as the mask, 10 % as a random
piece (Devlin et al. 2019, section 3.1). A text is a row between the checkpoint's own special tokens. The
pairing objectives of some checkpoints (next sentence, sentence order) are not continued: a pooler stays as it
is.

On dev every piece is masked once, in rounds; the measure is the mean loss of a masked piece in nats.
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
from harness.errors import HarnessError
from harness.pretraining.base import Batch, HeldOut
from harness.pretraining.objectives.masked_lm import CHOSEN, MASKED, RANDOM, ROUNDS
from harness.pretraining.text.packing import padded

__all__ = ["MaskedTexts", "adapt", "placed"]
MASKS = ("[MASK]", "<mask>")


def adapt(job: Job) -> Told:
    """Continue a masked language model."""
    return continue_training(MaskedTexts(job))


class MaskedTexts(TransformerTexts):
    """See the module."""

    causal = False

    def special(self, model: Any) -> None:
        tokenizer = self.tokenizer
        at = next(i for i, slot in enumerate(tokenizer.single.slots) if slot.text == 0)
        self.before = [i for slot in tokenizer.single.slots[:at] for i in slot.ids]
        self.behind = [i for slot in tokenizer.single.slots[at + 1 :] for i in slot.ids]
        self.mask, self.pad = self._mask(), tokenizer.pad_id
        never = {*self.before, *self.behind, self.mask, self.pad}
        never |= set() if tokenizer.unknown is None else {tokenizer.unknown}
        self.never = np.array(sorted(never))
        known = min(self.vocabulary_size(), tokenizer.backend.get_vocab_size())
        self.pieces = np.setdiff1d(np.arange(known), self.never)

    def _mask(self) -> int:
        for name in MASKS:
            number = self.tokenizer.backend.token_to_id(name)
            if number is not None:
                return int(number)
        raise HarnessError(
            f"{self.source}: its tokenizer has no {' or '.join(MASKS)}, so that its objective cannot be "
            "continued; leave strategy.adapt out"
        )

    def batches(self, *, seed: int, epoch: int) -> Iterator[Batch]:
        rng = np.random.default_rng([seed, epoch])
        for numbers in self.chosen(rng):
            rows = [self.train[i] for i in numbers]
            ids = padded([row.ids for row in rows], self.pad)
            real = np.arange(ids.shape[1]) < np.array([len(row) for row in rows])[:, None]
            shown, labels = self._hide(ids, real, rng)
            tensors = {"input_ids": shown, "labels": labels, "attention_mask": real.astype(np.int64)}
            yield Batch(
                {k: torch.from_numpy(v) for k, v in tensors.items()},
                tokens=sum(self.counted(row) for row in rows),
                words=int(sum(row.words.sum() for row in rows)),
            )

    def _hide(
        self, ids: np.ndarray, real: np.ndarray, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """What is shown and what is to be predicted; in each row at least one piece, if it has any."""
        text = real & ~np.isin(ids, self.never)
        rank = np.where(text, rng.random(ids.shape), 2.0).argsort(1).argsort(1)
        chosen = text & (rank < np.maximum(1, np.round(CHOSEN * text.sum(1)))[:, None])
        how = rng.random(ids.shape)
        shown = np.where(chosen & (how < MASKED), self.mask, ids)
        shown = np.where(chosen & (how >= 1 - RANDOM), rng.choice(self.pieces, ids.shape), shown)
        return shown, np.where(chosen, ids, IGNORE_INDEX)

    @torch.no_grad()
    def held_out(self, model: Any) -> HeldOut:
        device = next(model.parameters()).device
        rows = sorted(self.test, key=len)
        nll, total, size = 0.0, 0, int(self.job.options.batch_size or 1)
        for at in range(0, len(rows), size):
            for offset in range(ROUNDS):
                shown, real, labels = self._every(rows[at : at + size], offset)
                tensors = {
                    "input_ids": torch.from_numpy(shown).to(device),
                    "attention_mask": torch.from_numpy(real.astype(np.int64)).to(device),
                }
                its, predicted = summed(model, tensors, torch.from_numpy(labels).to(device))
                nll, total = nll + its, total + predicted
        return HeldOut(nll, total, words=None, why="a masked language model gives no probability of a text")

    def _every(self, rows: Sequence[Row], offset: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rows in which every seventh piece is masked, from the ``offset``-th on."""
        ids = padded([row.ids for row in rows], self.pad)
        real = np.arange(ids.shape[1]) < np.array([len(row) for row in rows])[:, None]
        text = real & ~np.isin(ids, self.never)
        chosen = text & ((text.cumsum(1) - 1) % ROUNDS == offset)
        return np.where(chosen, self.mask, ids), real, np.where(chosen, ids, IGNORE_INDEX)

    def measured(self, held: HeldOut) -> dict[str, float]:
        return {"nats a masked piece": held.nll / held.predicted} if held.predicted else {}
