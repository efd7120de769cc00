"""Tokens: what an encoder makes of a text, and which word and characters each token stands for.

An encoder's tokenizer yields one or more :class:`TokenizedWindow` a text (several when a long text is cut into
overlapping windows); :meth:`TokenBatch.collate` pads rows to a batch. Bodies and heads read only :class:`TokenBatch`
and the encoder's states, so one head serves all encoders.

Invariants, held by the contract tests:

- ``mask`` is True for every real token, special ones included. It comes from the row's length, never from a
  pad id.
- every word of a text is *owned* by exactly one window: the one that shows most context around it
  (``word_to_token`` is -1 in the others). So a word is trained on once and predicted once.
- ``word_to_token[w]`` is the first token of word ``w`` (of a recurrent encoder the one at which it has read the
  word, markers such as ``xxmaj`` never); where the tokenizer joined the word to its neighbour it
  is the token that covers the word's first character; where it deleted the word it is -1 in all windows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor


@dataclass(slots=True)
class TokenizedWindow:
    """One unpadded sequence of S tokens, as numpy arrays.

    Attributes:
        inputs: encoder-private arrays whose first axis is S: ``input_ids`` (S,), ``characters`` (S, 50), ...
        word_ids: (S,) int; index of the unit's word in its own text, -1 for special tokens.
        offsets: (S, 2) int; character span in the unit's own text, leading blanks left out; (0, 0) if
            special.
        sequence_ids: (S,) int; 0 first text or question, 1 second text or context, -1 special.
        word_to_token: (W,) int; for each word of the row's last text the token that stands for it, -1 when this
            window does not own the word.
        window: index of the window among those of its text.
    """

    inputs: dict[str, np.ndarray]
    word_ids: np.ndarray
    offsets: np.ndarray
    sequence_ids: np.ndarray
    word_to_token: np.ndarray
    window: int = 0

    def __len__(self) -> int:
        return len(self.word_ids)


@dataclass(slots=True)
class TokenBatch:
    """One padded batch of B rows, S tokens wide. All tensors share B; see :class:`TokenizedWindow` for the fields.

    ``word_to_token`` is (B, W) Long, W the largest number of words; ``example`` (B,) is the row of the data set
    and ``window`` (B,) the window of its text.
    """

    inputs: dict[str, Tensor]
    mask: Tensor
    word_ids: Tensor
    offsets: Tensor
    sequence_ids: Tensor
    word_to_token: Tensor
    example: Tensor
    window: Tensor

    @classmethod
    def collate(
        cls,
        rows: Sequence[TokenizedWindow],
        *,
        pad: Mapping[str, float] | None = None,
        example: Sequence[int] | None = None,
    ) -> TokenBatch:
        """Pad ``rows`` on the right to their longest.

        Args:
            rows: at least one row.
            pad: value that fills each encoder-private input (0 where it is not named).
            example: data set row of each row; 0, 1, 2, ... by default.
        """
        pad = pad or {}
        lengths = torch.tensor([len(r) for r in rows])
        width = max(1, int(lengths.max()))
        words = max(1, max(len(r.word_to_token) for r in rows))
        return cls(
            inputs={k: pad_stack([r.inputs[k] for r in rows], width, pad.get(k, 0)) for k in rows[0].inputs},
            mask=torch.arange(width)[None, :] < lengths[:, None],
            word_ids=pad_stack([r.word_ids for r in rows], width, -1).long(),
            offsets=pad_stack([r.offsets for r in rows], width, 0).long(),
            sequence_ids=pad_stack([r.sequence_ids for r in rows], width, -1).long(),
            word_to_token=pad_stack([r.word_to_token for r in rows], words, -1).long(),
            example=torch.tensor(list(range(len(rows))) if example is None else list(example)),
            window=torch.tensor([r.window for r in rows]),
        )

    def to(self, device: torch.device | str) -> TokenBatch:
        moved = {
            f: getattr(self, f).to(device)
            for f in ("mask", "word_ids", "offsets", "sequence_ids", "word_to_token", "example", "window")
        }
        return replace(self, inputs={k: v.to(device) for k, v in self.inputs.items()}, **moved)

    @property
    def special(self) -> Tensor:
        """(B, S) Bool: real tokens that stand for no text ([CLS], [SEP], <bos>, delimiters)."""
        return self.mask & (self.sequence_ids < 0)

    @property
    def content(self) -> Tensor:
        """(B, S) Bool: real tokens that stand for text."""
        return self.mask & (self.sequence_ids >= 0)

    def __len__(self) -> int:
        return len(self.mask)


def pad_stack(arrays: Sequence[np.ndarray], width: int, value: float) -> Tensor:
    """Stack arrays, filled up with ``value`` to ``width`` on the first axis and the widest on the others:
    (B, width, ...)."""
    inner = [max(sizes) for sizes in zip(*(a.shape[1:] for a in arrays), strict=True)]
    out = np.full((len(arrays), width, *inner), value, dtype=arrays[0].dtype)
    for i, a in enumerate(arrays):
        here: tuple[Any, ...] = (i, *(slice(size) for size in a.shape))
        out[here] = a
    return torch.from_numpy(out)


@dataclass(slots=True)
class EncoderOutput:
    """What an encoder returns for one batch of tokens.

    Attributes:
        last_hidden_state: (B, S, H), the top layer (or the mix a scalar mix made).
        hidden_states: (K, B, S, H), only when asked for: all L + 1 layers bottom to top, [0] the embeddings.
        pooler_output: (B, H), the encoder's own pretrained summary of the row (BERT's pooler), if it has one.
    """

    last_hidden_state: Tensor
    hidden_states: Tensor | None = field(default=None)
    pooler_output: Tensor | None = field(default=None)


def word_states(states: Tensor, tokens: TokenBatch, *, how: str = "first") -> Tensor:
    """States of the words that each row owns, dense: see :func:`owned_word_states` for a long text's windows.

    Args:
        states: (B, S, H)
        tokens: the batch the states belong to.
        how: ``first`` (the word's first token) or ``mean`` (over its tokens).

    Returns:
        (B, W, H); zeros for words that have no token in this row.
    """
    rows, words, vectors = owned_word_states(states, tokens, how=how)
    out = states.new_zeros(*tokens.word_to_token.shape, states.shape[-1]).to(vectors.dtype)
    return out.index_put((rows, words), vectors)


def owned_word_states(
    states: Tensor, tokens: TokenBatch, *, how: str = "first"
) -> tuple[Tensor, Tensor, Tensor]:
    """States of the N words that the rows own; the cost is linear in the tokens, however long the text is.

    Args:
        states, tokens, how: as in :func:`word_states`.

    Returns:
        row (N,) and word (N,) of each, in this order, and their states (N, H).
    """
    rows, words = (tokens.word_to_token >= 0).nonzero(as_tuple=True)
    first = states[rows, tokens.word_to_token[rows, words]]
    if how == "first":
        return rows, words, first
    if how == "mean":
        return rows, words, _mean_by_word(states, tokens, rows=rows, words=words, fallback=first)
    raise ValueError(f"word pooling {how!r} is neither 'first' nor 'mean'")


def _mean_by_word(
    states: Tensor, tokens: TokenBatch, *, rows: Tensor, words: Tensor, fallback: Tensor
) -> Tensor:
    """(N, H): mean over the tokens of each owned word, ``fallback`` (N, H) where it shares a token."""
    last = tokens.sequence_ids.amax(dim=1, keepdim=True)
    number = torch.full_like(tokens.word_to_token, -1)
    number[rows, words] = torch.arange(len(rows), device=number.device)
    belongs = tokens.mask & (tokens.word_ids >= 0) & (tokens.sequence_ids == last)
    slot = number.gather(1, tokens.word_ids.clamp(0, number.shape[1] - 1)).masked_fill(~belongs, -1)
    belongs = slot >= 0  # of a word this row owns
    total = torch.zeros_like(fallback).index_add(0, slot[belongs], states[belongs])
    count = torch.bincount(slot[belongs], minlength=len(rows))[:, None]
    return torch.where(count > 0, total / count.clamp(min=1), fallback)


POOLINGS = ("cls", "last", "mean", "max", "meanmax", "concat", "concat_backward", "concat_both")


def pooled_size(hidden_size: int, how: str) -> int:
    """Width of :func:`pool`'s result."""
    return hidden_size * (3 if how.startswith("concat") else 2 if how == "meanmax" else 1)


def pool(states: Tensor, tokens: TokenBatch, how: str) -> Tensor:
    """One vector a row.

    Args:
        states: (B, S, H)
        tokens: the batch the states belong to.
        how: ``cls`` first real token; ``last`` last real token (by mask, so padding on either side is right);
            ``mean``, ``max``, ``meanmax`` over the tokens that are text; ``concat`` = [last; max; mean] over
            those (Howard & Ruder 2018, section 3.3); of states that read from the right, ``concat_backward``
            takes the first unit's, and ``concat_both`` the first unit's for the second half of H.
            Special tokens count only for ``cls`` and ``last``.

    Returns:
        (B, pooled_size(H, how))
    """
    if how == "cls":
        return _at(states, tokens.mask.int().argmax(dim=1))
    if how == "last":
        return _at(states, last_true(tokens.mask))
    # a row without any text (an empty string) falls back to its special tokens, then to all positions
    content = tokens.content
    content = torch.where(content.any(1, keepdim=True), content, tokens.mask)
    content = torch.where(content.any(1, keepdim=True), content, torch.ones_like(content))
    if how.startswith("concat") and how in POOLINGS:
        end = _end_of_reading(states, content, how)
        return torch.cat([end, _max(states, content), _mean(states, content)], -1)
    if how == "meanmax":
        return torch.cat([_mean(states, content), _max(states, content)], -1)
    if how == "mean":
        return _mean(states, content)
    if how == "max":
        return _max(states, content)
    raise ValueError(f"pooling {how!r} is not one of {', '.join(POOLINGS)}")


def _end_of_reading(states: Tensor, content: Tensor, how: str) -> Tensor:
    """(B, H): the states that have read the whole row."""
    first, last = _at(states, content.int().argmax(dim=1)), _at(states, last_true(content))
    if how == "concat_both":
        half = states.shape[-1] // 2
        return torch.cat([last[:, :half], first[:, half:]], -1)
    return first if how == "concat_backward" else last


def last_true(mask: Tensor) -> Tensor:
    """(B,) index of the last True of each row of a (B, S) mask."""
    steps = torch.arange(mask.shape[1], device=mask.device)
    return (mask * steps).argmax(dim=1)


def _at(states: Tensor, index: Tensor) -> Tensor:
    return states[torch.arange(len(states), device=states.device), index]


def _mean(states: Tensor, keep: Tensor) -> Tensor:
    weight = keep.to(states.dtype)[..., None]
    return (states * weight).sum(1) / weight.sum(1)


def _max(states: Tensor, keep: Tensor) -> Tensor:
    return states.masked_fill(~keep[..., None], float("-inf")).amax(1)
