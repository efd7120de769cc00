"""The sequences to encode: every distinct text (or pair) of a task once, in a fixed order."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from harness.data.text import Example, Text
from harness.data.tokenizer import Tokenizer, WindowOptions
from harness.data.tokens import TokenizedWindow

Sequence_ = tuple[Text, ...]


@dataclass(slots=True)
class Sequences:
    """Distinct sequences and the examples that use them.

    Attributes:
        items: one text each, or two for joint pairs; a context shared by many questions is here once.
        joint: pairs are encoded as one sequence.
    """

    joint: bool
    items: list[Sequence_] = field(default_factory=list)
    _index: dict[Sequence_, int] = field(default_factory=dict)

    @classmethod
    def of(cls, examples: Iterable[Example], *, joint: bool) -> Sequences:
        out = cls(joint)
        for example in examples:
            for item in out.parts(example):
                if item not in out._index:
                    out._index[item] = len(out.items)
                    out.items.append(item)
        return out

    def parts(self, example: Example) -> list[Sequence_]:
        """The sequences of one example: one (single text or joint pair) or two (separate pair)."""
        if self.joint and len(example.texts) == 2:
            return [example.texts]
        return [(text,) for text in example.texts]

    def numbers(self, example: Example) -> list[int]:
        return [self._index[item] for item in self.parts(example)]

    def tokenize(self, tokenizer: Tokenizer, windowing: WindowOptions) -> list[list[TokenizedWindow]]:
        """Windows of each sequence."""
        singles = [i for i, item in enumerate(self.items) if len(item) == 1]
        pairs = [i for i, item in enumerate(self.items) if len(item) == 2]
        out: list[list[TokenizedWindow]] = [[] for _ in self.items]
        if singles:
            rows = tokenizer.tokenize([self.items[i][0] for i in singles], windowing)
            for i, windows in zip(singles, rows, strict=True):
                out[i] = windows
        if pairs:
            rows = tokenizer.tokenize_pairs([(self.items[i][0], self.items[i][1]) for i in pairs], windowing)
            for i, windows in zip(pairs, rows, strict=True):
                out[i] = windows
        return out

    def fingerprint(self) -> str:
        """Hex digest of the texts and their words, in order."""
        digest = hashlib.sha256(b"joint" if self.joint else b"separate")
        for item in self.items:
            digest.update(b"\x01")
            for text in item:
                digest.update(text.text.encode("utf-8", "surrogatepass"))
                digest.update(np.asarray(text.spans, dtype=np.int64).tobytes() + b"\x02")
        return digest.hexdigest()


def align_rows(parts: list[list[TokenizedWindow]]) -> list[tuple[TokenizedWindow, ...]]:
    """Rows of one example, aligned over its texts: of two texts encoded apart, the one with fewer windows
    (the question) repeats its own."""
    most = max(len(windows) for windows in parts)
    return [tuple(windows[min(i, len(windows) - 1)] for windows in parts) for i in range(most)]
