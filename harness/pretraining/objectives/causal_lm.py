"""GPT-2's objective (Radford et al. 2019): predict the next byte pair from all previous ones.

With ``packing=stream`` the documents form one stream in random order, separated by ``<|endoftext|>``, which
is cut into blocks of equal length. With any other packing, rows are those of BERT between two
``<|endoftext|>``.

``block=gpt2`` is the published transformer block (norms before each part). ``block=bert`` is BERT's block
(norms after each part) with a causal mask: with BERT's packing and vocabulary (``tokenizer``), this model
differs from a BERT of the same size only in mask and objective.

**Evaluation.** Each document is read on its own after ``<|endoftext|>``. Documents longer than the model's
maximum length are read in windows that overlap by half; each token is predicted once, in the first window
that contains it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from harness.data.targets import IGNORE_INDEX
from harness.errors import HarnessError
from harness.pretraining.base import BatchLoss, EvalResult, TrainingBatch
from harness.pretraining.budget import Recipe
from harness.pretraining.objectives.subword import RowOptions, SubwordObjective
from harness.pretraining.text.corpus import Corpus, Document
from harness.pretraining.text.packing import (
    PACKINGS,
    TokenSequence,
    TransformerSizes,
    batch_by_length,
    draw_joined_documents,
    pack_documents,
    pad,
    tokenize_lines,
    tokenize_texts,
    unigram_nll,
)
from harness.pretraining.text.shared_tokenizer import is_spaced, shared_byte_pairs
from harness.pretraining.text.tokenizers import END, byte_pair_tokenizer

if TYPE_CHECKING:
    from transformers import BertConfig, GPT2Config, PreTrainedModel

BLOCKS = ("gpt2", "bert")
STREAM = "stream"


class CausalLM(SubwordObjective["PreTrainedModel"]):
    """Causal language model, see the module.

    Args:
        sizes: of the transformer.
        recipe: optimizer hyperparameters.
        vocabulary: maximum number of byte pairs.
        batch_rows: blocks per step; see also :class:`RowOptions`.
        block: ``gpt2`` or ``bert``.
        packing, long_rows_after_epoch: see :class:`RowOptions`.
        tokenizer: see :class:`SubwordObjective`.
    """

    def __init__(
        self,
        sizes: TransformerSizes,
        recipe: Recipe,
        *,
        vocabulary: int,
        batch_rows: int,
        block: str = "gpt2",
        packing: str = STREAM,
        long_rows_after_epoch: int = 0,
        tokenizer: str | None = None,
    ) -> None:
        if block not in BLOCKS:
            raise HarnessError(f"encoder.block={block}: expected {' or '.join(BLOCKS)}")
        rows = RowOptions(packing, batch_rows, long_rows_after_epoch)
        rows.check((STREAM, *PACKINGS))
        super().__init__("gpt", sizes, recipe, rows, vocabulary=vocabulary, tokenizer=tokenizer)
        self.block = block

    def prepare(self, corpus: Corpus, *, seed: int) -> None:
        texts = join_lines(corpus.train)
        positions, end = self.sizes.positions, END
        if self.shared_tokenizer is None:
            self.tokenizer = byte_pair_tokenizer(texts, size=self.vocabulary, positions=positions)
        else:
            self.tokenizer, end = shared_byte_pairs(self.shared_tokenizer, positions=positions)
        backend = self.tokenizer.backend_tokenizer
        end_id = self.tokenizer.convert_tokens_to_ids(end)
        assert isinstance(end_id, int)
        self.end = end_id
        if self.rows.packing == STREAM:
            self.set_train([[sequence] for sequence in tokenize_texts(backend, texts)])
        else:
            spaced = self.rows.packing != "line" and is_spaced(backend)
            self.set_train(tokenize_lines(backend, corpus.train, spaced=spaced))
        self.test = tokenize_texts(backend, join_lines(corpus.held_out))

    def build(self) -> PreTrainedModel:
        from transformers import BertLMHeadModel, GPT2LMHeadModel

        model: PreTrainedModel
        if self.block == "gpt2":
            model = GPT2LMHeadModel(self._gpt2_config())
        else:
            model = BertLMHeadModel(self._bert_config())
        model.train()
        return model

    def _bert_config(self) -> BertConfig:
        return self.sizes.bert_config(
            vocab_size=self.vocabulary_size(),
            type_vocab_size=1,
            pad_token_id=None,
            bos_token_id=self.end,
            eos_token_id=self.end,
            is_decoder=True,
            use_cache=False,
        )

    def _gpt2_config(self) -> GPT2Config:
        from transformers import GPT2Config

        sizes = self.sizes
        return GPT2Config(
            vocab_size=self.vocabulary_size(),
            n_embd=sizes.width,
            n_layer=sizes.layers,
            n_head=sizes.heads,
            n_inner=sizes.feed_forward,
            n_positions=sizes.positions,
            activation_function=sizes.activation,
            resid_pdrop=sizes.dropout,
            embd_pdrop=sizes.dropout,
            attn_pdrop=sizes.dropout,
            bos_token_id=self.end,
            eos_token_id=self.end,
            use_cache=False,
        )

    def batches(self, *, seed: int, epoch: int) -> Iterator[TrainingBatch]:
        rng = np.random.default_rng([seed, epoch])
        # no word begins in the separator, so it counts 0 words
        end = TokenSequence(np.array([self.end]), np.array([0]))
        if self.rows.packing != STREAM:
            yield from self._row_batches(rng, end, epoch=epoch)
            return
        order = rng.permutation(len(self.train))
        stream = TokenSequence.join([end, *(part for i in order for part in (*self.train[i], end))])
        # blocks of width + 1 tokens that overlap by one: inputs are all but the last, labels all but the
        # first
        width = self.sizes.positions
        # width 2, stream E a b E c E: blocks E a b, b E c, c E; each token but the first is a label once
        rows = [stream.slice(at, at + width + 1) for at in range(0, len(stream) - 1, width)]
        order = rng.permutation(len(rows))
        for at in range(0, len(rows), self.rows.batch_rows):
            yield self._batch([rows[i] for i in order[at : at + self.rows.batch_rows]])

    def _row_batches(
        self, rng: np.random.Generator, end: TokenSequence, *, epoch: int
    ) -> Iterator[TrainingBatch]:
        joined = draw_joined_documents(
            self.rows.packing,
            len(self.train),
            rng,
            epoch=epoch,
            long_rows_after_epoch=self.rows.long_rows_after_epoch,
        )
        rows = [
            TokenSequence.join([end, row, end])
            # less the two ends around each row
            for row in pack_documents(self.train, joined, self.sizes.positions - 2)
        ]
        tokens = self.rows.batch_rows * self.sizes.positions
        for indices in batch_by_length([len(r) for r in rows], tokens, rng):
            yield self._batch([rows[i] for i in indices])

    def _batch(self, rows: Sequence[TokenSequence]) -> TrainingBatch:
        # IGNORE_INDEX marks padding in the labels; in the inputs any id does, since nothing attends to it
        ids = pad([r.ids for r in rows], IGNORE_INDEX)
        labels = ids[:, 1:]
        inputs = np.where(ids[:, :-1] == IGNORE_INDEX, self.end, ids[:, :-1])
        # the budget counts tokens of the text, not the ends
        tokens = int(((labels != IGNORE_INDEX) & (labels != self.end)).sum())
        tensors = {"input_ids": torch.from_numpy(inputs), "labels": torch.from_numpy(labels.copy())}
        # the first token of a row is not predicted
        return TrainingBatch(tensors, tokens=tokens, words=int(sum(r.words[1:].sum() for r in rows)))

    def loss(self, model: PreTrainedModel, batch: TrainingBatch, carry: None) -> BatchLoss[None]:
        labels = batch.tensors["labels"]
        # no attention mask: padding is on the right, where a causal model does not look
        logits = model(input_ids=batch.tensors["input_ids"]).logits.float()
        mean = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORE_INDEX)
        predicted = int((labels != IGNORE_INDEX).sum())
        return BatchLoss(mean, float(mean.detach()) * predicted, predicted)

    @torch.no_grad()
    def evaluate(self, model: PreTrainedModel) -> EvalResult:
        device = next(model.parameters()).device
        # by length, so that batches need little padding
        windows = sorted(
            (w for document in self.test for w in self.windows(document.ids)), key=lambda w: len(w[0])
        )
        nll, predicted = 0.0, 0
        for at in range(0, len(windows), self.rows.batch_rows):
            part = windows[at : at + self.rows.batch_rows]
            inputs = torch.from_numpy(pad([w[0] for w in part], self.end)).to(device)
            labels = torch.from_numpy(pad([w[1] for w in part], IGNORE_INDEX)).to(device)
            nll += float(summed_cross_entropy(model(input_ids=inputs).logits.float(), labels))
            predicted += int((labels != IGNORE_INDEX).sum())
        return EvalResult(
            nll,
            predicted,
            words=sum(int(d.words.sum()) for d in self.test),
            unigram_nll=unigram_nll(
                (line.ids for document in self.train for line in document),
                (document.ids for document in self.test),
                vocabulary_size=self.vocabulary_size(),
            ),
        )

    def windows(self, ids: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Split a document into windows in which every token is predicted exactly once.

        Example: tokens 1 2 3 4 5 6 with a maximum length of 4 (E = end of text)::

            inputs E 1 2 3   labels 1 2 3 4
            inputs 2 3 4 5   labels - - 5 6          (- = IGNORE_INDEX; half of the window is context)

        Yields:
            Inputs and labels, (S,) each.
        """
        width = self.sizes.positions
        # inputs_all[i] is the token before ids[i]: logits at i predict ids[i]
        inputs_all = np.concatenate([[self.end], ids])
        done, start = 0, 0
        while done < len(ids):
            labels = ids[start : start + width].copy()
            # these were predicted by the previous window: they are context only
            labels[: done - start] = IGNORE_INDEX
            yield inputs_all[start : start + len(labels)], labels
            done = start + len(labels)
            start = max(done - width // 2, start + 1)

    def encoder_parameters(self, model: PreTrainedModel) -> int:
        return sum(p.numel() for p in model.base_model.parameters())


def summed_cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Sum of the cross-entropy of (B, S, V) logits and (B, S) labels with ``IGNORE_INDEX``."""
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORE_INDEX, reduction="sum")


def join_lines(documents: Sequence[Document]) -> list[str]:
    """Each document as one text, its lines joined by blanks, like the texts of the tasks."""
    return [" ".join(document) for document in documents]
