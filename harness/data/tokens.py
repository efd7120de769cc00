"""Tokens of an encoder, aligned with the words and characters of the text.

An encoder's tokenizer converts a text to one or more :class:`TokenizedWindow` (several when a long text is
split into overlapping windows); :meth:`TokenBatch.collate` pads rows to a batch. Bodies and heads read only
:class:`TokenBatch` and the encoder's states, so one head works with all encoders.

Invariants, checked by the contract tests:

- ``mask`` is True for every real token, special tokens included. It is derived from the row's length, never
  from a pad id.
- each word of a text is *owned* by exactly one window: the one with the most context around it
  (``word_to_token`` is -1 in the others). So each word is trained on and predicted once.
- ``word_to_token[w]`` is the first token of word ``w`` (in a recurrent encoder the token after which it has
  read the word, never a marker such as ``xxmaj``); where the tokenizer merged the word with its neighbour it
  is the token that covers the word's first character; where it deleted the word it is -1 in all windows.

Example, "unaffable cat" with word pieces::

    tokens         [CLS]  un  ##aff  ##able  cat  [SEP]
    word_ids          -1   0      0       0    1     -1
    sequence_ids      -1   0      0       0    0     -1
    word_to_token  [1, 4]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor


@dataclass(slots=True)
class TokenizedWindow:
    """One unpadded sequence of S tokens, as numpy arrays.

    Attributes:
        inputs: encoder-private arrays whose first axis is S: ``input_ids`` (S,), ``characters`` (S, 50), ...
        word_ids: (S,) int; index of the token's word in its text, -1 for special tokens.
        offsets: (S, 2) int; character span in the token's text, without leading blanks; (0, 0) if special.
        sequence_ids: (S,) int; 0 first text or question, 1 second text or context, -1 special.
        word_to_token: (W,) int; for each word of the row's last text the token that represents it, -1 when
            this window does not own the word.
        window: index of the window within its text.
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
    """One padded batch of B rows and S tokens; see :class:`TokenizedWindow` for the fields.

    ``word_to_token`` is (B, W) Long with W the maximum number of words; ``example`` (B,) is the row of the
    data set and ``window`` (B,) the window within its text.
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
        """Pad ``rows`` on the right to the longest one.

        Args:
            rows: at least one row.
            pad: fill value of each encoder-private input (0 where it is not listed).
            example: data set row of each row; 0, 1, 2, ... by default.
        """
        pad = pad or {}
        lengths = torch.tensor([len(r) for r in rows])
        # at least 1, so that a batch of empty texts has no tensor of width 0
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
        """(B, S) Bool: special tokens ([CLS], [SEP], <bos>, delimiters)."""
        return self.mask & (self.sequence_ids < 0)

    @property
    def content(self) -> Tensor:
        """(B, S) Bool: tokens of the text."""
        return self.mask & (self.sequence_ids >= 0)

    def __len__(self) -> int:
        return len(self.mask)


def pad_stack(arrays: Sequence[np.ndarray], width: int, value: float) -> Tensor:
    """Stack arrays to (B, width, ...), padded with ``value`` to ``width`` on the first axis and to the
    largest size on the others."""
    # arrays (2, 3) and (4, 5) with width 4: inner is [5], the result (2, 4, 5)
    inner = [max(sizes) for sizes in zip(*(a.shape[1:] for a in arrays), strict=True)]
    out = np.full((len(arrays), width, *inner), value, dtype=arrays[0].dtype)
    for i, a in enumerate(arrays):
        index: tuple[int | slice, ...] = (i, *(slice(size) for size in a.shape))
        out[index] = a
    return torch.from_numpy(out)


@dataclass(slots=True)
class EncoderOutput:
    """What an encoder returns for one batch of tokens.

    Attributes:
        last_hidden_state: (B, S, H), the top layer (or the output of a scalar mix).
        hidden_states: (K, B, S, H), only when requested: all L + 1 layers bottom to top, [0] the embeddings.
        pooler_output: (B, H), the encoder's pretrained summary of the row (BERT's pooler), if it has one.
    """

    last_hidden_state: Tensor
    hidden_states: Tensor | None = field(default=None)
    pooler_output: Tensor | None = field(default=None)


def word_states(states: Tensor, tokens: TokenBatch, *, how: str = "first") -> Tensor:
    """States of the words that each row owns, padded; see :func:`owned_word_states` for long texts.

    Args:
        states: (B, S, H)
        tokens: the batch the states belong to.
        how: ``first`` (the word's first token) or ``mean`` (over its tokens).

    Returns:
        (B, W, H); zeros for words that have no token in this row.
    """
    rows, words, vectors = owned_word_states(states, tokens, how=how)
    # index_put() needs the same dtype on both sides
    out = states.new_zeros(*tokens.word_to_token.shape, states.shape[-1]).to(vectors.dtype)
    return out.index_put((rows, words), vectors)


def owned_word_states(
    states: Tensor, tokens: TokenBatch, *, how: str = "first"
) -> tuple[Tensor, Tensor, Tensor]:
    """States of the N words that the rows own; the cost is linear in the number of tokens.

    Example: word_to_token [[1, 3, -1], [-1, -1, 2]] are two windows of one text. The first owns words 0 and
        1,
    the second word 2, so rows are [0, 0, 1], words [0, 1, 2], and the states those of tokens 1, 3 and 2.

    Args:
        states, tokens, how: as in :func:`word_states`.

    Returns:
        row (N,) and word (N,) of each, in this order, and their states (N, H).
    """
    # -1: another window owns the word, or the tokenizer deleted it
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
    """(N, H): mean over the tokens of each owned word, ``fallback`` (N, H) where it shares its token.

    Example: a row with word_ids [-1, 0, 0, 1, -1] owns words 0 and 1, which have the numbers n = 0 and 1:

        slot   [-1, 0, 0, 1, -1]         number of each token's word
        total  [h_1 + h_2, h_3]          index_add over the slots
        count  [2, 1]
    """
    # (B, 1): words are those of the last text; a question numbers its words separately
    last = tokens.sequence_ids.amax(dim=1, keepdim=True)
    # (B, W): n of each owned word, -1 for others
    number = torch.full_like(tokens.word_to_token, -1)
    number[rows, words] = torch.arange(len(rows), device=number.device)
    belongs = tokens.mask & (tokens.word_ids >= 0) & (tokens.sequence_ids == last)
    # word_ids of special tokens (-1) and of a question (maybe >= W) are clamped to valid indices, then masked
    slot = number.gather(1, tokens.word_ids.clamp(0, number.shape[1] - 1)).masked_fill(~belongs, -1)
    belongs = slot >= 0  # not of a word that another window owns
    total = torch.zeros_like(fallback).index_add(0, slot[belongs], states[belongs])
    count = torch.bincount(slot[belongs], minlength=len(rows))[:, None]
    # a word that was merged with its neighbour has no token; the clamp avoids 0 / 0
    return torch.where(count > 0, total / count.clamp(min=1), fallback)


POOLINGS = ("cls", "last", "mean", "max", "meanmax", "concat", "concat_backward", "concat_both")


def pooled_size(hidden_size: int, how: str) -> int:
    """Width of :func:`pool`'s result."""
    return hidden_size * (3 if how.startswith("concat") else 2 if how == "meanmax" else 1)


def pool(states: Tensor, tokens: TokenBatch, how: str) -> Tensor:
    """Summarise each row by one vector.

    Args:
        states: (B, S, H)
        tokens: the batch the states belong to.
        how: ``cls`` first real token; ``last`` last real token (by mask, for padding on either side);
            ``mean``, ``max``, ``meanmax`` over the tokens of the text; ``concat`` = [last; max; mean] over
            those (Howard & Ruder 2018, section 3.3); ``concat_backward`` is ``concat`` for states of a
            backward language model, whose final state is that of the first token; ``concat_both`` is for the
            concatenation of a forward and a backward model, each with half of H. Special tokens count only
            for ``cls`` and ``last``.

    Returns:
        (B, pooled_size(H, how))
    """
    if how == "cls":
        # argmax returns the first of equal maxima, hence the first True
        return _at(states, tokens.mask.int().argmax(dim=1))
    if how == "last":
        return _at(states, last_true(tokens.mask))
    # an empty text falls back to its special tokens, an empty row to all positions, so that no mean is 0 / 0
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
    """(B, H): the states after the whole row has been read."""
    first, last = _at(states, content.int().argmax(dim=1)), _at(states, last_true(content))
    if how == "concat_both":
        half = states.shape[-1] // 2
        # the forward half has read the row at the last token, the backward half at the first
        return torch.cat([last[:, :half], first[:, half:]], -1)
    return first if how == "concat_backward" else last


def last_true(mask: Tensor) -> Tensor:
    """(B,) index of the last True in each row of a (B, S) mask.

    Example: [True, True, False] times positions [0, 1, 2] is [0, 1, 0], whose argmax is 1.
    """
    steps = torch.arange(mask.shape[1], device=mask.device)
    return (mask * steps).argmax(dim=1)


def _at(states: Tensor, index: Tensor) -> Tensor:
    return states[torch.arange(len(states), device=states.device), index]


def _mean(states: Tensor, keep: Tensor) -> Tensor:
    weight = keep.to(states.dtype)[..., None]
    return (states * weight).sum(1) / weight.sum(1)


def _max(states: Tensor, keep: Tensor) -> Tensor:
    return states.masked_fill(~keep[..., None], float("-inf")).amax(1)
