"""What the objectives over sub-words share: the block's sizes, tokenised documents, and packing them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.data.text import split_words
from harness.errors import HarnessError

POOL = 16
"""Batches that are sorted by length together."""


@dataclass(frozen=True, slots=True)
class Block:
    """Sizes of a transformer: ``layers``, ``width``, ``heads``, the width of its ``feed_forward`` part, its
    ``activation`` (a name that transformers knows), ``dropout`` everywhere, and most ``positions`` of a row.
    """

    layers: int
    width: int
    heads: int
    feed_forward: int
    positions: int
    activation: str = "gelu"
    dropout: float = 0.1

    def __post_init__(self) -> None:
        for name in ("layers", "width", "heads", "feed_forward", "positions"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise HarnessError(f"encoder.{name}={value!r}: a whole number, at least 1, is wanted")
        if self.width % self.heads:
            raise HarnessError(
                f"encoder.width={self.width}: must be a multiple of encoder.heads={self.heads}"
            )
        if not 0 <= self.dropout < 1:
            raise HarnessError(f"encoder.dropout={self.dropout}: a rate in [0, 1) is wanted")
        from transformers.activations import ACT2FN

        if self.activation not in ACT2FN:
            raise HarnessError(f"encoder.activation={self.activation}: gelu, gelu_new, relu, ... is wanted")

    def bert(self, **more: Any) -> Any:
        """BERT's configuration with a block of these sizes, and what ``more`` says."""
        from transformers import BertConfig

        return BertConfig(
            hidden_size=self.width,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            intermediate_size=self.feed_forward,
            hidden_act=self.activation,
            hidden_dropout_prob=self.dropout,
            attention_probs_dropout_prob=self.dropout,
            max_position_embeddings=self.positions,
            **more,
        )


@dataclass(frozen=True, slots=True)
class Pieces:
    """A tokenised text: ``ids`` (S,) and, for each token, how many words of the text begin in it (S,)."""

    ids: np.ndarray
    words: np.ndarray

    def __len__(self) -> int:
        return len(self.ids)

    def cut(self, start: int, stop: int) -> Pieces:
        return Pieces(self.ids[start:stop], self.words[start:stop])

    @classmethod
    def join(cls, parts: Sequence[Pieces]) -> Pieces:
        return cls(np.concatenate([p.ids for p in parts]), np.concatenate([p.words for p in parts]))


def unigram_nll(
    train: Iterable[np.ndarray], asked: Iterable[np.ndarray], *, size: int, first: int = 0
) -> float:
    """Nats that the tokens' own frequencies give a text, summed: what a model that reads anything is below.

    Args:
        train, asked: ids (S,) of the training text and of the held-out one.
        size: of the vocabulary; one is added to each count.
        first: tokens below are special, and neither counted nor asked.
    """
    counts, wanted = (
        np.bincount(np.concatenate([np.zeros(0, np.int64), *part]), minlength=size)[first:]
        for part in (train, asked)
    )
    return float(-(wanted * np.log((counts + 1) / (counts + 1).sum())).sum())


def tokenise(backend: Any, texts: Sequence[str]) -> list[Pieces]:
    """Pieces of each text by a ``tokenizers.Tokenizer``, no special tokens."""
    return [
        Pieces(np.array(e.ids, dtype=np.int64), beginnings(text, [end for _, end in e.offsets]))
        for text, e in zip(texts, backend.encode_batch(list(texts), add_special_tokens=False), strict=True)
    ]


def beginnings(text: str, ends: Sequence[int]) -> np.ndarray:
    """For each token how many words begin in it, given where the tokens end in ``text``: (S,)."""
    if not len(ends):
        return np.zeros(0, dtype=np.int64)
    starts = [start for start, _ in split_words(text)]
    at = np.searchsorted(np.maximum.accumulate(np.asarray(ends)), starts, side="right")
    return np.bincount(np.minimum(at, len(ends) - 1), minlength=len(ends))


def pack(lines: Sequence[Pieces], room: int) -> Iterator[Pieces]:
    """Neighbouring lines of a document together in rows of at most ``room`` tokens. A line is broken only
    where it is longer than a row."""
    row: list[Pieces] = []
    length = 0
    for line in lines:
        for at in range(0, len(line), room):
            part = line.cut(at, at + room)
            if length + len(part) > room:
                yield Pieces.join(row)
                row, length = [], 0
            row.append(part)
            length += len(part)
    if length:
        yield Pieces.join(row)


ROWS: dict[str, float] = {"mixed": 0.5, "document": 1.0, "line": 0.0}
"""How rows are made: the share of the documents whose lines stand together."""


def rows_of(documents: Sequence[Sequence[Pieces]], whole: np.ndarray, room: int) -> list[Pieces]:
    """Rows of at most ``room`` tokens; a document whose ``whole`` is False has one line a row."""
    groups = (
        group
        for document, together in zip(documents, whole, strict=True)
        for group in ([document] if together else [[line] for line in document])
    )
    return [row for group in groups for row in pack(group, room)]


def lines_of(backend: Any, documents: Sequence[Sequence[str]], *, spaced: bool) -> list[list[Pieces]]:
    """The pieces of each line that has any; ``spaced`` = with the blank that stands before each line but a
    document's first."""
    texts = [f" {line}" if spaced and i else line for d in documents for i, line in enumerate(d)]
    flat = iter(tokenise(backend, texts))
    return [[p for p in (next(flat) for _ in d) if len(p)] for d in documents]


def drawn_whole(rows: str, count: int, rng: np.random.Generator, *, epoch: int, long_from: int) -> np.ndarray:
    """For each of ``count`` documents whether its lines stand together in this pass."""
    share = ROWS["mixed" if rows == "line" and epoch >= long_from else rows]
    return rng.random(count) < share


def batched(lengths: Sequence[int], tokens: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Numbers of rows by batch, in random order: as many rows as make at most ``tokens`` tokens when they are
    padded to the longest, one at least. Rows of a batch are neighbours in length within pools of
    :data:`POOL` batches, so that order and padding are both small costs."""
    order = rng.permutation(len(lengths))
    sizes = np.asarray(lengths)
    rows = max(1, int(tokens // max(1.0, float(sizes.mean() if len(sizes) else 1))))
    batches: list[np.ndarray] = []
    for at in range(0, len(order), POOL * rows):
        pool = order[at : at + POOL * rows]
        pool = pool[np.argsort(sizes[pool], kind="stable")]
        start = 0
        for stop in range(1, len(pool) + 1):
            if stop == len(pool) or (stop + 1 - start) * sizes[pool[stop]] > tokens:
                batches.append(pool[start:stop])
                start = stop
    return [batches[i] for i in rng.permutation(len(batches))]


def padded(rows: Sequence[np.ndarray], fill: int) -> np.ndarray:
    """(B, S), filled up on the right."""
    out = np.full((len(rows), max(map(len, rows))), fill, dtype=np.int64)
    for i, row in enumerate(rows):
        out[i, : len(row)] = row
    return out
