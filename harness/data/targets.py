"""Constants of training targets; torch-free."""

from __future__ import annotations

IGNORE_INDEX = -100
"""Target value without a loss (padding, words owned by another window), as in ``torch.nn.CrossEntropyLoss``."""
