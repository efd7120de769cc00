"""GPT-2's objective (Radford et al. 2019): predict the next byte pair from all before it.

Documents in random order, ``<|endoftext|>`` between them, are one stream that is cut into blocks of equal
length; or, ``rows`` other than ``stream``, a row is what it is for BERT, between two ``<|endoftext|>``.

``block=gpt2`` is the published block (norms before each part). ``block=bert`` is BERT's (norms behind
each part) with a mask over what is to come: with BERT's rows and its vocabulary (``tokenizer``), too, this
model and a BERT of the same size differ in nothing but mask and objective.

**Held out.** Each document is read alone, behind ``<|endoftext|>``; a document that is longer than the model
reaches is read in windows that overlap by half, each token predicted in the window that shows most before it.
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
    tokenise,
    unigram_nll,
)
from harness.pretraining.text.shared_tokenizer import is_spaced, shared_byte_pairs
from harness.pretraining.text.tokenizers import END, byte_pair_tokenizer

BLOCKS = ("gpt2", "bert")
STREAM = "stream"


class CausalLM(Objective):
    """See the module.

    Args:
        block: sizes.
        recipe: rates.
        vocabulary: most tokens.
        batch_rows: blocks a step.
        kind: ``gpt2`` or ``bert``, which block.
        rows: ``stream``, or as for :class:`harness.pretraining.objectives.masked_lm.MaskedLM`; then ``batch_rows`` counts
            rows of full length, or as many more shorter ones as hold as many tokens.
        long_from: with ``line``, passes after which it is ``mixed``.
        tokenizer: take the vocabulary of another output (see :mod:`harness.pretraining.text.shared_tokenizer`).
    """

    def __init__(
        self,
        block: Block,
        recipe: Recipe,
        *,
        vocabulary: int,
        batch_rows: int,
        kind: str = "gpt2",
        rows: str = STREAM,
        long_from: int = 0,
        tokenizer: str | None = None,
    ) -> None:
        if kind not in BLOCKS:
            raise HarnessError(f"encoder.block={kind}: gpt2 or bert is wanted")
        if rows not in (STREAM, *ROWS):
            raise HarnessError(f"encoder.rows={rows}: stream, mixed, document or line is wanted")
        self.rows, self.long_from, self.shared = rows, long_from, tokenizer
        self.family, self.block, self.recipe = "gpt", block, recipe
        self.vocabulary, self.batch_rows, self.kind = vocabulary, batch_rows, kind
        self.notes: list[str] = []

    def prepare(self, corpus: Corpus, *, seed: int) -> None:
        texts = joined(corpus.train)
        if self.shared is None:
            room, end = self.block.positions, END
            self.tokenizer = byte_pair_tokenizer(texts, size=self.vocabulary, positions=room)
        else:
            self.tokenizer, end = shared_byte_pairs(self.shared, positions=self.block.positions)
        backend = self.tokenizer.backend_tokenizer
        self.end = int(self.tokenizer.convert_tokens_to_ids(end))
        if self.rows == STREAM:
            self.train = [[pieces] for pieces in tokenise(backend, texts)]
        else:
            self.train = lines_of(backend, corpus.train, spaced=self.rows != "line" and is_spaced(backend))
        self.test = tokenise(backend, joined(corpus.held_out))
        self.tokens_per_epoch = sum(len(line) for document in self.train for line in document)

    def build(self) -> torch.nn.Module:
        from transformers import BertLMHeadModel, GPT2LMHeadModel

        config = self._gpt2() if self.kind == "gpt2" else self._bert()
        model: torch.nn.Module = (GPT2LMHeadModel if self.kind == "gpt2" else BertLMHeadModel)(config)
        return model.train()

    def _gpt2(self) -> Any:
        from transformers import GPT2Config

        b = self.block
        return GPT2Config(
            vocab_size=self.vocabulary_size(),
            n_embd=b.width,
            n_layer=b.layers,
            n_head=b.heads,
            n_inner=b.feed_forward,
            n_positions=b.positions,
            activation_function=b.activation,
            resid_pdrop=b.dropout,
            embd_pdrop=b.dropout,
            attn_pdrop=b.dropout,
            bos_token_id=self.end,
            eos_token_id=self.end,
            use_cache=False,
        )

    def _bert(self) -> Any:
        return self.block.bert(
            vocab_size=self.vocabulary_size(),
            type_vocab_size=1,
            pad_token_id=None,
            bos_token_id=self.end,
            eos_token_id=self.end,
            is_decoder=True,
            use_cache=False,
        )

    def batches(self, *, seed: int, epoch: int) -> Iterator[Batch]:
        rng = np.random.default_rng([seed, epoch])
        stop = Pieces(np.array([self.end]), np.array([0]))
        if self.rows != STREAM:
            yield from self._rows(rng, stop, epoch=epoch)
            return
        order = rng.permutation(len(self.train))
        parts = [stop, *(part for i in order for part in (*self.train[i], stop))]
        stream = Pieces.join(parts)
        width = self.block.positions
        rows = [stream.cut(at, at + width + 1) for at in range(0, len(stream) - 1, width)]
        order = rng.permutation(len(rows))
        for at in range(0, len(rows), self.batch_rows):
            yield self._batch([rows[i] for i in order[at : at + self.batch_rows]])

    def _rows(self, rng: np.random.Generator, stop: Pieces, *, epoch: int) -> Iterator[Batch]:
        whole = drawn_whole(self.rows, len(self.train), rng, epoch=epoch, long_from=self.long_from)
        rows = [Pieces.join([stop, r, stop]) for r in rows_of(self.train, whole, self.block.positions - 2)]
        for chosen in batched([len(r) for r in rows], self.batch_rows * self.block.positions, rng):
            yield self._batch([rows[i] for i in chosen])

    def _batch(self, rows: Sequence[Pieces]) -> Batch:
        ids = padded([r.ids for r in rows], IGNORE_INDEX)
        labels = ids[:, 1:]
        shown = np.where(ids[:, :-1] == IGNORE_INDEX, self.end, ids[:, :-1])
        tokens = int(((labels != IGNORE_INDEX) & (labels != self.end)).sum())
        tensors = {"input_ids": torch.from_numpy(shown), "labels": torch.from_numpy(labels.copy())}
        return Batch(tensors, tokens=tokens, words=int(sum(r.words[1:].sum() for r in rows)))

    def loss(self, model: Any, batch: Batch, carry: Any) -> Loss:
        labels = batch.tensors["labels"]
        logits = model(input_ids=batch.tensors["input_ids"]).logits.float()
        mean = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORE_INDEX)
        predicted = int((labels != IGNORE_INDEX).sum())
        return Loss(mean, float(mean.detach()) * predicted, predicted)

    @torch.no_grad()
    def held_out(self, model: Any) -> HeldOut:
        device = next(model.parameters()).device
        rows = sorted(
            (w for document in self.test for w in self.windows(document.ids)), key=lambda w: len(w[0])
        )
        nll = predicted = 0.0
        for at in range(0, len(rows), self.batch_rows):
            part = rows[at : at + self.batch_rows]
            shown = torch.from_numpy(padded([w[0] for w in part], self.end)).to(device)
            labels = torch.from_numpy(padded([w[1] for w in part], IGNORE_INDEX)).to(device)
            logits = model(input_ids=shown).logits.float()
            nll += float(_summed(logits, labels))
            predicted += int((labels != IGNORE_INDEX).sum())
        return HeldOut(
            nll,
            int(predicted),
            words=sum(int(d.words.sum()) for d in self.test),
            unigram=unigram_nll(
                (line.ids for document in self.train for line in document),
                (document.ids for document in self.test),
                size=self.vocabulary_size(),
            ),
        )

    def windows(self, ids: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """What is shown and what is to be predicted; each token of the document exactly once."""
        width = self.block.positions
        whole = np.concatenate([[self.end], ids])
        done, start = 0, 0
        while done < len(ids):
            shown, labels = (
                whole[start : start + width][: len(ids) - start],
                ids[start : start + width].copy(),
            )
            labels[: done - start] = IGNORE_INDEX
            yield shown, labels
            done = start + len(labels)
            start = max(done - width // 2, start + 1)

    def save(self, model: Any, folder: Path) -> None:
        model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)

    def vocabulary_size(self) -> int:
        return len(self.tokenizer)

    def encoder_parameters(self, model: Any) -> int:
        return sum(p.numel() for p in model.base_model.parameters())


def _summed(logits: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORE_INDEX, reduction="sum")


def joined(documents: Sequence[Document]) -> list[str]:
    """Each document as one text, its lines joined by blanks, as the tasks' texts have them."""
    return [" ".join(document) for document in documents]
