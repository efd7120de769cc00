"""Carrying one encoder's tokens inside the rows of another whose tokens are words.

A member encoder cuts the W words of a row into N tokens of its own, special ones included, over one or more
windows. Its arrays are packed into W rows of k = ceil(N / W) tokens each, so that they are padded, moved and
cached like any other input whose first axis is the row's tokens. :func:`unpack` turns a padded batch of them
back into the member's own :class:`TokenBatch`, one row a window.

=============  ========  ===============================================================================
array          shape     meaning
=============  ========  ===============================================================================
``u/<key>``    (W,k,..)  the member's inputs, token after token
``token``       (W,k,6)   word, first and last character, segment, window, 1 where there is a token
``word``       (W,2)     window that owns the word and its token there; token -1 when it has none
=============  ========  ===============================================================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from harness.data.tokens import TokenBatch, TokenizedWindow

_WORD, _START, _END, _SEGMENT, _WINDOW, _REAL = range(6)


def pack(rows: Sequence[TokenizedWindow], words: int, *, prefix: str) -> dict[str, np.ndarray]:
    """Pack a member's windows over a text of ``words`` words; see the module for the arrays.

    Args:
        rows: the member's windows; all their ``word_to_token`` have length ``words``.
        words: W, words of the text.
        prefix: put before every key.
    """
    fields = np.concatenate([_fields(row, number) for number, row in enumerate(rows)])
    depth = max(1, -(-len(fields) // max(1, words)))
    packed = {"unit": _fold(fields, words, depth)}
    for key in rows[0].inputs:
        packed[f"u/{key}"] = _fold(np.concatenate([r.inputs[key] for r in rows]), words, depth)
    owner = np.stack([row.word_to_token for row in rows])  # (windows, W)
    window = (owner >= 0).argmax(axis=0)
    packed["word"] = np.stack([window, owner[window, np.arange(words)]], axis=1)
    return {prefix + key: value for key, value in packed.items()}


def _fields(row: TokenizedWindow, window: int) -> np.ndarray:
    one = np.ones(len(row), dtype=np.int64)
    return np.stack([row.word_ids, *row.offsets.T, row.sequence_ids, one * window, one], axis=1).astype(
        np.int64
    )


def _fold(array: np.ndarray, words: int, depth: int) -> np.ndarray:
    out = np.zeros((words * depth, *array.shape[1:]), dtype=array.dtype)
    out[: len(array)] = array[: words * depth]  # a text without words has no place for special tokens
    return out.reshape(words, depth, *array.shape[1:])


def unpack(
    inputs: Mapping[str, Tensor], tokens: TokenBatch, *, prefix: str, pad: Mapping[str, float]
) -> tuple[TokenBatch, Tensor]:
    """The member's own batch.

    Args:
        inputs: the padded batch's inputs.
        tokens: that batch, B rows of words.
        prefix: as given to :func:`pack`.
        pad: the member's fill values.

    Returns:
        the member's tokens, one row a window, with the words of the batch's row as its words; and (windows,)
        Long, the row of the batch each belongs to. There are no windows when the batch has no words.
    """
    fields = inputs[f"{prefix}unit"].flatten(1, 2)  # (B, W * k, 6)
    real = fields[..., _REAL] > 0
    batch_row = real.nonzero()[:, 0]
    flat = fields[real]  # (N, 6), in the order of rows, windows and tokens
    key = batch_row * (int(flat[:, _WINDOW].max()) + 1 if len(flat) else 1) + flat[:, _WINDOW]
    _, row, counts = torch.unique_consecutive(key, return_inverse=True, return_counts=True)
    first = counts.cumsum(0) - counts
    place = torch.arange(len(flat), device=flat.device) - first[row]
    shape = (len(counts), int(counts.max()) if len(counts) else 1)

    def spread(values: Tensor, fill: float) -> Tensor:
        out = values.new_full((*shape, *values.shape[1:]), fill)
        out[row, place] = values
        return out

    source = batch_row[first] if len(counts) else batch_row
    start = f"{prefix}u/"
    member = {k[len(start) :]: v.flatten(1, 2)[real] for k, v in inputs.items() if k.startswith(start)}
    window = flat[first, _WINDOW] if len(counts) else batch_row
    return (
        TokenBatch(
            inputs={k: spread(v, pad.get(k, 0)) for k, v in member.items()},
            mask=spread(real[real], 0),
            word_ids=spread(flat[:, _WORD], -1),
            offsets=spread(flat[:, [_START, _END]], 0),
            sequence_ids=spread(flat[:, _SEGMENT], -1),
            word_to_token=_owned(inputs[f"{prefix}word"][source], tokens.mask[source], window),
            example=tokens.example[source],
            window=window,
        ),
        source,
    )


def _owned(word: Tensor, mask: Tensor, window: Tensor) -> Tensor:
    """(windows, W) Long: the token of each word the window owns, else -1."""
    mine = mask & (word[..., 0] == window[:, None])
    return torch.where(mine, word[..., 1], -1)
