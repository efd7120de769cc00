"""Frozen features that the disk cache does not hold: kept in memory, else computed again when needed.

They are computed in the same batches as cached ones, so the values are the same bits. A batch that does not
fit in memory is computed once more each time one of its rows is read after it was dropped.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from harness.data.tokens import TokenizedWindow
from harness.training.features import ENCODER_FIELDS, FeatureEncoder, FeatureSource, Progress

SHARE_OF_MEMORY = 0.5
"""Share of a cell's memory that features may take."""


class StreamedFeatures:
    """The states of a :class:`FeatureSource`; the most recently used batches stay in memory.

    Args:
        source: computes them.
        max_bytes: of the states in memory; the batch in use is always kept.
    """

    def __init__(self, source: FeatureSource, *, max_bytes: int) -> None:
        self.source, self.max_bytes = source, max_bytes
        self.computed = 0
        self._batch_of = {i: n for n, batch in enumerate(source.batches) for i in batch}
        self._kept: OrderedDict[int, dict[int, np.ndarray]] = OrderedDict()
        self._bytes = 0

    @property
    def encoder(self) -> FeatureEncoder:
        """Replaces the encoder in the model."""
        return FeatureEncoder(**{key: getattr(self.source.encoder, key) for key in ENCODER_FIELDS})

    def fill(self, progress: Progress) -> None:
        """Compute batches until memory is full, so that little is left for training."""
        done = 0
        for n, batch in enumerate(self.source.batches):
            self._rows(n)
            done += len(batch)
            progress(done, len(self._batch_of))
            if len(self._kept) <= n:  # this batch has displaced another one
                return

    def windows(self) -> list[list[TokenizedWindow]]:
        """Rows of each sequence, whose only input is ``states`` (S, H) or (S, K, H), read on access."""
        out, number = [], 0
        for windows in self.source.windows:
            out.append([replace(w, inputs=_States(self, number + n)) for n, w in enumerate(windows)])
            number += len(windows)
        return out

    def row(self, number: int) -> np.ndarray:
        """Return the states (S, H) or (S, K, H) of a row."""
        return self._rows(self._batch_of[number])[number]

    def _rows(self, n: int) -> dict[int, np.ndarray]:
        if n in self._kept:
            self._kept.move_to_end(n)
            return self._kept[n]
        batch = self.source.batches[n]
        rows = {i: state.copy() for i, state in zip(batch, self.source.states(batch), strict=True)}
        self.computed += 1
        self._kept[n] = rows
        self._bytes += _size(rows)
        while self._bytes > self.max_bytes and len(self._kept) > 1:
            self._bytes -= _size(self._kept.popitem(last=False)[1])
        return rows


class _States(dict[str, np.ndarray]):
    """Inputs of a window whose value is computed on access."""

    def __init__(self, features: StreamedFeatures, number: int) -> None:
        super().__init__(states=np.empty(0, np.float32))
        self._features, self._number = features, number

    def __getitem__(self, key: str) -> np.ndarray:
        return self._features.row(self._number) if key == "states" else super().__getitem__(key)


def memory_for_features(*, memory_gb: float | None, devices: int) -> int:
    """Bytes of features that a rank may keep: a share of what is free, divided over slots and ranks.

    Args:
        memory_gb: the cell's limit, None = only what the machine has.
        devices: ranks of the cell on this machine.
    """
    slots = int(os.environ.get("HARNESS_SLOTS", "1"))
    free = _available() / slots
    if memory_gb is not None:
        free = min(free, memory_gb * 1e9)
    return int(free * SHARE_OF_MEMORY / devices)


def _available() -> float:
    """Bytes that can be allocated without swapping; 4 GB if the system does not tell."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        kilobytes = next(line.split()[1] for line in lines if line.startswith("MemAvailable"))
        return float(kilobytes) * 1024
    except (OSError, StopIteration, ValueError):
        return 4e9


def _size(rows: Mapping[int, np.ndarray]) -> int:
    return sum(state.nbytes for state in rows.values())
