"""A linear classifier over one vector per text or pair.

    logits = W d(x) + b

x are the features of :mod:`harness_tasks.pooling`, d is dropout. With target words, u and v are the states of
these words; a joint pair then has two of them in its row. A word's state is the mean over its tokens; where
it has none (truncated with the end of a long text, or deleted by the tokenizer), the mean over the text's
tokens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from harness.data.batch import Batch
from harness.data.targets import IGNORE_INDEX
from harness.data.tokens import EncoderOutput, TokenBatch
from harness.task import HeadInput, Prediction
from harness_tasks.pooling import features, first_rows, mean_by_example, text_vectors, vector_size

if TYPE_CHECKING:
    from harness_tasks.classification.reader import TargetExample


class ClassificationHead(nn.Module):
    """See the module's formula.

    Args:
        spec: properties of the states and vectors that it reads.
        labels: K classes.
        weights: (K,) weight of each class in the loss; None = 1 each.
        target: examples are :class:`~harness_tasks.classification.reader.TargetExample`, whose words are
            read.
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
        size = spec.hidden_size if target else vector_size(spec)
        self.paired = spec.pairs == "separate" or (target and spec.pairs == "joint")
        self.target, self.spec = target, spec
        self.labels = list(labels)
        self.dropout = nn.Dropout(spec.dropout)
        self.output = nn.Linear(4 * size if self.paired else size, len(labels))
        self.register_buffer("weights", None if weights is None else torch.tensor(weights))

    def forward(self, encoded: tuple[EncoderOutput, ...], batch: Batch) -> dict[str, Tensor]:
        """``logits`` (N, K): one row per example, the mean over its windows."""
        vectors = target_states(encoded, batch) if self.target else text_vectors(self.spec, encoded, batch)
        logits = self.output(self.dropout(features(vectors, paired=self.paired)))  # (B, K)
        return {"logits": mean_by_example(logits.float(), batch)}

    def loss(self, outputs: dict[str, Tensor], batch: Batch) -> tuple[Tensor, int]:
        """Sum of the cross entropies and the number of examples that have a class."""
        logits = outputs["logits"]
        target = batch.targets["label"].to(logits.device)[first_rows(batch, logits.device)]
        total = functional.cross_entropy(
            logits, target, weight=self.weights, ignore_index=IGNORE_INDEX, reduction="sum"
        )
        return total, int((target != IGNORE_INDEX).sum())

    def decode(self, outputs: dict[str, Tensor], batch: Batch) -> list[Prediction]:
        """The class with the highest logit (the first of several equal ones) and all logits."""
        logits = outputs["logits"].detach().float().cpu()
        best = logits.argmax(dim=-1).tolist()
        return [Prediction(self.labels[k], row) for k, row in zip(best, logits.tolist(), strict=True)]


def target_states(encoded: tuple[EncoderOutput, ...], batch: Batch) -> list[Tensor]:
    """(B, H) for each text: the state of its target word, see the module."""
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
    """(B, H): mean over the tokens of each row's target word.

    Example: word_ids [-1, 0, 1, 1, -1] and target word 1 average the states of tokens 2 and 3.

    Args:
        states: (B, S, H)
        tokens: the batch the states belong to.
        place: (B,) index of the target word.
        text: (B, S) Bool, the tokens of its text.
        last: this text is the one that the row's ``word_to_token`` refers to.
    """
    own = text & (tokens.word_ids == place[:, None])
    if last:
        # a word that was merged with its neighbour is represented by the neighbour's token
        known = place.clamp(max=tokens.word_to_token.shape[1] - 1)
        token = tokens.word_to_token.gather(1, known[:, None]).squeeze(1)
        token = torch.where(known == place, token, -1)
        steps = torch.arange(own.shape[1], device=own.device)
        own = torch.where(own.any(1, keepdim=True), own, steps == token[:, None])
    # without a token: the text, then all tokens, then (an empty row) all positions, never a mean of nothing
    for wider in (text, tokens.mask, torch.ones_like(own)):
        own = torch.where(own.any(1, keepdim=True), own, wider)
    weights = own.to(states.dtype)
    return torch.einsum("bs,bsh->bh", weights, states) / weights.sum(1, keepdim=True)
