"""A linear classifier over one vector a text.

    single text, joint pair   logits = W d(v) + b
    separate pair             logits = W d([u; v; |u - v|; u * v]) + b

u and v summarise the rows (:func:`harness.data.units.pool`, or the encoder's pretrained pooler), d is
dropout.
The features of separate pairs are those of Conneau et al. 2017 (InferSent), section 3.1.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from harness.data.batch import IGNORE, Batch
from harness.data.units import Encoded, Units, pool, pooled_size
from harness.task import HeadInput, Prediction


class ClassificationHead(nn.Module):
    """See the module's formulas.

    Args:
        spec: what it is built on.
        labels: K classes.
        weights: (K,) weight of each class in the loss; None = 1 each.
    """

    weights: Tensor | None

    def __init__(self, spec: HeadInput, labels: list[str], weights: list[float] | None = None) -> None:
        super().__init__()
        size = spec.hidden if spec.pooled else pooled_size(spec.hidden, spec.pooling)
        self.spec = spec
        self.labels = list(labels)
        self.dropout = nn.Dropout(spec.dropout)
        self.output = nn.Linear(4 * size if spec.pairs == "separate" else size, len(labels))
        self.register_buffer("weights", None if weights is None else torch.tensor(weights))

    def forward(self, encoded: tuple[Encoded, ...], batch: Batch) -> dict[str, Tensor]:
        """``logits`` (N, K): one row an example; windows of the same example are averaged."""
        vectors = [self._vector(e, u) for e, u in zip(encoded, batch.units, strict=True)]
        features = vectors[0]
        if self.spec.pairs == "separate":
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
            logits, target, weight=self.weights, ignore_index=IGNORE, reduction="sum"
        )
        return total, int((target != IGNORE).sum())

    def decode(self, outputs: dict[str, Tensor], batch: Batch) -> list[Prediction]:
        """The class of the highest logit (the first of equals) and all logits."""
        logits = outputs["logits"].detach().float().cpu()
        best = logits.argmax(dim=-1).tolist()
        return [Prediction(self.labels[k], row) for k, row in zip(best, logits.tolist(), strict=True)]

    def _vector(self, encoded: Encoded, units: Units) -> Tensor:
        if self.spec.pooled:
            if encoded.pooled is None:
                raise ValueError("the head was built on the encoder's pooled vector, which is not there")
            return encoded.pooled
        return pool(encoded.states, units, self.spec.pooling)


def _mean_by_example(logits: Tensor, batch: Batch) -> Tensor:
    n = len(batch)
    if len(logits) == n:
        return logits
    rows = batch.row_example.to(logits.device)
    total = logits.new_zeros(n, logits.shape[-1]).index_add(0, rows, logits)
    return total / torch.bincount(rows, minlength=n)[:, None]
