"""Tiny random ELMo models in the published format, and a numpy reference implementation."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from harness.encoders.elmo.files import ElmoOptions, cell_key, shapes
from harness.encoders.elmo.weights import write_weights

TINY = ElmoOptions(
    dim=12, projection_dim=8, num_layers=2, cell_clip=1.5, proj_clip=1.5, use_skip_connections=True,
    dropout=0.1, char_dim=4, filters=((1, 4), (2, 5), (3, 6)), n_highway=1, activation="relu",
    max_characters=50,
)  # fmt: skip


def random_weights(options: ElmoOptions, *, seed: int = 0) -> dict[str, np.ndarray]:
    """Draw weights that are large enough for clipping and the forget gate's bias to matter."""
    draw = np.random.default_rng(seed)
    return {k: draw.normal(size=s).astype(np.float32) * 0.6 for k, s in shapes(options).items()}


def make_elmo(folder: Path, *, seed: int = 0, **changes: Any) -> Path:
    """Write a tiny random model; ``changes`` are fields of :class:`ElmoOptions`."""
    options = replace(TINY, **changes)
    write_weights(folder, options, random_weights(options, seed=seed))
    return folder


@cache
def elmo_folder() -> Path:
    """Return a model folder that is removed when the process ends."""
    folder = Path(tempfile.mkdtemp(prefix="tiny-elmo-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return make_elmo(folder)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def clip(x: np.ndarray, bound: float | None) -> np.ndarray:
    return x if bound is None else np.clip(x, -bound, bound)


class PlainElmo:
    """Reference implementation in float64, word by word and step by step; stateful like the original.

    Attributes:
        wrong: a deliberate mistake: ``reset`` (states are cleared), ``forget`` (no +1), ``skip`` (inverted
            option), ``order`` (gates i, f, j, o), ``cell`` and ``proj`` (no clipping).
    """

    def __init__(self, options: ElmoOptions, weights: dict[str, np.ndarray], *, wrong: str = "") -> None:
        self.options, self.wrong = options, wrong
        self.weights = {k: v.astype(np.float64) for k, v in weights.items()}
        self.states: dict[tuple[int, int, int], tuple[np.ndarray, np.ndarray]] = {}

    def token(self, word: str) -> np.ndarray:
        """Return the context-free vector of a word, (P,)."""
        special = {"<S>": [256], "</S>": [257]}
        inner = special.get(word, list(word.encode())[:48])
        ids = ([258, *inner, 259] + [260] * 50)[:50]
        w, e = self.weights, self.weights["char_embed"][ids]
        parts = []
        for i, (width, _) in enumerate(self.options.filters):
            filters = w[f"CNN/W_cnn_{i}"][0]
            spans = [e[t : t + width] for t in range(50 - width + 1)]
            parts.append(np.max([np.einsum("wd,wdn->n", s, filters) for s in spans], 0) + w[f"CNN/b_cnn_{i}"])
        x = np.concatenate(parts)
        x = np.maximum(x, 0) if self.options.activation == "relu" else np.tanh(x)
        for k in range(self.options.n_highway):
            gate = sigmoid(x @ w[f"CNN_high_{k}/W_carry"] + w[f"CNN_high_{k}/b_carry"])
            new = np.maximum(x @ w[f"CNN_high_{k}/W_transform"] + w[f"CNN_high_{k}/b_transform"], 0)
            x = gate * new + (1 - gate) * x
        return x @ w["CNN_proj/W_proj"] + w["CNN_proj/b_proj"]

    def sentence(self, words: Sequence[str], row: int) -> np.ndarray:
        """Return all layers of a sentence, (L + 1, words, 2 P); uses and updates the state of ``row``."""
        tokens = np.stack([self.token(w) for w in ["<S>", *words, "</S>"]])
        layers = [np.concatenate([tokens, tokens], axis=1)]
        forward, backward = tokens, tokens[::-1]
        for layer in range(self.options.num_layers):
            forward = self.run(forward, 0, layer, row)
            backward = self.run(backward, 1, layer, row)
            layers.append(np.concatenate([forward, backward[::-1]], axis=1))
        return np.stack(layers)[:, 1:-1]

    def run(self, inputs: np.ndarray, direction: int, layer: int, row: int) -> np.ndarray:
        o, out = self.options, []
        weight, bias, projection = (
            self.weights[cell_key(direction, layer, n)] for n in ("W_0", "B", "W_P_0")
        )
        zeros = np.zeros(o.projection_dim), np.zeros(o.dim)
        h, c = zeros if self.wrong == "reset" else self.states.get((row, direction, layer), zeros)
        for x in inputs:
            i, j, f, last = np.split(np.concatenate([x, h]) @ weight + bias, 4)
            if self.wrong == "order":
                j, f = f, j
            c = sigmoid(f + (self.wrong != "forget")) * c + sigmoid(i) * np.tanh(j)
            c = clip(c, None if self.wrong == "cell" else o.cell_clip)
            h = clip((sigmoid(last) * np.tanh(c)) @ projection, None if self.wrong == "proj" else o.proj_clip)
            skip = layer > 0 and o.use_skip_connections != (self.wrong == "skip" and layer > 0)
            out.append(h + x if skip else h)
        self.states[row, direction, layer] = h, c
        return np.stack(out)
