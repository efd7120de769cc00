"""The language model of both directions that ELMo is the encoder of (Peters et al. 2018, section 3.1)."""

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
"""Places whose classes are scored at once when no gradient is wanted."""


class BiLM(nn.Module):
    """The encoder and the softmax that both directions share.

    Args:
        encoder: with random weights.
        classes: of the softmax, the most frequent first.
        adaptive: an adaptive softmax.
    """

    def __init__(self, encoder: ElmoEncoder, classes: int, *, adaptive: bool) -> None:
        super().__init__()
        self.encoder, size = encoder, encoder.options.projection_dim
        self.adaptive: nn.AdaptiveLogSoftmaxWithLoss | None = None
        self.softmax: nn.Linear | None = None
        if adaptive:
            cutoffs = [c for c in (2_000, 10_000, 50_000) if c < classes] or [classes // 2]
            self.adaptive = nn.AdaptiveLogSoftmaxWithLoss(size, classes, cutoffs, div_value=2.0)
        else:
            self.softmax = nn.Linear(size, classes)
            nn.init.normal_(self.softmax.weight, std=1 / math.sqrt(size))
            nn.init.zeros_(self.softmax.bias)

    def forward(self, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Negative log-likelihoods.

        Args:
            batch: ``characters`` (U, C) of the different words, the marks last; ``words`` (B, S) which of
                them each word is; ``classes`` (B, S); ``mask`` (B, S).

        Returns:
            (2, M) nats of each place, forward and backward, and (2, M) Bool, whether a word is predicted
            there and not a mark.
        """
        states, gold, real = self.places(batch)
        parts = zip(states.split(CHUNK), gold.flatten().split(CHUNK), strict=True)
        return torch.cat([self._nll(s, g) for s, g in parts]).view_as(gold), real

    def summed(self, batch: Mapping[str, Tensor]) -> tuple[Tensor, int]:
        """The sum of what :meth:`forward` gives (0-d), and M."""
        states, gold, _ = self.places(batch)
        if self.softmax is None:
            return self._nll(states, gold.flatten()).sum(), gold.shape[1]
        out: Tensor = SummedNLL.apply(states, self.softmax.weight, self.softmax.bias, gold.flatten())
        return out, gold.shape[1]

    def places(self, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """(2 M, P) float32 states that predict, (2, M) the classes they shall predict, and (2, M) Bool as in
        :meth:`forward`."""
        mask = batch["mask"]
        packing = Packing.of(mask)
        vectors, number = self.encoder.characters(batch["characters"])
        tokens = torch.cat([number[batch["words"][mask]], number[-2:]])
        *_, top = self.encoder.read(vectors[tokens[packing.source]], packing)
        x = F.dropout(top, self.encoder.dropout, self.training)
        shown, asked = next_places(packing)
        marks = batch["classes"].new_tensor([MARKERS.index(BEGIN), MARKERS.index(END)])
        gold = torch.cat([batch["classes"][mask], marks])[packing.source[:, asked]]
        return x[:, shown].flatten(0, 1).float(), gold, packing.source[:, asked] < int(mask.sum())

    def _nll(self, states: Tensor, gold: Tensor) -> Tensor:
        """(N, P) and (N,) to (N,)."""
        if self.adaptive is not None:
            return -self.adaptive(states, gold).output
        assert self.softmax is not None
        return F.cross_entropy(self.softmax(states).float(), gold, reduction="none")


def next_places(packing: Packing) -> tuple[Tensor, Tensor]:
    """(M,) places of a direction whose state predicts, and (M,) the places of what follows each of them."""
    sizes = torch.tensor(packing.sizes, device=packing.source.device)
    asked = torch.arange(packing.sizes[0], int(sizes.sum()), device=sizes.device)
    # rows lie longest first, so the same row lies one step's rows before
    return asked - sizes[:-1].repeat_interleave(sizes[1:]), asked
