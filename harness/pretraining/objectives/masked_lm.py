"""BERT's objectives (Devlin et al. 2019, section 3.1).

**Masked language model.** Of the pieces of a row 15 % are chosen anew in every pass; of these 80 % are shown
as ``[MASK]``, 10 % as a random piece, 10 % as they are, and the loss is the mean cross-entropy of the true
pieces there. The 15 % and the three shares hold for each row and for the whole, the latter by chance.

A small model leaves its plateau sooner on rows of one line; after ``long_from`` passes half of the documents
are read in rows of full length, so that all positions are trained: short rows first, then long ones, as the
published models were trained (appendix A.2).

**Next sentence** (optional). A row holds two stretches of text, ``[CLS] a [SEP] b [SEP]``; in half of the
rows b follows a in its document, in the others it comes from another one. The pooler is trained by telling
these apart, and kept; without this objective no pooler and no second segment exists, and none is saved.

**Held out.** The model gives no probability of a text, so there is no perplexity per word. What is measured
instead is the loss with every piece masked exactly once, in :data:`ROUNDS` rounds of every seventh piece.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from harness.data.targets import IGNORE_INDEX
from harness.errors import HarnessError
from harness.pretraining.base import Batch, HeldOut, Loss, Objective, Recipe
from harness.pretraining.objectives.next_sentence import CLS, SEP, Row, pairs
from harness.pretraining.objectives.pseudo_perplexity import pseudo_perplexity, spread
from harness.pretraining.text.corpus import Corpus, Document
from harness.pretraining.text.packing import (
    ROWS,
    Block,
    Pieces,
    batched,
    drawn_whole,
    lines_of,
    padded,
    rows_of,
    unigram_nll,
)
from harness.pretraining.text.shared_tokenizer import is_spaced, shared_word_pieces
from harness.pretraining.text.tokenizers import SPECIAL, word_piece_tokenizer

CHOSEN, MASKED, RANDOM = 0.15, 0.8, 0.1
ROUNDS = 7
MEASURED = 50_000
"""About so many held-out pieces are measured: each row is read once a round."""
PAD, MASK = SPECIAL.index("[PAD]"), SPECIAL.index("[MASK]")


class MaskedLM(Objective):
    """See the module.

    Args:
        block: sizes.
        recipe: rates.
        vocabulary: most word pieces.
        lower: ignore case and accents.
        rows: ``document`` = neighbouring lines together up to the longest row, ``line`` = one a row,
            ``mixed`` = in each pass half of the documents so, half so.
        batch_rows: rows of full length a step, or as many more shorter ones as hold as many tokens.
        next_sentence: train the pooler, too.
        long_from: with ``line``, passes after which it is ``mixed``.
        tokenizer: take the vocabulary of another output (see :mod:`harness.pretraining.text.shared_tokenizer`).
        pseudo_lines: held-out lines that the pseudo-perplexity is measured on.
    """

    def __init__(
        self,
        block: Block,
        recipe: Recipe,
        *,
        vocabulary: int,
        lower: bool,
        rows: str,
        batch_rows: int,
        next_sentence: bool,
        long_from: int = 0,
        tokenizer: str | None = None,
        pseudo_lines: int = 0,
    ) -> None:
        if rows not in ROWS:
            raise HarnessError(f"encoder.rows={rows}: mixed, document or line is wanted")
        self.family, self.block, self.recipe = "bert", block, recipe
        self.vocabulary, self.lower, self.rows = vocabulary, lower, rows
        self.batch_rows, self.next_sentence, self.long_from = batch_rows, next_sentence, long_from
        self.shared, self.pseudo_lines = tokenizer, pseudo_lines
        self.notes: list[str] = []

    def prepare(self, corpus: Corpus, *, seed: int) -> None:
        lines = [line for document in corpus.train for line in document]
        room = self.block.positions
        self.tokenizer = (
            word_piece_tokenizer(lines, size=self.vocabulary, lower=self.lower, positions=room)
            if self.shared is None
            else shared_word_pieces(self.shared, positions=room)
        )
        self.train = self._pieces(corpus.train)
        self.test = self._pieces(corpus.held_out)
        self.tokens_per_epoch = sum(len(line) for document in self.train for line in document)

    def _pieces(self, documents: Sequence[Document]) -> list[list[Pieces]]:
        backend = self.tokenizer.backend_tokenizer
        return lines_of(backend, documents, spaced=self.rows != "line" and is_spaced(backend))

    def _single_rows(self, documents: Sequence[list[Pieces]], whole: np.ndarray) -> list[Row]:
        """Rows without pairs."""
        return [_single(row) for row in rows_of(documents, whole, self.block.positions - 2)]

    def _rows(self, rng: np.random.Generator, *, epoch: int) -> list[Row]:
        """Rows of one pass."""
        if self.next_sentence:
            return list(pairs(self.train, self.block.positions - 3, rng))
        whole = drawn_whole(self.rows, len(self.train), rng, epoch=epoch, long_from=self.long_from)
        return self._single_rows(self.train, whole)

    def build(self) -> torch.nn.Module:
        from transformers import BertForMaskedLM, BertForPreTraining

        config = self.block.bert(
            vocab_size=self.vocabulary_size(),
            type_vocab_size=2 if self.next_sentence else 1,
            pad_token_id=PAD,
        )
        model: torch.nn.Module = (BertForPreTraining if self.next_sentence else BertForMaskedLM)(config)
        return model.train()

    def batches(self, *, seed: int, epoch: int) -> Iterator[Batch]:
        rng = np.random.default_rng([seed, epoch])
        rows = self._rows(rng, epoch=epoch)
        tokens = self.batch_rows * self.block.positions
        for chosen in batched([len(r.ids) for r in rows], tokens, rng):
            yield self._batch([rows[i] for i in chosen], rng)

    def _batch(self, rows: Sequence[Row], rng: np.random.Generator) -> Batch:
        ids = padded([r.ids for r in rows], PAD)
        shown, labels = mask(ids, size=self.vocabulary_size(), rng=rng)
        tensors = {
            "input_ids": torch.from_numpy(shown),
            "labels": torch.from_numpy(labels),
            "attention_mask": torch.from_numpy((ids != PAD).astype(np.int64)),
        }
        if self.next_sentence:
            tensors["token_type_ids"] = torch.from_numpy(padded([r.segments for r in rows], 0))
            tensors["other"] = torch.tensor([r.other for r in rows])
        special = np.isin(ids, (PAD, CLS, SEP))
        return Batch(tensors, tokens=int((~special).sum()), words=sum(r.words for r in rows))

    def loss(self, model: Any, batch: Batch, carry: Any) -> Loss:
        t = batch.tensors
        out = _encode(model, t)
        logits, gold = _predict(model, out.last_hidden_state, t["labels"])
        # rows of nothing but unknown pieces have none that could be masked
        mean = F.cross_entropy(logits, gold) if len(gold) else 0.0 * out.last_hidden_state.sum()
        loss = Loss(mean, float(mean.detach()) * len(gold), len(gold))
        if self.next_sentence:
            said = model.cls.seq_relationship(out.pooler_output).float()
            pairs_loss = F.cross_entropy(said, t["other"])
            loss.more["next_sentence_loss"] = float(pairs_loss.detach())
            loss.also = ((pairs_loss, len(said)),)
        return loss

    @torch.no_grad()
    def held_out(self, model: Any) -> HeldOut:
        device = next(model.parameters()).device
        whole = np.full(len(self.test), self.rows != "line")
        rows = self._measured(self._single_rows(self.test, whole))
        nll = right = total = 0.0
        for at in range(0, len(rows), self.batch_rows):
            ids = torch.from_numpy(padded([r.ids for r in rows[at : at + self.batch_rows]], PAD)).to(device)
            for offset in range(ROUNDS):
                shown, labels = mask_every(ids, offset)
                tensors = {"input_ids": shown, "attention_mask": (ids != PAD).long()}
                states = _encode(model, tensors).last_hidden_state
                logits, gold = _predict(model, states, labels)
                nll += float(F.cross_entropy(logits, gold, reduction="sum"))
                right += int((logits.argmax(-1) == gold).sum())
                total += len(gold)
        return HeldOut(
            nll=nll,
            predicted=int(total),
            words=None,
            unknown=0.0,
            why="a masked language model gives no probability of a text",
            unigram=unigram_nll(
                (line.ids for document in self.train for line in document),
                (row.ids for row in rows),
                size=self.vocabulary_size(),
                first=len(SPECIAL),
            ),
            more={
                "masked_accuracy": right / max(1, total),
                "masked_nll": nll / max(1, total),
                **self._pseudo(model, device),
            },
        )

    def _measured(self, rows: list[Row]) -> list[Row]:
        """Evenly spread ones with about :data:`MEASURED` pieces, the shortest first; all where there are no
        more."""
        step = max(1, round(sum(len(row.ids) for row in rows) / MEASURED))
        if step > 1:
            self.notes.append(f"the loss is measured on every {step}-th of {len(rows)} held-out rows")
        return sorted(rows[::step], key=lambda row: len(row.ids))

    def _pseudo(self, model: Any, device: torch.device) -> dict[str, float]:
        room = self.block.positions - 2
        lines = [line.cut(0, room) for document in self.test for line in document]
        chosen = [lines[i] for i in spread([len(line) for line in lines], self.pseudo_lines)]
        if not chosen:
            return {}

        def scores(shown: Tensor, places: Tensor) -> Tensor:
            states = _encode(model, {"input_ids": shown}).last_hidden_state
            out: Tensor = model.cls.predictions(states[torch.arange(len(places), device=device), places])
            return out

        rows = [_single(line).ids for line in chosen]
        found, pieces = pseudo_perplexity(rows, scores, mask=MASK, first_text=len(SPECIAL), device=device)
        self.notes.append(
            f"pseudo-perplexity a piece (Salazar et al. 2020), over {len(rows)} held-out lines: each piece "
            "was masked by itself; this is no perplexity and not comparable with one"
        )
        return {"pseudo_perplexity": found, "pseudo_lines": len(rows), "pseudo_pieces": pieces}

    def save(self, model: Any, folder: Path) -> None:
        model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)

    def vocabulary_size(self) -> int:
        return len(self.tokenizer)

    def encoder_parameters(self, model: Any) -> int:
        return sum(p.numel() for p in model.bert.parameters())


def _encode(model: Any, tensors: dict[str, Tensor]) -> Any:
    takes = ("input_ids", "attention_mask", "token_type_ids")
    return model.bert(**{k: tensors[k] for k in takes if k in tensors})


def _predict(model: Any, states: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Scores (N, V) and the true pieces (N,) where there is a label: nothing is computed elsewhere."""
    at = labels != IGNORE_INDEX
    return model.cls.predictions(states[at]).float(), labels[at]


def _single(row: Pieces) -> Row:
    ids = np.concatenate([[CLS], row.ids, [SEP]])
    return Row(ids, np.zeros_like(ids), int(row.words.sum()))


def mask(ids: np.ndarray, *, size: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """What is shown and what is to be predicted (``IGNORE_INDEX`` elsewhere), for (B, S) ids of ``size`` kinds.

    In each row 15 % of the pieces of text, rounded, at least one; special and unknown ones never.
    """
    text = ids >= len(SPECIAL)
    rank = np.where(text, rng.random(ids.shape), 2.0).argsort(1).argsort(1)
    count = np.maximum(1, np.round(CHOSEN * text.sum(1)))[:, None]
    chosen = text & (rank < count)
    how = rng.random(ids.shape)
    shown = np.where(chosen & (how < MASKED), MASK, ids)
    instead = rng.integers(len(SPECIAL), max(size, len(SPECIAL) + 1), ids.shape)
    shown = np.where(chosen & (how >= 1 - RANDOM), instead, shown)
    return shown, np.where(chosen, ids, IGNORE_INDEX)


def mask_every(ids: Tensor, offset: int) -> tuple[Tensor, Tensor]:
    """The pieces of text of each row numbered; those whose number is ``offset`` modulo the rounds masked."""
    text = ids >= len(SPECIAL)
    chosen = text & ((text.long().cumsum(1) - 1) % ROUNDS == offset)
    return ids.masked_fill(chosen, MASK), ids.masked_fill(~chosen, IGNORE_INDEX)
