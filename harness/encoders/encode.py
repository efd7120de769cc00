"""Word vectors of sentences: the implementation of :meth:`harness.encoders.base.Encoder.encode`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import torch

from harness.data.text import Text
from harness.data.tokenizer import WindowOptions
from harness.data.tokens import TokenBatch, TokenizedWindow, word_states
from harness.errors import HarnessError

if TYPE_CHECKING:
    from harness.encoders.base import Encoder

STRIDE = 64
"""Tokens that neighbouring windows share, unless the encoder's windows are shorter than four times that."""


@torch.no_grad()
def encode(
    encoder: Encoder,
    sentences: Sequence[str | Sequence[str]],
    *,
    layers: str | int | Sequence[int] = "top",
    batch_size: int = 32,
) -> list[np.ndarray]:
    """Compute the vectors of the words of each sentence; see :meth:`harness.encoders.base.Encoder.encode`."""
    selection = _layer_selection(layers, encoder.num_layers)
    if batch_size < 1:
        raise HarnessError(f"batch_size={batch_size}: must be at least 1")
    texts = _texts(sentences)
    all_layers = layers != "top"
    leading = (encoder.num_layers + 1,) if all_layers else ()
    out = [np.zeros((*leading, len(text), encoder.hidden_size), dtype=np.float32) for text in texts]
    windows_per_text = encoder.tokenizer.tokenize(texts, window_options(encoder))
    windows = [(i, window) for i, per_text in enumerate(windows_per_text) for window in per_text]
    if not encoder.stateful:  # a stateful encoder keeps one state per row: do not reorder
        windows = sorted((w for w in windows if len(texts[w[0]])), key=lambda w: len(w[1]))
    with _eval_mode(encoder):
        for start in range(0, len(windows), batch_size):
            _encode_batch(encoder, windows[start : start + batch_size], out, all_layers=all_layers)
    return out if selection is None else [array[selection] for array in out]


def window_options(encoder: Encoder) -> WindowOptions:
    """Return windows of the encoder's maximum length with a stride of 64 tokens, or a quarter of the
    length."""
    stride = STRIDE if encoder.max_length is None else min(STRIDE, encoder.max_length // 4)
    return WindowOptions(max_length=encoder.max_length, stride=stride)


def _layer_selection(layers: str | int | Sequence[int], top: int) -> int | list[int] | None:
    """Return the index into all layers; None for ``top`` and ``all``, which need no selection."""
    if layers in ("top", "all"):
        return None
    numbers = list(layers) if isinstance(layers, Sequence) and not isinstance(layers, str) else [layers]
    selected: list[int] = []
    for number in numbers:
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= top:
            hint = (
                "a scalar mix is trained in a cell (encoder.layers=mix); use " if layers == "mix" else "use "
            )
            raise HarnessError(f"layers={layers!r}: {hint}top, all, or layer numbers from 0 to {top}")
        selected.append(number)
    return layers if isinstance(layers, int) else selected


def _encode_batch(
    encoder: Encoder,
    windows: Sequence[tuple[int, TokenizedWindow]],
    out: Sequence[np.ndarray],
    *,
    all_layers: bool,
) -> None:
    """Write the vectors of the words that each window owns into ``out``."""
    device = next((p.device for p in encoder.parameters()), torch.device("cpu"))
    tokens = TokenBatch.collate([window for _, window in windows], pad=encoder.tokenizer.pad).to(device)
    output = encoder(tokens, all_layers=all_layers)
    layers = output.hidden_states if all_layers else output.last_hidden_state[None]
    words = torch.stack([word_states(layer, tokens, how="mean") for layer in layers])  # (K, B, W, H)
    vectors = words.float().cpu().numpy()
    for row, (text_index, window) in enumerate(windows):
        owned = np.flatnonzero(window.word_to_token >= 0)
        values = vectors[:, row, owned]
        if all_layers:
            out[text_index][:, owned] = values
        else:
            out[text_index][owned] = values[0]


def _texts(sentences: Sequence[str | Sequence[str]]) -> list[Text]:
    if isinstance(sentences, str):
        raise HarnessError(f"encode expects a list of sentences, not the string {sentences[:40]!r}")
    return [_text(sentence, index) for index, sentence in enumerate(sentences)]


def _text(sentence: str | Sequence[str], index: int) -> Text:
    if isinstance(sentence, str):
        return Text.from_string(sentence)
    if not isinstance(sentence, Sequence):
        raise HarnessError(f"sentence {index}: {sentence!r} is neither a string nor a list of words")
    words = list(sentence)
    for word in words:
        if not isinstance(word, str) or not word:
            raise HarnessError(f"sentence {index}: expected non-empty strings as words, got {word!r}")
    return Text.from_words(words)


@contextmanager
def _eval_mode(encoder: Encoder) -> Iterator[None]:
    """Switch to eval mode and restore the mode of every module afterwards."""
    training = [m for m in encoder.modules() if m.training]
    encoder.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True
