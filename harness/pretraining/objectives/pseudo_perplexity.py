"""Pseudo-perplexity (Salazar et al. 2020, section 2): every piece masked by itself, all others shown ::

    exp( - sum_t log p(w_t | w without t) / T )

The scores of the pieces of a text are no factors of its probability, so this is no perplexity and not to be
compared with one; between masked language models of one vocabulary it may be.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

ROWS = 256
"""Rows that are scored at once."""
Scores = Callable[[Tensor, Tensor], Tensor]


UNITS = 100_000
"""Most tokens that are shown to the model: a line is as many rows as it has pieces."""


def spread(lengths: Sequence[int], most: int) -> list[int]:
    """Numbers of at most ``most`` lines of these ``lengths``, evenly spread; fewer, but one, when they are so
    long that together they would take more than :data:`UNITS`."""
    chosen = _even(len(lengths), most)
    cost = sum(lengths[i] ** 2 for i in chosen)
    return chosen if cost <= UNITS else _even(len(lengths), max(1, len(chosen) * UNITS // cost))


def _even(count: int, most: int) -> list[int]:
    return sorted({int(i * count / most) for i in range(most)}) if count > most else list(range(count))


@torch.no_grad()
def pseudo_perplexity(
    rows: Sequence[np.ndarray], scores: Scores, *, mask: int, first_text: int, device: torch.device
) -> tuple[float, int]:
    """Pseudo-perplexity per piece, and how many pieces it is over.

    Args:
        rows: ids of each text with its special tokens.
        scores: of (B, S) shown ids the (B, V) scores at the (B,) places.
        mask: id that hides a piece.
        first_text: ids from this one on are pieces of text; others are not predicted.
        device: the model's.
    """
    nll, total = 0.0, 0
    for row in rows:
        whole = torch.from_numpy(row)
        places = (whole >= first_text).nonzero().flatten()
        for part in places.split(ROWS):
            shown = whole.repeat(len(part), 1)
            shown[torch.arange(len(part)), part] = mask
            logits = scores(shown.to(device), part.to(device)).float()
            nll += float(F.cross_entropy(logits, whole[part].to(device), reduction="sum"))
        total += len(places)
    return math.exp(min(700.0, nll / total)) if total else math.nan, total
