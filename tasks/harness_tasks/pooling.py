"""From the states of the tokens to one feature vector per row, shared by the heads that predict per text.

    single text, joint pair   v
    separate pair             [u; v; |u - v|; u * v]      (Conneau et al. 2017, InferSent, section 3.1)

u and v summarise the rows of the texts (:func:`harness.data.tokens.pool`, or the encoder's pretrained
pooler).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from harness.data.batch import Batch
from harness.data.tokens import EncoderOutput, pool, pooled_size
from harness.task import HeadInput


def vector_size(spec: HeadInput) -> int:
    """Width of one row's vector."""
    return spec.hidden_size if spec.pooled else pooled_size(spec.hidden_size, spec.pooling)


def text_vectors(spec: HeadInput, encoded: Sequence[EncoderOutput], batch: Batch) -> list[Tensor]:
    """(B, :func:`vector_size`) for each text that is encoded alone, or for the joint pair.

    Raises:
        ValueError: the head expects a pooled vector that the encoder does not return.
    """
    vectors = []
    for output, tokens in zip(encoded, batch.tokens, strict=True):
        if not spec.pooled:
            vectors.append(pool(output.last_hidden_state, tokens, spec.pooling))
        elif output.pooler_output is not None:
            vectors.append(output.pooler_output)
        else:
            raise ValueError("the head was built for pooler_output, which the encoder does not return")
    return vectors


def features(vectors: Sequence[Tensor], *, paired: bool) -> Tensor:
    """(B, D) the vector of a row, or (B, 4 D) of a pair of vectors; see the module's formulas."""
    if not paired:
        return vectors[0]
    u, v = vectors
    return torch.cat([u, v, (u - v).abs(), u * v], dim=-1)


def mean_by_example(values: Tensor, batch: Batch) -> Tensor:
    """(N, K) means over the windows of each example from values of the rows (B, K).

    Example: rows of examples [0, 0, 1] with values [[1], [3], [5]] have sums [[4], [5]] and counts [2, 1], so
    the result is [[2], [5]].
    """
    n = len(batch)
    if len(values) == n:
        return values
    rows = batch.row_example.to(values.device)
    total = values.new_zeros(n, values.shape[-1]).index_add(0, rows, values)
    return total / torch.bincount(rows, minlength=n)[:, None]


def first_rows(batch: Batch, device: torch.device) -> Tensor:
    """(N,) the first row of each example, which carries its target."""
    return torch.tensor([rows[0] for rows in batch.groups], device=device)
