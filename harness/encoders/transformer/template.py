"""Templates: the special tokens around the texts of a row, read from a tokenizer or specified."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from tokenizers import Encoding
from tokenizers import Tokenizer as Backend

from harness.errors import HarnessError

ID, TYPE, WORD, START, END, SEQUENCE = range(6)
"""Columns of a block, which has one row per token."""


@dataclass(frozen=True, slots=True)
class TemplatePart:
    """The special tokens ``ids`` with ``types``, or the text number ``text`` with one type."""

    ids: tuple[int, ...] = ()
    types: tuple[int, ...] = ()
    text: int = -1

    def block(self) -> np.ndarray:
        """Return the block of these special tokens, (len(ids), 6)."""
        out = np.zeros((len(self.ids), 6), dtype=np.int64)
        out[:, ID], out[:, TYPE] = self.ids, self.types
        out[:, [WORD, SEQUENCE]] = -1
        return out


@dataclass(frozen=True)
class Template:
    """Special tokens and texts of a row, in order.

    Example: BERT's pair [CLS] a [SEP] b [SEP] has five parts: (101,), text 0, (102,), text 1 and (102,).
    """

    parts: tuple[TemplatePart, ...]

    @classmethod
    def of(cls, *parts: int | Sequence[int]) -> Template:
        """Create a template from special ids (sequences) and text numbers (integers), all of type 0."""
        return cls(
            tuple(
                TemplatePart(text=p, types=(0,))
                if isinstance(p, int)
                else TemplatePart(tuple(p), (0,) * len(p))
                for p in parts
            )
        )

    @property
    def specials(self) -> int:
        """Return the number of special tokens."""
        return sum(len(s.ids) for s in self.parts)

    @property
    def ids(self) -> list[int]:
        return [i for s in self.parts for i in s.ids]

    def fill(self, texts: Sequence[np.ndarray]) -> tuple[np.ndarray, int]:
        """Return the block (S, 6) of the template filled with the texts, and the start of the last text."""
        blocks, length, last = [], 0, 0
        for part in self.parts:
            if part.text < 0:
                block = part.block()
            else:
                block = texts[part.text].copy()
                block[:, TYPE], block[:, SEQUENCE] = part.types[0], part.text
                last = length
            blocks.append(block)
            length += len(block)
        return np.concatenate(blocks), last


def disable_processing(backend: Backend) -> None:
    """Disable truncation, padding, and the interpretation of "[SEP]" in texts, which some files enable."""
    backend.no_truncation()
    backend.no_padding()
    backend.encode_special_tokens = True


def read_template(backend: Backend, *, pair: bool) -> Template:
    """Read the template that a fast tokenizer's post-processor applies to one text, or to two."""
    disable_processing(backend)
    probe = _probe(backend)
    texts = 2 if pair else 1
    processed = backend.post_process(probe, probe if pair else None, True)
    collected: list[TemplatePart] = []
    seen = 0
    for token, kind, special in zip(
        processed.ids, processed.type_ids, processed.special_tokens_mask, strict=True
    ):
        if not special:
            text, position = divmod(seen, len(probe.ids))
            seen += 1
            if position == 0:
                collected.append(TemplatePart(text=text, types=(kind,)))
        elif collected and collected[-1].text < 0:
            collected[-1] = TemplatePart((*collected[-1].ids, token), (*collected[-1].types, kind))
        else:
            collected.append(TemplatePart((token,), (kind,)))
    if seen != texts * len(probe.ids):
        raise HarnessError("this tokenizer's post-processor changes the tokens of the text: not supported")
    return Template(tuple(collected))


def _probe(backend: Backend) -> Encoding:
    """Return a non-empty encoding, without special tokens, of any text."""
    size = backend.get_vocab_size(with_added_tokens=False)
    pieces = (backend.id_to_token(i) for i in range(size))
    for text in itertools.chain(("a", "the", "1", ".", "가"), pieces):
        encoding = backend.encode(text, add_special_tokens=False) if text else None
        if encoding is not None and encoding.ids:
            return encoding
    raise HarnessError("this tokenizer produces no tokens: its files are damaged")
