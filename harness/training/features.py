"""Compute frozen features and read them back as tokens whose input is the state itself."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from harness.data.tokenizer import WindowOptions
from harness.data.tokens import EncoderOutput, TokenBatch, TokenizedWindow
from harness.encoders.base import Encoder, Group
from harness.encoders.config import Layers
from harness.errors import HarnessError
from harness.training.sequences import Sequences

VERSION = 1
BATCH_TOKENS = 8192
"""Tokens of a batch, padding included, in which features are computed."""
ENCODER_FIELDS = ("name", "hidden_size", "num_layers", "pooling")
Progress = Callable[[int, int], None]
_FIELDS = ("word_ids", "offsets", "sequence_ids")


class TooLarge(Exception):
    """The features would not fit in the cache."""

    def __init__(self, size: int) -> None:
        super().__init__(f"{size / 1e9:.1f} GB of features")
        self.size = size


class FeatureEncoder(Encoder):
    """Replaces the frozen encoder: the tokens' inputs are its states."""

    def __init__(self, *, name: str, hidden_size: int, num_layers: int, pooling: str) -> None:
        super().__init__()
        self.name, self.hidden_size, self.num_layers, self.pooling = name, hidden_size, num_layers, pooling
        self.max_length, self.pairs = None, "separate"

    def forward(self, tokens: TokenBatch, *, all_layers: bool = False) -> EncoderOutput:
        states = tokens.inputs["states"].float()
        if states.ndim == 4:  # (B, S, K, H)
            # the last stored layer, and (K, B, S, H) as encoders return it
            return EncoderOutput(states[:, :, -1], hidden_states=states.permute(2, 0, 1, 3))
        return EncoderOutput(states)

    def layer_groups(self) -> list[Group]:
        return []

    def embedding_encoder(self) -> Encoder:
        raise TypeError("features have no embedding table")

    def fingerprint(self) -> str:
        return ""


@dataclass(slots=True)
class Features:
    """Frozen features of a set of sequences.

    Attributes:
        encoder: reads them.
        rows: windows of each sequence, their only input being ``states`` (S, H) or (S, K, H), memory-mapped.
        seconds: what tokenising and encoding cost when they were computed.
        report: the tokenizer's report.
        parameters: of the encoder that made them.
    """

    encoder: FeatureEncoder
    rows: list[list[TokenizedWindow]]
    seconds: float
    report: dict[str, float]
    parameters: int


def pick_layers(encoded: EncoderOutput, layers: Layers) -> torch.Tensor:
    """(B, S, H) for ``top``, else (K, B, S, H): all layers for ``mix``, the named ones for a list.

    Raises:
        HarnessError: the encoder has no such layer.
    """
    if layers == "top":
        return encoded.last_hidden_state
    assert encoded.hidden_states is not None
    if layers == "mix":
        return encoded.hidden_states
    check_layers(layers, len(encoded.hidden_states) - 1)
    return encoded.hidden_states[[int(layer) for layer in layers]]


def check_layers(layers: Layers, top: int) -> None:
    """Refuse a list that names a layer above ``top``, the number of the last one.

    Raises:
        HarnessError: see above.
    """
    if not isinstance(layers, str) and max(int(layer) for layer in layers) > top:
        numbers = [int(layer) for layer in layers]
        raise HarnessError(f"encoder.layers={numbers}: the encoder has layers 0 to {top}")


def length_batches(rows: Sequence[TokenizedWindow], *, max_length: int) -> list[list[int]]:
    """Row numbers in batches of similar length, each at most ``max_length`` wide times high (one row at
    least), longest first, so that memory is known from the first batch."""
    batches: list[list[int]] = []
    # lengths [2 5 4], max_length 10: row 1, then row 2 (5 x 2 = 10), then row 0 in a separate batch
    for i in sorted(range(len(rows)), key=lambda i: (-len(rows[i]), i)):
        # the first row of a batch is its longest, hence its width
        if batches and len(rows[batches[-1][0]]) * (len(batches[-1]) + 1) <= max_length:
            batches[-1].append(i)
        else:
            batches.append([i])
    return batches


class FeatureSource:
    """Encodes sequences in batches that are decided by the texts alone (:func:`length_batches`).

    The states of a row differ by rounding with the batch that it is computed in. In these batches they are
    the same bits whether they are written to the cache, kept in memory or computed again.

    Args:
        encoder: frozen; moved to ``device`` and put in eval mode.
        sequences: the texts.
        windowing: how they are cut into rows.
        layers: which layers are kept.
        device, autocast: where, and in which precision, the encoder runs.
    """

    def __init__(
        self,
        encoder: Encoder,
        sequences: Sequences,
        *,
        windowing: WindowOptions,
        layers: Layers,
        device: torch.device,
        autocast: torch.dtype | None,
    ) -> None:
        self.windows = sequences.tokenize(encoder.tokenizer, windowing)
        self.rows = [row for rs in self.windows for row in rs]
        self.batches = length_batches(self.rows, max_length=BATCH_TOKENS)
        self.encoder, self.layers = encoder.to(device).eval(), layers
        self.device, self.autocast = device, autocast

    @property
    def n_bytes(self) -> int:
        """Size of all states as float32."""
        layers, encoder = self.layers, self.encoder
        stored = 1 if layers == "top" else encoder.num_layers + 1 if layers == "mix" else len(layers)
        return sum(map(len, self.rows)) * stored * encoder.hidden_size * 4

    @property
    def parameters(self) -> int:
        """Number of parameters of the encoder."""
        return sum(p.numel() for p in self.encoder.parameters())

    def states(self, batch: Sequence[int]) -> Iterator[np.ndarray]:
        """Yield (S, H) or (S, K, H) of each row of one of :attr:`batches`, without padding."""
        rows = [self.rows[i] for i in batch]
        tokens = TokenBatch.collate(rows, pad=self.encoder.tokenizer.pad).to(self.device)
        block = _states(self.encoder, tokens, layers=self.layers, autocast=self.autocast)
        for row, state in zip(rows, block, strict=True):
            yield state[: len(row)]


def write_features(folder: Path, source: FeatureSource, *, progress: Progress, max_bytes: int) -> None:
    """Encode all rows and write states.npy and rows.npz to ``folder``; meta.json says what they are.

    Raises:
        TooLarge: they would take more than ``max_bytes``; nothing has been encoded.
    """
    begin = time.perf_counter()
    if source.n_bytes > max_bytes:
        raise TooLarge(source.n_bytes)
    rows, encoder = source.rows, source.encoder
    # rows of 3 and 2 tokens are stored one after the other: starts [0 3 5]
    starts = np.concatenate([[0], np.cumsum([len(r) for r in rows])])
    states: np.memmap | None = None
    done = 0
    for batch in source.batches:
        for i, state in zip(batch, source.states(batch), strict=True):
            if states is None:
                # (tokens, H) or (tokens, K, H), known from the first row
                states = _mapped(folder / "states.npy", (int(starts[-1]), *state.shape[1:]))
            # at the row's place in the order of the data
            states[starts[i] : starts[i + 1]] = state
        done += len(batch)
        progress(done, len(rows))
    assert states is not None
    states.flush()
    _write_rows(folder, source.windows)
    meta: dict[str, Any] = {key: getattr(encoder, key) for key in ENCODER_FIELDS}
    meta["parameters"] = source.parameters
    meta["report"] = encoder.tokenizer.coverage()
    meta["seconds"] = time.perf_counter() - begin
    (folder / "meta.json").write_text(json.dumps(meta))


def _mapped(path: Path, shape: tuple[int, ...]) -> np.memmap:
    """A new mapped float32 array, its room on the disk reserved: writing to a mapped file on a full one is a
    bus error.

    Raises:
        OSError: there is no room.
    """
    array: np.memmap = np.lib.format.open_memmap(path, "w+", np.float32, shape)
    if hasattr(os, "posix_fallocate"):
        with path.open("r+b") as f:
            os.posix_fallocate(f.fileno(), 0, path.stat().st_size)
    return array


@torch.inference_mode()
def _states(
    encoder: Encoder, tokens: TokenBatch, *, layers: Layers, autocast: torch.dtype | None
) -> np.ndarray:
    """(B, S, H) or (B, S, K, H) as float32."""
    with torch.autocast(tokens.mask.device.type, dtype=autocast, enabled=autocast is not None):
        picked = pick_layers(encoder(tokens, all_layers=layers != "top"), layers).float()
    # (K, B, S, H) -> (B, S, K, H): all layers of a token lie together
    return (picked if picked.ndim == 3 else picked.permute(1, 2, 0, 3)).cpu().numpy()


def _write_rows(folder: Path, windows: list[list[TokenizedWindow]]) -> None:
    rows = [row for rs in windows for row in rs]
    arrays: dict[str, Any] = {f: np.concatenate([getattr(r, f) for r in rows]) for f in _FIELDS}
    arrays["word_to_token"] = np.concatenate([r.word_to_token for r in rows])
    arrays["lengths"] = np.array([len(r) for r in rows])
    arrays["words"] = np.array([len(r.word_to_token) for r in rows])
    arrays["windows"] = np.array([len(rs) for rs in windows])
    np.savez(folder / "rows.npz", **arrays)


def read_features(folder: Path) -> Features:
    """Open what :func:`write_features` wrote; states stay on disk until they are read."""
    meta = json.loads((folder / "meta.json").read_text())
    with np.load(folder / "rows.npz") as data:
        arrays = {k: data[k] for k in data.files}
    states = np.load(folder / "states.npy", mmap_mode="r")
    # the inverse of write_features(): row n is token_at[n] to token_at[n + 1]
    token_at = np.concatenate([[0], np.cumsum(arrays["lengths"])])
    word_at = np.concatenate([[0], np.cumsum(arrays["words"])])
    rows: list[list[TokenizedWindow]] = []
    n = 0  # number of the window over all sequences
    for count in arrays["windows"].tolist():
        windows = []
        for window in range(count):
            here, words = slice(token_at[n], token_at[n + 1]), slice(word_at[n], word_at[n + 1])
            parts = {f: arrays[f][here] for f in _FIELDS}
            windows.append(
                TokenizedWindow(
                    {"states": states[here]},
                    word_to_token=arrays["word_to_token"][words],
                    window=window,
                    **parts,
                )
            )
            n += 1
        rows.append(windows)
    encoder = FeatureEncoder(**{k: meta[k] for k in ENCODER_FIELDS})
    return Features(encoder, rows, meta["seconds"], meta["report"], meta["parameters"])
