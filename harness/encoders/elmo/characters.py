"""ELMo's words as characters and its context-free layer over them.

A word is the bytes of its UTF-8 form between two marks, filled up to 50 (Jozefowicz et al. 2016, section 3.1;
Kim et al. 2016 for the network)::

    ids = [begin] + bytes[:48] + [end] + [fill, ...]
    x   = [f(max_t (W_1 * e)_t + b_1); ...; f(max_t (W_m * e)_t + b_m)]      one convolution a width, f = relu
    x   = g * relu(x W_t + b_t) + (1 - g) * x,   g = sigmoid(x W_c + b_c)    each highway layer
    x   = x W_p + b_p

Numbers are one above the byte's: 0 is padding, which stands for no word at all.
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
from harness.encoders.word_rows import WordWindow, cut, word_rows
from harness.errors import HarnessError

SENTENCE_BEGIN, SENTENCE_END, WORD_BEGIN, WORD_END, FILL = 257, 258, 259, 260, 261
BOUNDARIES = {"<S>": SENTENCE_BEGIN, "</S>": SENTENCE_END}
CHUNK = 256
"""Words that are convolved at once: their intermediate values then stay in the processor's cache."""


def character_ids(word: str, *, length: int = 50) -> np.ndarray:
    """(length,) int16 numbers of a word's characters; one that is longer than ``length - 2`` bytes is cut.

    As in the original program the words ``<S>`` and ``</S>`` are a sentence's begin and end.
    """
    if word in BOUNDARIES:
        return _marked(np.array([BOUNDARIES[word]]), length)
    return _marked(
        np.frombuffer(word.encode("utf-8", "ignore"), dtype=np.uint8)[: length - 2] + np.int16(1), length
    )


def boundary_ids(*, length: int = 50) -> np.ndarray:
    """(2, length) int16: the words that stand for a sentence's begin and end."""
    return np.stack([_marked(np.array([mark]), length) for mark in BOUNDARIES.values()])


def _marked(inner: np.ndarray, length: int) -> np.ndarray:
    out = np.full(length, FILL, dtype=np.int16)
    out[0], out[1 : 1 + len(inner)], out[1 + len(inner)] = WORD_BEGIN, inner, WORD_END
    return out


class ElmoTokenizer:
    """Words to characters (S, 50); see :class:`harness.encoders.base.Tokenizer`."""

    def __init__(self, *, length: int = 50) -> None:
        self.pad: Mapping[str, float] = {"characters": 0}
        self.length = length
        self._known: dict[str, np.ndarray] = {}
        self._counts = {"words": 0, "words_cut": 0, "texts_cut": 0}

    def tokenize(self, texts: Sequence[Text], windowing: WindowOptions) -> list[list[TokenizedWindow]]:
        """Windows of words; ``max_length`` counts words. A sentence's begin and end are no tokens."""
        out = []
        for text in texts:
            self._count(text.words)
            rows = word_rows(text, windowing, self._inputs)
            self._counts["texts_cut"] += cut(rows, text, windowing)
            out.append(rows)
        return out

    def tokenize_pairs(
        self, pairs: Sequence[tuple[Text, Text]], windowing: WindowOptions
    ) -> list[list[TokenizedWindow]]:
        """ELMo knows no separators: always an error."""
        raise HarnessError("ELMo takes the two texts of a pair apart: encoder.pairs=separate")

    def coverage(self) -> dict[str, float]:
        """``words``, ``words_cut`` (over 48 bytes, read without their end), ``types``, ``texts_cut``."""
        return {**{k: float(v) for k, v in self._counts.items()}, "types": float(len(self._known))}

    def _inputs(self, window: WordWindow) -> dict[str, np.ndarray]:
        spans = window.text.spans[window.start : window.start + window.length]
        words = [self._ids(window.text.text[a:b]) for a, b in spans]
        return {"characters": np.stack(words) if words else np.zeros((0, self.length), dtype=np.int16)}

    def _ids(self, word: str) -> np.ndarray:
        found = self._known.get(word)
        if found is None:
            found = self._known[word] = character_ids(word, length=self.length)
        return found

    def _count(self, words: Sequence[str]) -> None:
        self._counts["words"] += len(words)
        # a character has four bytes at most
        long = (w for w in words if 4 * len(w) > self.length - 2)
        self._counts["words_cut"] += sum(len(w.encode("utf-8", "ignore")) > self.length - 2 for w in long)


class Highway(nn.Module):
    """x = g * relu(x W_t + b_t) + (1 - g) * x with g = sigmoid(x W_c + b_c) (Srivastava et al. 2015)."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.carry, self.carry_bias = _empty(size, size), _empty(size)
        self.transform, self.transform_bias = _empty(size, size), _empty(size)

    def forward(self, x: Tensor) -> Tensor:
        """(N, size) to (N, size)."""
        gate = torch.sigmoid(torch.addmm(self.carry_bias, x, self.carry))
        return torch.lerp(x, torch.relu(torch.addmm(self.transform_bias, x, self.transform)), gate)


class Projection(nn.Module):
    """x = x W + b."""

    def __init__(self, size: int, out: int) -> None:
        super().__init__()
        self.weight, self.bias = _empty(size, out), _empty(out)

    def forward(self, x: Tensor) -> Tensor:
        """(N, size) to (N, out)."""
        return torch.addmm(self.bias, x, self.weight)


class CharacterEncoder(nn.Module):
    """Characters of words to their context-free vectors; see the module's formulas.

    The parameters have no values until they are drawn (:meth:`draw`) or assigned (:meth:`assign`).
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
        """Each different word once.

        Args:
            characters: (N, 50), N >= 1 words, none of them padding.

        Returns:
            vectors (U, P) of the U different words, and (N,) Long, which of them each word is.
        """
        different, inverse = unique_rows(characters)
        lengths = (different != FILL).sum(1)
        order = lengths.argsort()
        longest = lengths[order].tolist()
        parts = [
            self._vectors(different[order[at : at + CHUNK]], longest[min(at + CHUNK, len(longest)) - 1])
            for at in range(0, len(longest), CHUNK)
        ]
        place = torch.empty_like(order)
        place[order] = torch.arange(len(order), device=order.device)
        return torch.cat(parts), place[inverse]

    def _vectors(self, characters: Tensor, longest: int) -> Tensor:
        """(U, 50) to (U, P); no word has more than ``longest`` characters that are no filler."""
        # one window of nothing but filler stays for the widest filter: the others are the same
        x = characters[:, : longest + self._widest].long() - 1
        x = F.embedding(x, self.characters).transpose(1, 2)  # (U, D, T)
        found = [
            F.conv1d(x, w, b).max(dim=2).values for w, b in zip(self.filters, self.filter_biases, strict=True)
        ]
        out = torch.cat(found, dim=1)
        out = torch.relu(out) if self.options.activation == "relu" else torch.tanh(out)
        for highway in self.highways:
            out = highway(out)
        return out if self.projection is None else self.projection(out)

    @torch.no_grad()
    def draw(self) -> None:
        """Random values from torch's global generator; a highway layer starts by passing on most of its
        input (Srivastava et al. 2015, section 2.2)."""
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
        """Take over published weights without a copy; filters are turned to (n, D, width)."""
        for parameter, key in self._named():
            value = torch.from_numpy(weights[key])
            parameter.data = value[0].permute(2, 1, 0).contiguous() if key.startswith("CNN/W") else value

    def published(self) -> dict[str, np.ndarray]:
        """The weights as they are published."""
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
    """(U, K) the different rows of an integer matrix (N, K), and (N,) Long, which of them each row is.

    Rows are told apart by a sum with random odd factors modulo 2^64, which sorts 50 times fewer numbers;
    the result is compared, and found by sorting whole rows in the one case in 2^60 where it is wrong.
    """
    generator = torch.Generator().manual_seed(0)
    factors = torch.randint(-(2**62), 2**62, (rows.shape[1],), generator=generator).to(rows.device) * 2 + 1
    keys = (rows.long() * factors).sum(1)
    found, inverse = torch.unique(keys, return_inverse=True)
    first = torch.empty(len(found), dtype=torch.long, device=rows.device)
    first[inverse] = torch.arange(len(rows), device=rows.device)
    different = rows[first]
    if not torch.equal(different[inverse], rows):
        different, inverse = torch.unique(rows, dim=0, return_inverse=True)
    return different, inverse


def _empty(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.empty(*shape))
