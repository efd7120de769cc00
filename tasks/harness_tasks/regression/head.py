"""A linear layer with one output over one vector per text or pair (:mod:`harness_tasks.pooling`).

It predicts the standardised value z = (y - mean) / std with the mean and standard deviation of train, and is
trained with squared error, so that learning rates do not depend on the scale of the gold.
"""

from __future__ import annotations

from torch import Tensor, nn

from harness.data.batch import Batch
from harness.data.tokens import EncoderOutput
from harness.task import HeadInput, Prediction
from harness_tasks.pooling import features, first_rows, mean_by_example, text_vectors, vector_size


class RegressionHead(nn.Module):
    """See the module.

    Args:
        spec: properties of the states and vectors that it reads.
        mean, std: of the gold of train.
    """

    def __init__(self, spec: HeadInput, *, mean: float, std: float) -> None:
        super().__init__()
        self.spec, self.mean, self.std = spec, mean, std
        self.paired = spec.pairs == "separate"
        self.dropout = nn.Dropout(spec.dropout)
        self.output = nn.Linear((4 if self.paired else 1) * vector_size(spec), 1)

    def forward(self, encoded: tuple[EncoderOutput, ...], batch: Batch) -> dict[str, Tensor]:
        """``z`` (N,): one number per example, the mean over its windows."""
        inputs = features(text_vectors(self.spec, encoded, batch), paired=self.paired)
        return {"z": mean_by_example(self.output(self.dropout(inputs)).float(), batch).squeeze(-1)}

    def loss(self, outputs: dict[str, Tensor], batch: Batch) -> tuple[Tensor, int]:
        """Sum of the squared errors of z, and the number of examples."""
        z = outputs["z"]
        target = batch.targets["value"].to(z.device)[first_rows(batch, z.device)].float()
        return (z - (target - self.mean) / self.std).square().sum(), len(z)

    def decode(self, outputs: dict[str, Tensor], batch: Batch) -> list[Prediction]:
        """The predicted number on the scale of the gold."""
        values = (outputs["z"].detach().float().cpu().double() * self.std + self.mean).tolist()
        return [Prediction(value, (value,)) for value in values]
