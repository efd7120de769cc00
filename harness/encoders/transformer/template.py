"""Templates: which special tokens a row has around its texts, read off a tokenizer or given."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.errors import HarnessError

ID, TYPE, WORD, START, END, SEGMENT = range(6)
"""Columns of a block: one row a token."""


@dataclass(frozen=True, slots=True)
class Slot:
    """A part of a template: the special tokens ``ids`` with ``types``, or text number ``text`` of one type."""

    ids: tuple[int, ...] = ()
    types: tuple[int, ...] = ()
    text: int = -1

    def block(self) -> np.ndarray:
        """(len(ids), 6) rows of these special tokens."""
        out = np.zeros((len(self.ids), 6), dtype=np.int64)
        out[:, ID], out[:, TYPE] = self.ids, self.types
        out[:, [WORD, SEGMENT]] = -1
        return out


@dataclass(frozen=True)
class Template:
    """Special tokens and texts of a row, in order."""

    slots: tuple[Slot, ...]

    @classmethod
    def of(cls, *parts: int | Sequence[int]) -> Template:
        """From special ids (sequences) and text numbers (integers), all of type 0."""
        return cls(
            tuple(
                Slot(text=p, types=(0,)) if isinstance(p, int) else Slot(tuple(p), (0,) * len(p))
                for p in parts
            )
        )

    @property
    def specials(self) -> int:
        """Number of special tokens."""
        return sum(len(s.ids) for s in self.slots)

    @property
    def ids(self) -> list[int]:
        return [i for s in self.slots for i in s.ids]

    def fill(self, texts: Sequence[np.ndarray]) -> tuple[np.ndarray, int]:
        """(S, 6) rows of the template with the texts' blocks in it, and where the last text starts."""
        parts, at, last = [], 0, 0
        for slot in self.slots:
            if slot.text < 0:
                part = slot.block()
            else:
                part = texts[slot.text].copy()
                part[:, TYPE], part[:, SEGMENT] = slot.types[0], slot.text
                last = at
            parts.append(part)
            at += len(part)
        return np.concatenate(parts), last


def plain(backend: Any) -> None:
    """Switch off what some files ask a tokenizer to do on its own: cut, pad, and read a text's "[SEP]" as a
    separator."""
    backend.no_truncation()
    backend.no_padding()
    backend.encode_special_tokens = True


def read_template(backend: Any, *, pair: bool) -> Template:
    """The template a fast tokenizer's post-processor applies to one text, or to two."""
    plain(backend)
    probe = _probe(backend)
    texts = 2 if pair else 1
    done = backend.post_process(probe, probe if pair else None, True)
    slots: list[Slot] = []
    seen = 0
    for token, kind, special in zip(done.ids, done.type_ids, done.special_tokens_mask, strict=True):
        if not special:
            text, place = divmod(seen, len(probe.ids))
            seen += 1
            if place == 0:
                slots.append(Slot(text=text, types=(kind,)))
        elif slots and slots[-1].text < 0:
            slots[-1] = Slot((*slots[-1].ids, token), (*slots[-1].types, kind))
        else:
            slots.append(Slot((token,), (kind,)))
    if seen != texts * len(probe.ids):
        raise HarnessError("this tokenizer's post-processor changes the text's own tokens: not supported")
    return Template(tuple(slots))


def _probe(backend: Any) -> Any:
    """An encoding, without special tokens, of anything that is not empty."""
    size = backend.get_vocab_size(with_added_tokens=False)
    pieces = (backend.id_to_token(i) for i in range(size))
    for text in itertools.chain(("a", "the", "1", ".", "가"), pieces):
        encoding = backend.encode(text, add_special_tokens=False) if text else None
        if encoding is not None and encoding.ids:
            return encoding
    raise HarnessError("this tokenizer makes no token of anything: its files are damaged")
