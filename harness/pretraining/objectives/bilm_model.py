"""The bidirectional language model whose encoder is ELMo (Peters et al. 2018, section 3.1)."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from harness.encoders.elmo.encoder import ElmoEncoder
from harness.encoders.elmo.lstm import Packing
from harness.pretraining.objectives.summed_nll import SummedNLL

UNKNOWN, BEGIN, END = "<UNK>", "<S>", "</S>"
MARKERS = (UNKNOWN, BEGIN, END)
"""The first classes of the softmax."""
CHUNK = 4096
"""Positions whose logits are computed at once without gradient."""
CUTOFFS = (2_000, 10_000, 50_000)
"""Classes at which the adaptive softmax begins a new cluster."""


class BiLM(nn.Module):
    """The encoder, and the softmax that both directions share.

    Args:
        encoder: randomly initialised or pretrained.
        classes: number of classes of the softmax, the most frequent first.
        adaptive: use an adaptive softmax.
    """

    def __init__(self, encoder: ElmoEncoder, classes: int, *, adaptive: bool) -> None:
        super().__init__()
        self.encoder, size = encoder, encoder.options.projection_dim
        self.adaptive: nn.AdaptiveLogSoftmaxWithLoss | None = None
        self.softmax: nn.Linear | None = None
        if adaptive:
            cutoffs = [c for c in CUTOFFS if c < classes] or [classes // 2]
            self.adaptive = nn.AdaptiveLogSoftmaxWithLoss(size, classes, cutoffs, div_value=2.0)
        else:
            self.softmax = nn.Linear(size, classes)
            nn.init.normal_(self.softmax.weight, std=1 / math.sqrt(size))
            nn.init.zeros_(self.softmax.bias)

    def forward(self, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Compute the negative log-likelihood at each position.

        Args:
            batch: ``characters`` (U, C) of the distinct words, sentence markers last; ``words`` (B, S) index
                of each word in them; ``classes`` (B, S); ``mask`` (B, S) Bool.

        Returns:
            (2, M) nats at each position, forward and backward; (2, M) Bool, True where a word is predicted,
            False where a sentence marker is.
        """
        states, gold, is_word = self.predictions(batch)
        # F.cross_entropy over all M positions at once would need (2 M, classes) logits
        parts = zip(torch.split(states, CHUNK), torch.split(gold.flatten(), CHUNK), strict=True)
        return torch.cat([self.nll(s, g) for s, g in parts]).view_as(gold), is_word

    def summed(self, batch: Mapping[str, Tensor]) -> tuple[Tensor, int]:
        """Sum of the nats of :meth:`forward` (scalar), and M."""
        states, gold, _ = self.predictions(batch)
        if self.softmax is None:
            return self.nll(states, gold.flatten()).sum(), gold.shape[1]
        total: Tensor = SummedNLL.apply(  # type: ignore[no-untyped-call]
            states, self.softmax.weight, self.softmax.bias, gold.flatten()
        )
        return total, gold.shape[1]

    def predictions(self, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Run the encoder.

        Returns:
            (2 M, P) float32 states that predict; (2, M) classes to predict; (2, M) Bool as in
            :meth:`forward`.
        """
        mask = batch["mask"]
        packing = Packing.of(mask)
        vectors, index = self.encoder.characters(batch["characters"])
        # tokens are numbered as in Packing.source: all words row by row, then the two sentence markers
        tokens = torch.cat([index[batch["words"][mask]], index[-2:]])
        *_, top = self.encoder.read(vectors[tokens[packing.source]], packing)
        x = F.dropout(top, self.encoder.dropout, self.training)
        previous, predicted = next_positions(packing)
        markers = batch["classes"].new_tensor([MARKERS.index(BEGIN), MARKERS.index(END)])
        gold = torch.cat([batch["classes"][mask], markers])[packing.source[:, predicted]]
        is_word = packing.source[:, predicted] < int(mask.sum())
        return x[:, previous].flatten(0, 1).float(), gold, is_word

    def nll(self, states: Tensor, gold: Tensor) -> Tensor:
        """Negative log-likelihood of the classes (N,) given the states (N, P)."""
        if self.adaptive is not None:
            log_probabilities: Tensor = self.adaptive(states, gold).output
            return -log_probabilities
        assert self.softmax is not None
        return F.cross_entropy(self.softmax(states).float(), gold, reduction="none")


def next_positions(packing: Packing) -> tuple[Tensor, Tensor]:
    """Pair each packed position with the following one of its row.

    Example: rows of 3 and 2 tokens are packed by time step, sizes [2, 2, 1]::

        step            0    1    2
        row of 3        0    2    4          position 2 follows 0, 3 follows 1, 4 follows 2
        row of 2        1    3

    Rows are sorted by length, so the preceding position of a row is found by going back the size of the
    previous step: [2, 3, 4] - [2, 2, 2] = [0, 1, 2].

    Returns:
        (M,) positions whose state predicts, and (M,) positions of the tokens that they predict.
    """
    sizes = torch.tensor(packing.sizes, device=packing.source.device)
    predicted = torch.arange(packing.sizes[0], int(sizes.sum()), device=sizes.device)
    return predicted - sizes[:-1].repeat_interleave(sizes[1:]), predicted
