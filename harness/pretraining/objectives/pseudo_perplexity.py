"""Pseudo-perplexity (Salazar et al. 2020, section 2): each piece masked on its own, all others shown ::

    exp( - sum_t log p(w_t | w without t) / T )

The conditional probabilities do not factorise the probability of the text, so this is not a perplexity and
must not be compared with one. It is comparable between masked language models with the same vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from harness.pretraining.base import MAX_EXPONENT

ROWS = 256
"""Rows that are scored at once."""
MAX_TOKENS = 100_000
"""Maximum number of tokens that the model reads: a line of n pieces is read n times."""
Scorer: TypeAlias = Callable[[Tensor, Tensor], Tensor]


def spread_lines(lengths: Sequence[int], count: int) -> list[int]:
    """Choose at most ``count`` evenly spread lines; fewer if they would exceed :data:`MAX_TOKENS`.

    Example: 10 lines of 200 pieces and count 6: the 6 lines 0 1 3 5 6 8 would take 6 * 200^2 = 240,000
    tokens, so 6 * 100,000 // 240,000 = 2 lines are chosen, 0 and 5.
    """
    chosen = _evenly(len(lengths), count)
    cost = sum(lengths[i] ** 2 for i in chosen)
    return chosen if cost <= MAX_TOKENS else _evenly(len(lengths), max(1, len(chosen) * MAX_TOKENS // cost))


def _evenly(total: int, count: int) -> list[int]:
    return sorted({int(i * total / count) for i in range(count)}) if total > count else list(range(total))


@torch.no_grad()
def pseudo_perplexity(
    rows: Sequence[np.ndarray], scorer: Scorer, *, mask: int, first_text: int, device: torch.device
) -> tuple[float, int]:
    """Compute the pseudo-perplexity per piece.

    Args:
        rows: ids of each text with its special tokens.
        scorer: maps (B, S) ids and (B,) positions to the (B, V) logits at these positions.
        mask: id of the mask token.
        first_text: ids from this one on are pieces of text; lower ids are not predicted.
        device: the model's device.

    Returns:
        The pseudo-perplexity, and the number of pieces.
    """
    nll, total = 0.0, 0
    for row in rows:
        ids = torch.from_numpy(row)
        positions = (ids >= first_text).nonzero().flatten()
        for part in torch.split(positions, ROWS):
            # one copy of the row per position; in copy k the k-th position is masked
            inputs = ids.repeat(len(part), 1)
            inputs[torch.arange(len(part)), part] = mask
            logits = scorer(inputs.to(device), part.to(device)).float()
            nll += float(F.cross_entropy(logits, ids[part].to(device), reduction="sum"))
        total += len(positions)
    return math.exp(min(MAX_EXPONENT, nll / total)) if total else math.nan, total
