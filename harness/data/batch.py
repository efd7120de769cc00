"""A batch of whole examples: the rows of all their windows, aligned over both texts, and their targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from harness.data.targets import IGNORE_INDEX
from harness.data.text import Example
from harness.data.tokens import TokenBatch, TokenizedWindow, pad_stack

Collatable = tuple[int, Example, Sequence[tuple[TokenizedWindow, ...]], Sequence[Mapping[str, np.ndarray]]]
"""Row in the data set, example, its aligned windows, and the targets of each window."""


@dataclass(slots=True)
class Batch:
    """N examples as B >= N rows.

    Attributes:
        tokens: one batch of rows (a single text, or a pair encoded jointly), or two that are aligned row by
            row (a pair encoded separately: row i of ``tokens[0]`` belongs to row i of ``tokens[1]``).
        targets: arrays of the task, one entry per row, padded with
            :data:`IGNORE_INDEX`; empty when predicting.
        examples: the N examples, in the order of their rows.
        row_example: (B,) Long; position in ``examples`` of each row.
    """

    tokens: tuple[TokenBatch, ...]
    targets: dict[str, Tensor]
    examples: list[Example]
    row_example: Tensor

    @classmethod
    def collate(
        cls,
        items: Sequence[Collatable],
        *,
        pad: Mapping[str, float] | None = None,
    ) -> Batch:
        """Join whole examples.

        Args:
            items: for each example its row in the data set, the example, its aligned rows (per window a
                tuple of one or two :class:`TokenizedWindow`) and the targets of each of these rows.
            pad: fill values of the encoder's inputs.
        """
        rows = [pair for _, _, pairs, _ in items for pair in pairs]
        data_row = [index for index, _, pairs, _ in items for _ in pairs]
        targets = [t for _, _, _, ts in items for t in ts]
        sides = range(len(rows[0]))
        return cls(
            tokens=tuple(TokenBatch.collate([r[i] for r in rows], pad=pad, example=data_row) for i in sides),
            targets=_collate_targets(targets),
            examples=[example for _, example, _, _ in items],
            row_example=torch.tensor([n for n, item in enumerate(items) for _ in item[2]]),
        )

    @property
    def groups(self) -> list[list[int]]:
        """Row numbers of each example, in the order of its windows."""
        out: list[list[int]] = [[] for _ in self.examples]
        for row, example in enumerate(self.row_example.tolist()):
            out[example].append(row)
        return out

    def to(self, device: torch.device | str) -> Batch:
        """Return a copy with all tensors on ``device``."""
        return Batch(
            tokens=tuple(u.to(device) for u in self.tokens),
            targets={k: v.to(device) for k, v in self.targets.items()},
            examples=self.examples,
            row_example=self.row_example.to(device),
        )

    def __len__(self) -> int:
        """Number of examples."""
        return len(self.examples)


def _collate_targets(targets: Sequence[Mapping[str, np.ndarray]]) -> dict[str, Tensor]:
    if not targets or not targets[0]:
        return {}
    out = {}
    for key, first in targets[0].items():
        values = [np.asarray(t[key]) for t in targets]
        if np.ndim(first) == 0:
            out[key] = torch.from_numpy(np.stack(values))
        else:
            out[key] = pad_stack(values, max(1, max(len(v) for v in values)), IGNORE_INDEX)
    return out
