"""Constants of training targets; torch-free."""

from __future__ import annotations

IGNORE_INDEX = -100
"""Target that is excluded from the loss (padding, words that another window owns), as in PyTorch."""
