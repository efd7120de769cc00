"""Shared parts of the subword objectives: model sizes, tokenized lines, packing lines into rows, batching."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from harness.data.text import split_words
from harness.errors import HarnessError

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import BertConfig

POOL = 16
"""Number of batches that are sorted by length together."""
PACKINGS: dict[str, float] = {"mixed": 0.5, "document": 1.0, "line": 0.0}
"""How rows are made: the share of documents whose neighbouring lines are joined."""


@dataclass(frozen=True, slots=True)
class TransformerSizes:
    """Sizes of a transformer.

    Attributes:
        layers, heads: number of layers and of attention heads per layer.
        width, feed_forward: hidden size of the layers and of their feed-forward part.
        positions: maximum row length.
        activation: a name that transformers knows.
        dropout: used everywhere.
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
                raise HarnessError(f"encoder.{name}={value!r}: expected a whole number of at least 1")
        if self.width % self.heads:
            raise HarnessError(
                f"encoder.width={self.width}: must be a multiple of encoder.heads={self.heads}"
            )
        if not 0 <= self.dropout < 1:
            raise HarnessError(f"encoder.dropout={self.dropout}: must be in [0, 1)")
        from transformers.activations import ACT2FN

        if self.activation not in ACT2FN:
            raise HarnessError(
                f"encoder.activation={self.activation}: unknown; use gelu, gelu_new, relu, ..."
            )

    def bert_config(self, **options: object) -> BertConfig:
        """BERT's configuration with these sizes and further ``options``."""
        from transformers import BertConfig

        sizes: dict[str, object] = {
            "hidden_size": self.width,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "intermediate_size": self.feed_forward,
            "hidden_act": self.activation,
            "hidden_dropout_prob": self.dropout,
            "attention_probs_dropout_prob": self.dropout,
            "max_position_embeddings": self.positions,
        }
        return BertConfig(**sizes, **options)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class TokenSequence:
    """A tokenized text.

    Attributes:
        ids: (S,) int64.
        words: (S,) int64, number of words of the text that begin in each token.
    """

    ids: np.ndarray
    words: np.ndarray

    def __len__(self) -> int:
        return len(self.ids)

    def slice(self, start: int, stop: int) -> TokenSequence:
        return TokenSequence(self.ids[start:stop], self.words[start:stop])

    @classmethod
    def join(cls, parts: Sequence[TokenSequence]) -> TokenSequence:
        return cls(np.concatenate([p.ids for p in parts]), np.concatenate([p.words for p in parts]))


def unigram_nll(
    train: Iterable[np.ndarray], test: Iterable[np.ndarray], *, vocabulary_size: int, first: int = 0
) -> float:
    """Nats of a text under the unigram distribution of the training text: a baseline for any model.

    Example: with vocabulary 3 and training text ``0 0 1``, the counts plus one are 3, 2, 1, so the test text
    ``0 2`` has -log(3/6) - log(1/6) = 2.48 nats.

    Args:
        train, test: token ids (S,) of the training and of the held-out text.
        vocabulary_size: one is added to the count of every token.
        first: lower ids are special tokens, which do not count in either text.
    """
    train_counts, test_counts = (
        # the empty array lets concatenate() accept a text without tokens
        np.bincount(np.concatenate([np.zeros(0, np.int64), *part]), minlength=vocabulary_size)[first:]
        for part in (train, test)
    )
    log_probabilities = np.log((train_counts + 1) / (train_counts + 1).sum())
    return float(-(test_counts * log_probabilities).sum())


def tokenize_texts(backend: Tokenizer, texts: Sequence[str]) -> list[TokenSequence]:
    """Tokenize each text without special tokens."""
    return [
        TokenSequence(np.array(e.ids, dtype=np.int64), count_word_starts(text, [end for _, end in e.offsets]))
        for text, e in zip(texts, backend.encode_batch(list(texts), add_special_tokens=False), strict=True)
    ]


def count_word_starts(text: str, ends: Sequence[int]) -> np.ndarray:
    """Count the words that begin in each token.

    Example: ``"ab c, de"`` with tokens ``a|b|c|,|de`` (ends 1, 2, 4, 5, 8). The words begin at 0, 3, 4 and 6.
    A word begins in the first token that ends after it begins: tokens 0, 2, 3, 4 -> counts [1, 0, 1, 1, 1].

    Args:
        text: the text.
        ends: (S,) offset in ``text`` where each token ends.

    Returns:
        (S,) int64.
    """
    if not len(ends):
        return np.zeros(0, dtype=np.int64)
    starts = [start for start, _ in split_words(text)]
    # side=right: a token that ends exactly where a word begins lies before the word
    # byte-level tokens of one character may all end at the same offset: a running maximum keeps them sorted
    token = np.searchsorted(np.maximum.accumulate(np.asarray(ends)), starts, side="right")
    # words after the last token (text that the tokenizer drops) count in the last one
    return np.bincount(np.minimum(token, len(ends) - 1), minlength=len(ends))


def pack(lines: Sequence[TokenSequence], room: int) -> Iterator[TokenSequence]:
    """Join neighbouring lines of a document in rows of at most ``room`` tokens.

    A line is split only if it is longer than a row. Example: lines of 2, 3, 4 and 12 tokens with room 5 give
    rows of 5 (2 + 3), 4, 5, 5 and 2 tokens.
    """
    row: list[TokenSequence] = []
    length = 0
    for line in lines:
        for start in range(0, len(line), room):
            part = line.slice(start, start + room)
            # a part has at most `room` tokens: if it does not fit, `row` is not empty
            if length + len(part) > room:
                yield TokenSequence.join(row)
                row, length = [], 0
            row.append(part)
            length += len(part)
    if length:
        yield TokenSequence.join(row)


def pack_documents(
    documents: Sequence[Sequence[TokenSequence]], join_lines: np.ndarray, room: int
) -> list[TokenSequence]:
    """Pack documents into rows of at most ``room`` tokens.

    Args:
        documents: lines of each document.
        join_lines: (documents,) Bool; documents with False get one row per line.
        room: maximum row length.
    """
    groups = (
        group
        for document, together in zip(documents, join_lines, strict=True)
        for group in ([document] if together else [[line] for line in document])
    )
    return [row for group in groups for row in pack(group, room)]


def tokenize_lines(
    backend: Tokenizer, documents: Sequence[Sequence[str]], *, spaced: bool
) -> list[list[TokenSequence]]:
    """Tokenize the lines of each document; lines without tokens are dropped.

    Args:
        backend: the tokenizer.
        documents: lines of each document.
        spaced: put a blank before every line but a document's first, as if the lines were joined by blanks.
    """
    texts = [f" {line}" if spaced and i else line for d in documents for i, line in enumerate(d)]
    # all lines are tokenized in one call, then every document takes as many sequences as it has lines
    sequences = iter(tokenize_texts(backend, texts))
    return [[s for s in (next(sequences) for _ in d) if len(s)] for d in documents]


def draw_joined_documents(
    packing: str, count: int, rng: np.random.Generator, *, epoch: int, long_rows_after_epoch: int
) -> np.ndarray:
    """Draw for each of ``count`` documents whether its lines are joined in this epoch; (count,) Bool.

    With ``packing=line`` half of the documents are joined from epoch ``long_rows_after_epoch`` on.
    """
    if packing == "line" and epoch >= long_rows_after_epoch:
        packing = "mixed"
    # drawn even if the share is 0 or 1, so that the packing does not change the state of rng
    return rng.random(count) < PACKINGS[packing]


def batch_by_length(lengths: Sequence[int], tokens: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Group rows into batches in random order.

    A batch takes as many rows as fit into ``tokens`` when padded to its longest row, at least one. Rows are
    sorted by length within random pools of about :data:`POOL` batches: batches need little padding, and the
    order remains random.

    Example: a pool with lengths 2 3 3 9 and ``tokens=9`` gives [2 3 3] (3 x 3 tokens) and [9].

    Args:
        lengths: (rows,) tokens per row.
        tokens: maximum batch size, padding included.
        rng: draws the pools and the order of the batches.

    Returns:
        Row indices of each batch.
    """
    order = rng.permutation(len(lengths))
    sizes = np.asarray(lengths)
    # an estimate from the mean length, which only sets the size of the pools
    rows_per_batch = max(1, int(tokens // max(1.0, float(sizes.mean() if len(sizes) else 1))))
    batches: list[np.ndarray] = []
    for at in range(0, len(order), POOL * rows_per_batch):
        pool = order[at : at + POOL * rows_per_batch]
        # a stable sort leaves rows of equal length in their random order
        pool = pool[np.argsort(sizes[pool], kind="stable")]
        start = 0
        for stop in range(1, len(pool) + 1):
            # would row `stop`, the longest so far, make the padded batch too large?
            # lengths 2 3 3 9, tokens 9: row 2 makes 3 x 3 = 9, row 3 would make 4 x 9 and begins a new batch
            if stop == len(pool) or (stop + 1 - start) * sizes[pool[stop]] > tokens:
                batches.append(pool[start:stop])
                start = stop
    return [batches[i] for i in rng.permutation(len(batches))]


def pad(rows: Sequence[np.ndarray], fill: int) -> np.ndarray:
    """Stack rows to (B, S), filled up on the right."""
    padded = np.full((len(rows), max(map(len, rows))), fill, dtype=np.int64)
    for i, row in enumerate(rows):
        padded[i, : len(row)] = row
    return padded
