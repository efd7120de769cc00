"""BERT's objectives (Devlin et al. 2019, section 3.1).

**Masked language model.** In every epoch 15 % of the pieces of a row are sampled again; 80 % of them are
replaced by ``[MASK]``, 10 % by a random piece, and 10 % are kept. The loss is the mean cross-entropy of the
true pieces at the chosen positions. Every row has its 15 % (rounded, at least one); the other shares hold on
average.

Small models leave the initial loss plateau sooner on rows of one line. After ``long_rows_after_epoch`` epochs
half of the documents are read in rows of full length, so that all position embeddings are trained: short rows
first, then long ones, like the published models (appendix A.2).

**Next sentence** (optional). A row holds two text spans, ``[CLS] a [SEP] b [SEP]``; in half of the rows b
follows a in its document, in the others it comes from another document. The pooler is trained to tell these
apart and is saved; without this objective there is no pooler and no second segment.

**Evaluation.** The model assigns no probability to a text, so there is no perplexity per word. Instead the
loss is measured with every piece masked exactly once, in :data:`ROUNDS` rounds of every seventh piece.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from harness.data.targets import IGNORE_INDEX
from harness.pretraining.base import BatchLoss, EvalResult, TrainingBatch
from harness.pretraining.budget import Recipe
from harness.pretraining.objectives.next_sentence import CLS, SEP, MaskedLMRow, sentence_pairs
from harness.pretraining.objectives.pseudo_perplexity import pseudo_perplexity, spread_lines
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
    unigram_nll,
)
from harness.pretraining.text.shared_tokenizer import is_spaced, shared_word_pieces
from harness.pretraining.text.tokenizers import SPECIAL, word_piece_tokenizer

if TYPE_CHECKING:
    from transformers import BertForMaskedLM, BertForPreTraining
    from transformers.modeling_outputs import BaseModelOutputWithPoolingAndCrossAttentions

    BertModels: TypeAlias = BertForMaskedLM | BertForPreTraining

CHOSEN, MASKED, RANDOM = 0.15, 0.8, 0.1
ROUNDS = 7
EVAL_PIECES = 50_000
"""Approximate number of held-out pieces that are evaluated: each row is read once per round."""
PAD, MASK = SPECIAL.index("[PAD]"), SPECIAL.index("[MASK]")
NO_PERPLEXITY = "a masked language model assigns no probability to a text"


class MaskedLM(SubwordObjective["BertModels"]):
    """Masked language model, see the module.

    Args:
        sizes: of the transformer.
        recipe: optimizer hyperparameters.
        vocabulary: maximum number of word pieces.
        lower: ignore case and accents.
        packing, batch_rows, long_rows_after_epoch: see :class:`RowOptions`.
        next_sentence: train the pooler as well.
        tokenizer: see :class:`SubwordObjective`.
        pseudo_lines: number of held-out lines for the pseudo-perplexity; 0 = none.
    """

    def __init__(
        self,
        sizes: TransformerSizes,
        recipe: Recipe,
        *,
        vocabulary: int,
        lower: bool,
        packing: str,
        batch_rows: int,
        next_sentence: bool,
        long_rows_after_epoch: int = 0,
        tokenizer: str | None = None,
        pseudo_lines: int = 0,
    ) -> None:
        rows = RowOptions(packing, batch_rows, long_rows_after_epoch)
        rows.check(tuple(PACKINGS))
        super().__init__("bert", sizes, recipe, rows, vocabulary=vocabulary, tokenizer=tokenizer)
        self.lower, self.next_sentence, self.pseudo_lines = lower, next_sentence, pseudo_lines

    def prepare(self, corpus: Corpus, *, seed: int) -> None:
        positions = self.sizes.positions
        if self.shared_tokenizer is None:
            lines = [line for document in corpus.train for line in document]
            self.tokenizer = word_piece_tokenizer(
                lines, size=self.vocabulary, lower=self.lower, positions=positions
            )
        else:
            self.tokenizer = shared_word_pieces(self.shared_tokenizer, positions=positions)
        self.set_train(self._tokenize(corpus.train))
        self.test = self._tokenize(corpus.held_out)

    def _tokenize(self, documents: Sequence[Document]) -> list[list[TokenSequence]]:
        backend = self.tokenizer.backend_tokenizer
        return tokenize_lines(backend, documents, spaced=self.rows.packing != "line" and is_spaced(backend))

    def single_rows(
        self, documents: Sequence[list[TokenSequence]], join_lines: np.ndarray
    ) -> list[MaskedLMRow]:
        """Rows of one text span, see :func:`pack_documents`."""
        return [_single(row) for row in pack_documents(documents, join_lines, self.sizes.positions - 2)]

    def epoch_rows(self, rng: np.random.Generator, *, epoch: int) -> list[MaskedLMRow]:
        """Draw the rows of one epoch."""
        if self.next_sentence:
            # less [CLS] and two [SEP]
            return list(sentence_pairs(self.train, self.sizes.positions - 3, rng))
        join_lines = draw_joined_documents(
            self.rows.packing,
            len(self.train),
            rng,
            epoch=epoch,
            long_rows_after_epoch=self.rows.long_rows_after_epoch,
        )
        return self.single_rows(self.train, join_lines)

    def build(self) -> BertModels:
        from transformers import BertForMaskedLM, BertForPreTraining

        config = self.sizes.bert_config(
            vocab_size=self.vocabulary_size(),
            type_vocab_size=2 if self.next_sentence else 1,
            pad_token_id=PAD,
        )
        model: BertModels = (BertForPreTraining if self.next_sentence else BertForMaskedLM)(config)
        model.train()
        return model

    def batches(self, *, seed: int, epoch: int) -> Iterator[TrainingBatch]:
        rng = np.random.default_rng([seed, epoch])
        rows = self.epoch_rows(rng, epoch=epoch)
        tokens = self.rows.batch_rows * self.sizes.positions
        # `tokens` includes padding: as many positions as batch_rows rows of full length
        for indices in batch_by_length([len(r.ids) for r in rows], tokens, rng):
            yield self._batch([rows[i] for i in indices], rng)

    def _batch(self, rows: Sequence[MaskedLMRow], rng: np.random.Generator) -> TrainingBatch:
        ids = pad([r.ids for r in rows], PAD)
        inputs, labels = mask(ids, vocabulary_size=self.vocabulary_size(), rng=rng)
        tensors = {
            "input_ids": torch.from_numpy(inputs),
            "labels": torch.from_numpy(labels),
            "attention_mask": torch.from_numpy((ids != PAD).astype(np.int64)),
        }
        if self.next_sentence:
            tensors["token_type_ids"] = torch.from_numpy(pad([r.segments for r in rows], 0))
            tensors["is_random"] = torch.tensor([r.is_random for r in rows])
        # the budget counts pieces of text only
        special = np.isin(ids, (PAD, CLS, SEP))
        return TrainingBatch(tensors, tokens=int((~special).sum()), words=sum(r.words for r in rows))

    def loss(self, model: BertModels, batch: TrainingBatch, carry: None) -> BatchLoss[None]:
        tensors = batch.tensors
        output = _encode(model, tensors)
        assert output.last_hidden_state is not None
        logits, gold = _predict(model, output.last_hidden_state, tensors["labels"])
        # a batch of unknown pieces only has no piece to mask: a zero loss that still has a gradient
        mean = F.cross_entropy(logits, gold) if len(gold) else 0.0 * output.last_hidden_state.sum()
        loss = BatchLoss[None](mean, float(mean.detach()) * len(gold), len(gold))
        if self.next_sentence:
            heads: nn.Module = model.cls
            pair_logits = heads.get_submodule("seq_relationship")(output.pooler_output).float()
            # class 0: b follows a, class 1: b is random
            pair_loss = F.cross_entropy(pair_logits, tensors["is_random"])
            loss.metrics["next_sentence_loss"] = float(pair_loss.detach())
            loss.extra_means = ((pair_loss, len(pair_logits)),)
        return loss

    @torch.no_grad()
    def evaluate(self, model: BertModels) -> EvalResult:
        device = next(model.parameters()).device
        join_lines = np.full(len(self.test), self.rows.packing != "line")
        rows = self._eval_rows(self.single_rows(self.test, join_lines))
        size = self.rows.batch_rows
        nll = correct = total = 0.0
        for at in range(0, len(rows), size):
            ids = torch.from_numpy(pad([r.ids for r in rows[at : at + size]], PAD)).to(device)
            # every round masks another seventh of the pieces, so that each piece is predicted once
            for offset in range(ROUNDS):
                inputs, labels = mask_every(ids, offset)
                tensors = {"input_ids": inputs, "attention_mask": (ids != PAD).long()}
                states = _encode(model, tensors).last_hidden_state
                assert states is not None
                logits, gold = _predict(model, states, labels)
                nll += float(F.cross_entropy(logits, gold, reduction="sum"))
                correct += int((logits.argmax(-1) == gold).sum())
                total += len(gold)
        return EvalResult(
            nll=nll,
            predicted=int(total),
            words=None,
            reason=NO_PERPLEXITY,
            unigram_nll=unigram_nll(
                (line.ids for document in self.train for line in document),
                (row.ids for row in rows),
                vocabulary_size=self.vocabulary_size(),
                first=len(SPECIAL),
            ),
            metrics={
                "masked_accuracy": correct / max(1, total),
                "masked_nll": nll / max(1, total),
                **self._pseudo_perplexity(model, device),
            },
        )

    def _eval_rows(self, rows: list[MaskedLMRow]) -> list[MaskedLMRow]:
        """Choose evenly spread rows with about :data:`EVAL_PIECES` pieces, sorted by length."""
        # example: 120,000 pieces give step 2: rows 0, 2, 4, ...; by length, batches need little padding
        step = max(1, round(sum(len(row.ids) for row in rows) / EVAL_PIECES))
        if step > 1:
            self.notes.append(f"the held-out loss is measured on one in {step} of {len(rows)} held-out rows")
        return sorted(rows[::step], key=lambda row: len(row.ids))

    def _pseudo_perplexity(self, model: BertModels, device: torch.device) -> dict[str, float]:
        room = self.sizes.positions - 2
        # pieces after the longest row are left out
        lines = [line.slice(0, room) for document in self.test for line in document]
        chosen = [lines[i] for i in spread_lines([len(line) for line in lines], self.pseudo_lines)]
        if not chosen:
            return {}

        def scorer(inputs: Tensor, positions: Tensor) -> Tensor:
            states = _encode(model, {"input_ids": inputs}).last_hidden_state
            assert states is not None
            logits: Tensor = model.cls.predictions(
                # (B, H): the state of the one masked piece of each row
                states[torch.arange(len(positions), device=device), positions]
            )
            return logits

        rows = [_single(line).ids for line in chosen]
        value, pieces = pseudo_perplexity(rows, scorer, mask=MASK, first_text=len(SPECIAL), device=device)
        self.notes.append(
            f"pseudo-perplexity per piece (Salazar et al. 2020) over {len(rows)} held-out lines: each piece "
            "was masked on its own; it is not a perplexity and not comparable with one"
        )
        return {"pseudo_perplexity": value, "pseudo_lines": len(rows), "pseudo_pieces": pieces}

    def encoder_parameters(self, model: BertModels) -> int:
        return sum(p.numel() for p in model.bert.parameters())


def _encode(model: BertModels, tensors: dict[str, Tensor]) -> BaseModelOutputWithPoolingAndCrossAttentions:
    names = ("input_ids", "attention_mask", "token_type_ids")
    output: BaseModelOutputWithPoolingAndCrossAttentions = model.bert(
        **{k: tensors[k] for k in names if k in tensors}
    )
    return output


def _predict(model: BertModels, states: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Logits (N, V) and true pieces (N,) at the labelled positions; nothing is computed elsewhere."""
    at = labels != IGNORE_INDEX
    return model.cls.predictions(states[at]).float(), labels[at]


def _single(row: TokenSequence) -> MaskedLMRow:
    ids = np.concatenate([[CLS], row.ids, [SEP]])
    return MaskedLMRow(ids, np.zeros_like(ids), int(row.words.sum()))


def choose_pieces(text: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Choose 15 % of the pieces of each row, rounded, at least one if there is any.

    Example for one row of 5 positions whose ends are special tokens: draws .7 .2 .9 become 2.0 .7 .2 .9 2.0,
    so the ranks are 3 1 0 2 4; round(0.15 * 3) = 0, hence one piece is chosen, the one with rank 0.

    Args:
        text: (B, S) Bool, pieces of text.
        rng: one draw per position.

    Returns:
        (B, S) Bool.
    """
    # 2.0 sorts positions that may not be chosen behind all others; argsort of argsort gives ranks
    rank = np.where(text, rng.random(text.shape), 2.0).argsort(1).argsort(1)
    # (B, 1); & text below keeps a row without text from getting one
    count = np.maximum(1, np.round(CHOSEN * text.sum(1)))[:, None]
    chosen: np.ndarray = text & (rank < count)
    return chosen


def mask(ids: np.ndarray, *, vocabulary_size: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Mask pieces for training; special and unknown pieces are never masked.

    Args:
        ids: (B, S).
        vocabulary_size: random pieces are drawn from all that are not special.
        rng: draws pieces and replacements.

    Returns:
        (B, S) inputs, and (B, S) labels with ``IGNORE_INDEX`` where nothing is predicted.
    """
    chosen = choose_pieces(ids >= len(SPECIAL), rng)
    # one draw decides per position: [0, 0.8) [MASK], [0.8, 0.9) unchanged, [0.9, 1) a random piece
    # example: draws .5 .85 .95 at chosen pieces a b c give [MASK] b x, and the labels a b c
    how = rng.random(ids.shape)
    inputs = np.where(chosen & (how < MASKED), MASK, ids)
    # a high end above the low one, even if the vocabulary has nothing but special tokens
    random_pieces = rng.integers(len(SPECIAL), max(vocabulary_size, len(SPECIAL) + 1), ids.shape)
    inputs = np.where(chosen & (how >= 1 - RANDOM), random_pieces, inputs)
    return inputs, np.where(chosen, ids, IGNORE_INDEX)


def mask_every(ids: Tensor, offset: int) -> tuple[Tensor, Tensor]:
    """Mask every seventh piece of text of each row, beginning with piece number ``offset``.

    Example: ``[CLS] a b c d e f g h [SEP]`` with offset 0 masks a and h; over the seven offsets every piece
    is masked exactly once.

    Returns:
        (B, S) inputs and labels, as for :func:`mask`.
    """
    text = ids >= len(SPECIAL)
    # cumsum - 1 numbers the pieces 0, 1, ...; a special token has the number of the piece before it, hence
    # `text &`
    chosen = text & ((text.long().cumsum(1) - 1) % ROUNDS == offset)
    return ids.masked_fill(chosen, MASK), ids.masked_fill(~chosen, IGNORE_INDEX)
