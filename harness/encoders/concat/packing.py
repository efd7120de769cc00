"""Pack the tokens of one encoder into the rows of another whose tokens are words.

A member encoder tokenizes the W words of a row into N tokens, special tokens included, in one or more
windows. Its arrays are packed into W rows of k = ceil(N / W) tokens each, so that they are padded, moved and
cached like any other input whose first axis is the row's tokens. :func:`unpack` converts a padded batch of
them back into the member's :class:`TokenBatch`, one row per window.

===============  ========  =============================================================================
array            shape     meaning
===============  ========  =============================================================================
``input/<key>``  (W,k,..)  the member's inputs, token after token
``token``        (W,k,6)   word, first and last character, sequence, window, 1 for real tokens
``word``         (W,2)     window that owns the word, and the word's token there (-1 = none)
===============  ========  =============================================================================

Example: W = 2 words and the tokens [CLS] un ##do it [SEP], N = 5, give k = 3: row 0 = [CLS] un ##do, row 1 =
    it [SEP]
and one place that is not real.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from harness.data.tokens import TokenBatch, TokenizedWindow

_WORD, _START, _END, _SEQUENCE, _WINDOW, _REAL = range(6)


def pack(rows: Sequence[TokenizedWindow], words: int, *, prefix: str) -> dict[str, np.ndarray]:
    """Pack a member's windows over a text of ``words`` words; see the module docstring for the arrays.

    Args:
        rows: the member's windows; all their ``word_to_token`` have length ``words``.
        words: W, number of words of the text.
        prefix: prepended to every key.
    """
    fields = np.concatenate([_fields(row, number) for number, row in enumerate(rows)])
    depth = max(1, -(-len(fields) // max(1, words)))
    packed = {"token": _fold(fields, words, depth)}
    for key in rows[0].inputs:
        packed[f"input/{key}"] = _fold(np.concatenate([r.inputs[key] for r in rows]), words, depth)
    # windows 0 and 1 of 3 words: word_to_token [[1, 2, -1], [-1, -1, 1]] gives window [0, 0, 1], token [1, 2,
    # 1]
    word_to_token = np.stack([row.word_to_token for row in rows])  # (windows, W)
    window = (word_to_token >= 0).argmax(axis=0)
    packed["word"] = np.stack([window, word_to_token[window, np.arange(words)]], axis=1)
    return {prefix + key: value for key, value in packed.items()}


def _fields(row: TokenizedWindow, window: int) -> np.ndarray:
    one = np.ones(len(row), dtype=np.int64)
    return np.stack([row.word_ids, *row.offsets.T, row.sequence_ids, one * window, one], axis=1).astype(
        np.int64
    )


def _fold(array: np.ndarray, words: int, depth: int) -> np.ndarray:
    out = np.zeros((words * depth, *array.shape[1:]), dtype=array.dtype)
    out[: len(array)] = array[: words * depth]  # a text without words has no room for special tokens
    return out.reshape(words, depth, *array.shape[1:])


def unpack(
    inputs: Mapping[str, Tensor], tokens: TokenBatch, *, prefix: str, pad: Mapping[str, float]
) -> tuple[TokenBatch, Tensor]:
    """Restore the member's batch.

    Args:
        inputs: inputs of the padded batch.
        tokens: the padded batch, B rows of words.
        prefix: the prefix given to :func:`pack`.
        pad: the member's fill values.

    Returns:
        The member's tokens, one row per window, which refer to the words of the batch's row; and (windows,)
        Long, the row of the batch to which each window belongs. A batch without words has no windows.
    """
    fields = inputs[f"{prefix}token"].flatten(1, 2)  # (B, W * k, 6)
    real = fields[..., _REAL] > 0
    batch_row = real.nonzero()[:, 0]
    flat = fields[real]  # (N, 6), in the order of rows, windows and tokens
    # number the (row, window) pairs: rows [0, 0, 0, 1, 1], windows [0, 0, 1, 0, 0] give the keys [0, 0, 1, 2,
    # 2], the output rows [0, 0, 1, 2, 2] with counts [2, 1, 2], and the places [0, 1, 0, 0, 1] inside them
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
    start = f"{prefix}input/"
    member = {k[len(start) :]: v.flatten(1, 2)[real] for k, v in inputs.items() if k.startswith(start)}
    window = flat[first, _WINDOW] if len(counts) else batch_row
    return (
        TokenBatch(
            inputs={k: spread(v, pad.get(k, 0)) for k, v in member.items()},
            mask=spread(real[real], 0),
            word_ids=spread(flat[:, _WORD], -1),
            offsets=spread(flat[:, [_START, _END]], 0),
            sequence_ids=spread(flat[:, _SEQUENCE], -1),
            word_to_token=_owned(inputs[f"{prefix}word"][source], tokens.mask[source], window),
            example=tokens.example[source],
            window=window,
        ),
        source,
    )


def _owned(word: Tensor, mask: Tensor, window: Tensor) -> Tensor:
    """Return the token of each word that the window owns, otherwise -1, (windows, W) Long."""
    owned = mask & (word[..., 0] == window[:, None])
    return torch.where(owned, word[..., 1], -1)
