"""A linear classifier over one vector a text.

    single text, joint pair   logits = W d(v) + b
    separate pair             logits = W d([u; v; |u - v|; u * v]) + b
    with a word meant         the same of the words' states; a joint pair has two, u and v, in its row

u and v summarise the rows (:func:`harness.data.tokens.pool`, or the encoder's pretrained pooler), d is
dropout. A word's state is the mean over its tokens; where it has none (cut off with the end of a long text, or
deleted by the tokenizer) the mean over the text's tokens stands for it.
The features of separate pairs are those of Conneau et al. 2017 (InferSent), section 3.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from harness.data.batch import Batch
from harness.data.targets import IGNORE_INDEX
from harness.data.tokens import EncoderOutput, TokenBatch, pool, pooled_size
from harness.task import HeadInput, Prediction

if TYPE_CHECKING:
    from harness_tasks.classification.reader import TargetExample


class ClassificationHead(nn.Module):
    """See the module's formulas.

    Args:
        spec: what it is built on.
        labels: K classes.
        weights: (K,) weight of each class in the loss; None = 1 each.
        target: examples are :class:`~harness_tasks.classification.reader.TargetExample`; their words are read.
    """

    weights: Tensor | None

    def __init__(
        self,
        spec: HeadInput,
        labels: list[str],
        weights: list[float] | None = None,
        *,
        target: bool = False,
    ) -> None:
        super().__init__()
        whole = spec.pooled or target
        size = spec.hidden_size if whole else pooled_size(spec.hidden_size, spec.pooling)
        paired = spec.pairs == "separate" or (target and spec.pairs == "joint")
        self.target, self.paired = target, paired
        self.spec = spec
        self.labels = list(labels)
        self.dropout = nn.Dropout(spec.dropout)
        self.output = nn.Linear(4 * size if paired else size, len(labels))
        self.register_buffer("weights", None if weights is None else torch.tensor(weights))

    def forward(self, encoded: tuple[EncoderOutput, ...], batch: Batch) -> dict[str, Tensor]:
        """``logits`` (N, K): one row an example; windows of the same example are averaged."""
        if self.target:
            vectors = target_states(encoded, batch)
        else:
            vectors = [self._vector(e, u) for e, u in zip(encoded, batch.tokens, strict=True)]
        features = vectors[0]
        if self.paired:
            u, v = vectors
            features = torch.cat([u, v, (u - v).abs(), u * v], dim=-1)
        logits = self.output(self.dropout(features))  # (B, K)
        return {"logits": _mean_by_example(logits.float(), batch)}

    def loss(self, outputs: dict[str, Tensor], batch: Batch) -> tuple[Tensor, int]:
        """Summed cross entropy and the number of examples that have a class."""
        logits = outputs["logits"]
        first = torch.tensor([rows[0] for rows in batch.groups], device=logits.device)
        target = batch.targets["label"].to(logits.device)[first]
        total = functional.cross_entropy(
            logits, target, weight=self.weights, ignore_index=IGNORE_INDEX, reduction="sum"
        )
        return total, int((target != IGNORE_INDEX).sum())

    def decode(self, outputs: dict[str, Tensor], batch: Batch) -> list[Prediction]:
        """The class of the highest logit (the first of equals) and all logits."""
        logits = outputs["logits"].detach().float().cpu()
        best = logits.argmax(dim=-1).tolist()
        return [Prediction(self.labels[k], row) for k, row in zip(best, logits.tolist(), strict=True)]

    def _vector(self, encoded: EncoderOutput, tokens: TokenBatch) -> Tensor:
        if self.spec.pooled:
            if encoded.pooler_output is None:
                raise ValueError("the head was built on the encoder's pooled vector, which is not there")
            return encoded.pooler_output
        return pool(encoded.last_hidden_state, tokens, self.spec.pooling)


def target_states(encoded: tuple[EncoderOutput, ...], batch: Batch) -> list[Tensor]:
    """(B, H) for each text: the state of the word that is meant in it, see the module."""
    examples = cast("list[TargetExample]", batch.examples)
    sides = len(examples[0].at)
    joint = sides > len(encoded)
    out = []
    for side in range(sides):
        part = 0 if joint else side
        states, tokens = encoded[part].last_hidden_state, batch.tokens[part]
        rows = batch.row_example.to(states.device)
        place = torch.tensor([e.at[side] for e in examples], device=states.device)[rows]
        text = tokens.content & (tokens.sequence_ids == side) if joint else tokens.content
        out.append(_word(states, tokens, place=place, text=text, last=side == sides - 1 or not joint))
    return out


def _word(states: Tensor, tokens: TokenBatch, *, place: Tensor, text: Tensor, last: bool) -> Tensor:
    """(B, H): the mean over the tokens of word ``place`` (B,) among the tokens ``text`` (B, S); ``last`` says
    that the row's ``word_to_token`` speak of this text."""
    own = text & (tokens.word_ids == place[:, None])
    if last:
        # a word that was joined to its neighbour stands at the neighbour's token
        known = place.clamp(max=tokens.word_to_token.shape[1] - 1)
        token = tokens.word_to_token.gather(1, known[:, None]).squeeze(1)
        token = torch.where(known == place, token, -1)
        steps = torch.arange(own.shape[1], device=own.device)
        own = torch.where(own.any(1, keepdim=True), own, steps == token[:, None])
    for wider in (text, tokens.mask, torch.ones_like(own)):
        own = torch.where(own.any(1, keepdim=True), own, wider)
    weights = own.to(states.dtype)
    return torch.einsum("bs,bsh->bh", weights, states) / weights.sum(1, keepdim=True)


def _mean_by_example(logits: Tensor, batch: Batch) -> Tensor:
    n = len(batch)
    if len(logits) == n:
        return logits
    rows = batch.row_example.to(logits.device)
    total = logits.new_zeros(n, logits.shape[-1]).index_add(0, rows, logits)
    return total / torch.bincount(rows, minlength=n)[:, None]
