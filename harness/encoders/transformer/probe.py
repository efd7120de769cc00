"""Check an encoder on a few tokens when it is loaded: what must not change its states, and does it?

Three things that differ between architectures are compared instead of being assumed: padding and other
examples of a batch must not change a row; positions and segments given to the model must be those that it
would use by itself; and rows can be as long as the table of positions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from harness.data.tokens import TokenBatch, TokenizedWindow
from harness.encoders.transformer.structure import (
    LayerOrder,
    Structure,
    distinct_ids,
    embedding_table,
    reading_direction,
    structure_of,
)
from harness.encoders.transformer.template import ID, TYPE
from harness.errors import HarnessError

if TYPE_CHECKING:
    from harness.encoders.transformer.encoder import TransformerEncoder

TOLERANCE = 3e-4
"""Largest change of a state, as a share of its norm, that is taken for rounding."""
SHORT, LONG = 4, 11
"""Tokens of text in the two rows."""
OWN_SEGMENTS = ("xlnet",)
"""Architectures whose segments are part of the input format, although the model works without them."""


@torch.no_grad()
def probe(encoder: TransformerEncoder, label: str) -> Structure:
    """Run ``encoder`` on a few rows in eval mode and set what it needs: ``explicit_positions``,
    ``equal_lengths`` and ``max_length``.

    Args:
        encoder: the encoder.
        label: what it is, for messages.

    Returns:
        its layers, and whether it is causal.

    Raises:
        HarnessError: it cannot be run on such rows, or its states depend on other rows of the
        batch, or differ
            from run to run.
    """
    training = encoder.training
    encoder.eval()
    try:
        with torch.random.fork_rng(devices=[]):
            structure = _trace(encoder, label)
            short, long = _rows(encoder)
            alone = _check_inputs(encoder, short, label)
            _check_neighbours(encoder, alone, short, long, label)
        return structure
    except HarnessError:
        raise
    except Exception as e:
        reason = (str(e).strip().splitlines() or [""])[0][:200]
        raise HarnessError(
            f"{label} cannot be run on a row of a few tokens ({type(e).__name__}: {reason})"
        ) from e
    finally:
        encoder.train(training)


def _trace(encoder: TransformerEncoder, label: str) -> Structure:
    table = embedding_table(encoder.model)
    ids = distinct_ids(table, 3)
    if len(ids) < 3:
        raise HarnessError(f"{label} has the same vector for all tokens: its weights are damaged")
    a, b, c = ids
    rows = [_window([first, second], [0, 0]) for first, second in ((a, b), (a, c), (c, b))]
    order = LayerOrder(encoder)
    with order.observed():
        states, layers = encoder.raw_layers(_batch(encoder, *rows))
    if not bool(states.isfinite().all()):
        raise HarnessError(
            f"{label}: its weights give numbers that are not finite; the checkpoint is damaged"
        )
    if reading_direction(states) == "none":
        raise HarnessError(
            f"{label}: its states do not depend on other tokens: it is not a contextual encoder"
        )
    return structure_of(order, states, layers, encoder)


def _rows(encoder: TransformerEncoder) -> tuple[TokenizedWindow, TokenizedWindow]:
    """Return a short and a long row, between the special tokens of the tokenizer's template."""
    tokenizer = encoder.tokenizer
    ids = distinct_ids(
        embedding_table(encoder.model),
        LONG,
        avoid=(*tokenizer.single.ids, tokenizer.pad_id, tokenizer.unknown or 0),
    )
    out = []
    for length in (SHORT, LONG):
        block = np.zeros((length, 6), dtype=np.int64)
        block[:, ID] = np.resize(ids, length)
        filled, _ = tokenizer.single.fill([block])
        out.append(_window(filled[:, ID], filled[:, TYPE]))
    return out[0], out[1]


def _check_inputs(encoder: TransformerEncoder, row: TokenizedWindow, label: str) -> Tensor:
    """Compare positions and segments with the model's defaults; return the states of ``row``, (S, H)."""
    batch = _batch(encoder, row)
    with _EmbeddingCalls(len(row)) as calls:
        default = encoder.model(
            input_ids=batch.inputs["input_ids"], attention_mask=batch.mask.long(), return_dict=True
        ).last_hidden_state[0]
    limits = [n for n in (encoder.max_length, *calls.limits) if n is not None]
    encoder.max_length = encoder.tokenizer.max_length = min(limits) if limits else None
    types = encoder.tokenizer.types
    own = encoder.model.config.model_type in OWN_SEGMENTS
    encoder.tokenizer.types = types and not own
    batch = _batch(encoder, row)
    if not _equal(encoder(batch).last_hidden_state[0], default):
        encoder.explicit_positions = False
        if not _equal(encoder(batch).last_hidden_state[0], default):
            raise HarnessError(
                f"{label}: its states differ from those of transformers' {type(encoder.model).__name__} with "
                "default positions and segments, or from run to run: not supported"
            )
    encoder.tokenizer.types = types
    out: Tensor = encoder(_batch(encoder, row)).last_hidden_state[0]
    return out


def _check_neighbours(
    encoder: TransformerEncoder, alone: Tensor, short: TokenizedWindow, long: TokenizedWindow, label: str
) -> None:
    """Compare a padded row, and one beside a row of the same length, with the row alone."""
    n = len(short)

    def unchanged(*rows: TokenizedWindow) -> bool:
        return _equal(encoder(_batch(encoder, *rows)).last_hidden_state[0, :n], alone)

    if unchanged(short, long):
        return
    encoder.equal_lengths = True
    if not unchanged(short, _window(short.inputs["input_ids"][::-1].copy(), [0] * n)):
        raise HarnessError(
            f"{label}: the states of a text depend on the other texts of the batch: not supported"
        )


def _equal(states: Tensor, reference: Tensor) -> bool:
    """Return whether (S, H) states are equal up to rounding."""
    if not bool(torch.isfinite(reference).all()):
        return bool(torch.equal(states.isfinite(), reference.isfinite()))
    return bool(((states - reference).norm(dim=-1) <= TOLERANCE * reference.norm(dim=-1)).all())


def _window(ids: Any, types: Any) -> TokenizedWindow:
    n = len(ids)
    none = np.full(n, -1, dtype=np.int64)
    inputs = {"input_ids": np.asarray(ids, np.int64), "token_type_ids": np.asarray(types, np.int64)}
    return TokenizedWindow(
        inputs=inputs,
        word_ids=none,
        offsets=np.zeros((n, 2), dtype=np.int64),
        sequence_ids=none,
        word_to_token=none[:0],
        window=0,
    )


def _batch(encoder: TransformerEncoder, *rows: TokenizedWindow) -> TokenBatch:
    device = embedding_table(encoder.model).device
    batch = TokenBatch.collate(list(rows), pad=encoder.tokenizer.pad).to(device)
    if not encoder.tokenizer.types:
        del batch.inputs["token_type_ids"]
    return batch


class _EmbeddingCalls(TorchFunctionMode):
    """Observes look-ups in tables of positions: rows r, r + 1, ... for the tokens of a row.

    Attributes:
        limits: for each such table, how many rows it has from r on.
    """

    def __init__(self, length: int) -> None:
        super().__init__()
        self.limits: list[int] = []
        self._length = length

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func is F.embedding and len(args) > 1 and args[0].shape[-1:].numel() >= self._length:
            rows = args[0].reshape(-1, args[0].shape[-1])[0, : self._length].tolist()
            if rows == list(range(rows[0], rows[0] + self._length)):
                self.limits.append(len(args[1]) - rows[0])
        return func(*args, **(kwargs or {}))
