"""A linear map to one number over one vector a text; the features of pairs are those of Conneau et al. 2017
(InferSent), section 3.1: [u; v; |u - v|; u * v].

It predicts z, the number in standard deviations of train from its mean, and learns by squared error, so rates
do not depend on the scale of the gold.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from harness.data.batch import Batch
from harness.data.tokens import EncoderOutput, TokenBatch, pool, pooled_size
from harness.task import HeadInput, Prediction


class RegressionHead(nn.Module):
    """See the module.

    Args:
        spec: what it is built on.
        mean, std: of the gold of train.
    """

    def __init__(self, spec: HeadInput, *, mean: float, std: float) -> None:
        super().__init__()
        size = spec.hidden_size if spec.pooled else pooled_size(spec.hidden_size, spec.pooling)
        self.spec, self.mean, self.std = spec, mean, std
        self.dropout = nn.Dropout(spec.dropout)
        self.output = nn.Linear(4 * size if spec.pairs == "separate" else size, 1)

    def forward(self, encoded: tuple[EncoderOutput, ...], batch: Batch) -> dict[str, Tensor]:
        """``z`` (N,): one number an example; windows of the same example are averaged."""
        vectors = [self._vector(e, u) for e, u in zip(encoded, batch.tokens, strict=True)]
        features = vectors[0]
        if self.spec.pairs == "separate":
            u, v = vectors
            features = torch.cat([u, v, (u - v).abs(), u * v], dim=-1)
        z = self.output(self.dropout(features)).squeeze(-1).float()  # (B,)
        n, rows = len(batch), batch.row_example.to(z.device)
        total = z.new_zeros(n).index_add(0, rows, z)
        return {"z": total / torch.bincount(rows, minlength=n)}

    def loss(self, outputs: dict[str, Tensor], batch: Batch) -> tuple[Tensor, int]:
        """Summed squared error of z, and the number of examples."""
        z = outputs["z"]
        first = torch.tensor([rows[0] for rows in batch.groups], device=z.device)
        target = batch.targets["value"].to(z.device)[first].float()
        return (z - (target - self.mean) / self.std).square().sum(), len(z)

    def decode(self, outputs: dict[str, Tensor], batch: Batch) -> list[Prediction]:
        """The number on the scale of the gold."""
        values = (outputs["z"].detach().float().cpu().double() * self.std + self.mean).tolist()
        return [Prediction(value, (value,)) for value in values]

    def _vector(self, encoded: EncoderOutput, tokens: TokenBatch) -> Tensor:
        if self.spec.pooled:
            if encoded.pooler_output is None:
                raise ValueError("the head was built on the encoder's pooled vector, which is not there")
            return encoded.pooler_output
        return pool(encoded.last_hidden_state, tokens, self.spec.pooling)
