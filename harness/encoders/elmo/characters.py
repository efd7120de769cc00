"""ELMo's character ids and its context-free character CNN.

A word is its UTF-8 bytes between two markers, padded to 50 (Jozefowicz et al. 2016, section 3.1; Kim et al.
2016 for the network)::

    ids = [begin] + bytes[:48] + [end] + [fill, ...]
    x   = [f(max_t (W_1 * e)_t + b_1); ...; f(max_t (W_m * e)_t + b_m)]   one convolution per width, f = relu
    x   = g * relu(x W_t + b_t) + (1 - g) * x,   g = sigmoid(x W_c + b_c)    each highway layer
    x   = x W_p + b_p

An id is the byte's value plus one: 0 is padding of the batch, not a character.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from harness.data.text import Text
from harness.data.tokenizer import WindowOptions
from harness.data.tokens import TokenizedWindow
from harness.encoders.elmo.files import N_CHARACTERS, PROJECTION, ElmoOptions
from harness.encoders.word_windows import WordWindow, is_truncated, word_windows
from harness.errors import HarnessError

SENTENCE_BEGIN, SENTENCE_END, WORD_BEGIN, WORD_END, FILL = 257, 258, 259, 260, 261
BOUNDARIES = {"<S>": SENTENCE_BEGIN, "</S>": SENTENCE_END}
CHUNK = 256
"""Words per convolution: the intermediate values then fit the CPU cache."""


def character_ids(word: str, *, length: int = 50) -> np.ndarray:
    """Return the character ids of a word, (length,) int16; a word of more than ``length - 2`` bytes is
    truncated.

    As in the original program, the words ``<S>`` and ``</S>`` are the sentence boundaries.
    """
    # "cat", length 7: [259, 99 + 1, 97 + 1, 116 + 1, 260, 261, 261], that is begin, bytes, end, fill
    # "<S>", length 7: [259, 257, 260, 261, 261, 261, 261]
    if word in BOUNDARIES:
        return _marked(np.array([BOUNDARIES[word]]), length)
    return _marked(
        np.frombuffer(word.encode("utf-8", "ignore"), dtype=np.uint8)[: length - 2] + np.int16(1), length
    )


def boundary_ids(*, length: int = 50) -> np.ndarray:
    """Return the character ids of the sentence boundaries, (2, length) int16."""
    return np.stack([_marked(np.array([mark]), length) for mark in BOUNDARIES.values()])


def _marked(inner: np.ndarray, length: int) -> np.ndarray:
    out = np.full(length, FILL, dtype=np.int16)
    out[0], out[1 : 1 + len(inner)], out[1 + len(inner)] = WORD_BEGIN, inner, WORD_END
    return out


class ElmoTokenizer:
    """Maps words to character ids (S, 50); see :class:`harness.data.tokenizer.Tokenizer`."""

    def __init__(self, *, length: int = 50) -> None:
        self.pad: Mapping[str, float] = {"characters": 0}
        self.length = length
        self._ids_by_word: dict[str, np.ndarray] = {}
        self._counts = {"words": 0, "words_cut": 0, "texts_cut": 0}

    def tokenize(self, texts: Sequence[Text], windowing: WindowOptions) -> list[list[TokenizedWindow]]:
        """Return windows of words; ``max_length`` counts words. Sentence boundaries are not tokens."""
        out = []
        for text in texts:
            self._count(text.words)
            windows = word_windows(text, windowing, self._inputs)
            self._counts["texts_cut"] += is_truncated(windows, text, windowing)
            out.append(windows)
        return out

    def tokenize_pairs(
        self, pairs: Sequence[tuple[Text, Text]], windowing: WindowOptions
    ) -> list[list[TokenizedWindow]]:
        """Not supported, since ELMo has no separators: always an error."""
        raise HarnessError("ELMo encodes the two texts of a pair separately: set encoder.pairs=separate")

    def coverage(self) -> dict[str, float]:
        """Return ``words``, ``words_cut`` (truncated to 48 bytes), ``types`` and ``texts_cut``."""
        return {**{k: float(v) for k, v in self._counts.items()}, "types": float(len(self._ids_by_word))}

    def _inputs(self, window: WordWindow) -> dict[str, np.ndarray]:
        ids = [self._ids(word) for word in window.words]
        return {"characters": np.stack(ids) if ids else np.zeros((0, self.length), dtype=np.int16)}

    def _ids(self, word: str) -> np.ndarray:
        ids = self._ids_by_word.get(word)
        if ids is None:
            ids = self._ids_by_word[word] = character_ids(word, length=self.length)
        return ids

    def _count(self, words: Sequence[str]) -> None:
        self._counts["words"] += len(words)
        # a character has at most four bytes: most words need not be encoded to know that they fit
        long = (w for w in words if 4 * len(w) > self.length - 2)
        self._counts["words_cut"] += sum(len(w.encode("utf-8", "ignore")) > self.length - 2 for w in long)


class Highway(nn.Module):
    """x = g * relu(x W_t + b_t) + (1 - g) * x with g = sigmoid(x W_c + b_c) (Srivastava et al. 2015)."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.carry, self.carry_bias = _empty(size, size), _empty(size)
        self.transform, self.transform_bias = _empty(size, size), _empty(size)

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, size) to (N, size)."""
        gate = torch.sigmoid(torch.addmm(self.carry_bias, x, self.carry))
        return torch.lerp(x, torch.relu(torch.addmm(self.transform_bias, x, self.transform)), gate)


class Projection(nn.Module):
    """x = x W + b."""

    def __init__(self, size: int, out: int) -> None:
        super().__init__()
        self.weight, self.bias = _empty(size, out), _empty(out)

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, size) to (N, out)."""
        return torch.addmm(self.bias, x, self.weight)


class CharacterEncoder(nn.Module):
    """Computes context-free word vectors from characters (formulas in the module docstring).

    The parameters are uninitialised until :meth:`reset_parameters` or :meth:`assign` is called.
    """

    def __init__(self, options: ElmoOptions, *, projected: bool = True) -> None:
        super().__init__()
        self.options = options
        total = options.n_filters
        self.characters = _empty(N_CHARACTERS, options.char_dim)
        self.filters = nn.ParameterList(_empty(n, options.char_dim, width) for width, n in options.filters)
        self.filter_biases = nn.ParameterList(_empty(n) for _, n in options.filters)
        self.highways = nn.ModuleList(Highway(total) for _ in range(options.n_highway))
        self.projection = Projection(total, options.projection_dim) if projected else None
        self._widest = max(width for width, _ in options.filters)

    def forward(self, characters: Tensor) -> tuple[Tensor, Tensor]:
        """Compute each distinct word once.

        Args:
            characters: (N, 50), N >= 1 words, none of them padding.

        Returns:
            Vectors (U, P) of the U distinct words, and (N,) Long, the index of each word's vector.
        """
        # words [the, a, the]: distinct = [the, a], inverse = [0, 1, 0], order (by length) = [1, 0],
        # so the vectors come out as [a, the]; position = [1, 0], and the result's index is [1, 0, 1]
        distinct, inverse = unique_rows(characters)
        lengths = (distinct != FILL).sum(1)
        order = lengths.argsort()
        sorted_lengths = lengths[order].tolist()
        count = len(sorted_lengths)
        # chunks of similar length: each is convolved only up to its longest word
        parts = [
            self._vectors(
                distinct[order[start : start + CHUNK]], sorted_lengths[min(start + CHUNK, count) - 1]
            )
            for start in range(0, count, CHUNK)
        ]
        position = torch.empty_like(order)
        position[order] = torch.arange(len(order), device=order.device)
        return torch.cat(parts), position[inverse]

    def _vectors(self, characters: Tensor, longest: int) -> Tensor:
        """Map (U, 50) to (U, P); no word has more than ``longest`` characters besides the filler."""
        # keep one window of fillers for the widest filter: all further windows give the same value to the
        # maximum
        x = characters[:, : longest + self._widest].long() - 1
        x = F.embedding(x, self.characters).transpose(1, 2)  # (U, D, T)
        features = [
            F.conv1d(x, w, b).max(dim=2).values for w, b in zip(self.filters, self.filter_biases, strict=True)
        ]
        out = torch.cat(features, dim=1)
        out = torch.relu(out) if self.options.activation == "relu" else torch.tanh(out)
        for highway in self.highways:
            out = highway(out)
        return out if self.projection is None else self.projection(out)

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw random values from torch's global generator.

        Highway layers initially pass most of their input through (Srivastava et al. 2015, section 2.2).
        """
        self.characters.uniform_(-1, 1)
        for weight, bias in zip(self.filters, self.filter_biases, strict=True):
            nn.init.kaiming_uniform_(weight, nonlinearity="relu")
            bias.zero_()
        for highway in self._highways():
            for weight in (highway.carry, highway.transform):
                nn.init.xavier_uniform_(weight)
            highway.carry_bias.fill_(-2.0)
            highway.transform_bias.zero_()
        if self.projection is not None:
            nn.init.xavier_uniform_(self.projection.weight)
            self.projection.bias.zero_()

    def assign(self, weights: Mapping[str, np.ndarray]) -> None:
        """Use published weights without copying them, except filters, which are transposed to (n, D,
        width)."""
        for parameter, key in self._named():
            value = torch.from_numpy(weights[key])
            parameter.data = value[0].permute(2, 1, 0).contiguous() if key.startswith("CNN/W") else value

    def published(self) -> dict[str, np.ndarray]:
        """Return the weights in the published layout."""
        out = {}
        for parameter, key in self._named():
            value = parameter.detach().cpu().float()
            value = value.permute(2, 1, 0)[None] if key.startswith("CNN/W") else value
            out[key] = value.contiguous().numpy()
        return out

    def _named(self) -> list[tuple[nn.Parameter, str]]:
        out = [(self.characters, "char_embed")]
        for i, (weight, bias) in enumerate(zip(self.filters, self.filter_biases, strict=True)):
            out += [(weight, f"CNN/W_cnn_{i}"), (bias, f"CNN/b_cnn_{i}")]
        for k, highway in enumerate(self._highways()):
            out += [(highway.carry, f"CNN_high_{k}/W_carry"), (highway.carry_bias, f"CNN_high_{k}/b_carry")]
            out += [(highway.transform, f"CNN_high_{k}/W_transform")]
            out += [(highway.transform_bias, f"CNN_high_{k}/b_transform")]
        if self.projection is not None:
            out += [(self.projection.weight, PROJECTION), (self.projection.bias, "CNN_proj/b_proj")]
        return out

    def _highways(self) -> list[Highway]:
        return list(self.highways)  # type: ignore[arg-type]


def unique_rows(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return the distinct rows (U, K) of an integer matrix (N, K), and (N,) Long, the index of each row.

    Rows are hashed by a weighted sum with random odd factors modulo 2^64, so that N numbers are sorted
    instead of N * K. The result is verified; in case of a collision (probability 2^-60), whole rows are
    sorted.
    """
    # rows [[1, 2], [3, 4], [1, 2]] with factors [5, 7]: keys [19, 43, 19], sorted distinct keys [19, 43],
    # inverse [0, 1, 0]; the last row with each key represents it: distinct rows [[1, 2], [3, 4]]
    generator = torch.Generator().manual_seed(0)
    factors = torch.randint(-(2**62), 2**62, (rows.shape[1],), generator=generator).to(rows.device) * 2 + 1
    keys = (rows.long() * factors).sum(1)
    unique_keys, inverse = torch.unique(keys, return_inverse=True)
    representative = torch.empty(len(unique_keys), dtype=torch.long, device=rows.device)
    representative[inverse] = torch.arange(len(rows), device=rows.device)
    distinct = rows[representative]
    if not torch.equal(distinct[inverse], rows):
        distinct, inverse = torch.unique(rows, dim=0, return_inverse=True)
    return distinct, inverse


def _empty(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.empty(*shape))
