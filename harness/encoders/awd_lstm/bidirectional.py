"""A forward and a backward AWD-LSTM over the same tokens, states concatenated: h = [h_forward; h_backward].

Both read fastai's tokens of the text, each with its own vocabulary. Rows are pooled by ``concat_both``: each
direction's state after reading the whole row, and [max; mean] over the tokens. (The paper averages the
predictions of two classifiers instead: Howard & Ruder 2018, section 3.3; that is two cells.)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from torch import nn

from harness.core.fingerprint import data_fingerprint
from harness.data.tokens import EncoderOutput, TokenBatch
from harness.encoders.awd_lstm.encoder import IDS, AwdLstmEncoder, AwdLstmTable
from harness.encoders.awd_lstm.files import direction_configs
from harness.encoders.awd_lstm.model import WordTable
from harness.encoders.awd_lstm.tokenizer import FastaiTokenizer
from harness.encoders.base import Encoder, Group
from harness.encoders.config import EncoderConfig
from harness.encoders.parameters import aligned_groups, parameters_of
from harness.errors import HarnessError

IDS_BACKWARD = "input_ids_backward"
CODE_VERSION = 1
"""Increment when the same members give different states; part of the fingerprint."""


def load_bidirectional(
    *,
    name: str,
    members: Mapping[str, EncoderConfig] | None = None,
    path: str | Path | None = None,
    random_init: bool = False,
    cache_dir: Path,
) -> BidirectionalAwdLstmEncoder:
    """Load two AWD-LSTMs as one encoder.

    Args:
        name: name in the configuration.
        members: the configurations of ``forward`` and ``backward``.
        path: unused here: the configuration gives members without a path their subfolder of it.
        random_init: random weights in both.
        cache_dir: unused.

    Raises:
        HarnessError: see :func:`harness.encoders.awd_lstm.encoder.load`; or models of different widths.
    """
    built = {
        key: config.build(random_init=random_init, cache_dir=cache_dir)
        for key, config in direction_configs(members).items()
    }
    return BidirectionalAwdLstmEncoder(built["forward"], built["backward"], name=name)


class BidirectionalAwdLstmEncoder(Encoder):
    """A forward and a backward AWD-LSTM; ``hidden_size`` is twice that of one direction.

    Args:
        forward_lm, backward_lm: the models of the two directions.
        name: name in the configuration.
    """

    tokenizer: FastaiTokenizer

    def __init__(self, forward_lm: Encoder, backward_lm: Encoder, *, name: str) -> None:
        super().__init__()
        ahead, back = forward_lm, backward_lm
        if not isinstance(ahead, AwdLstmEncoder) or not isinstance(back, AwdLstmEncoder):
            raise HarnessError(f"encoder {name}: members.forward and members.backward must be AWD-LSTMs")
        if ahead.backwards or not back.backwards:
            raise HarnessError(
                f"encoder {name}: members.forward reads from {'right' if ahead.backwards else 'left'}, "
                f"members.backward from {'right' if back.backwards else 'left'}: expected one of each, in "
                "this order (if the files do not state the direction, set "
                "encoder.members.backward.backwards=true)"
            )
        if (ahead.hidden_size, ahead.num_layers) != (back.hidden_size, back.num_layers):
            raise HarnessError(
                f"encoder {name}: states of width {ahead.hidden_size} and {back.hidden_size}: expected the "
                "same width and depth"
            )
        self.ahead, self.back = ahead, back
        self.name, self.hidden_size, self.num_layers = name, 2 * ahead.hidden_size, ahead.num_layers
        self.max_length, self.pooling, self.pairs = None, "concat_both", "separate"
        self.tokenizer = FastaiTokenizer(
            {IDS: ahead.vocabulary, IDS_BACKWARD: back.vocabulary}, word_state="last"
        )

    def forward(self, tokens: TokenBatch, *, all_layers: bool = False) -> EncoderOutput:
        """Compute the states (B, S, 2 H), zero at padding."""
        forward = self.ahead.read(tokens.inputs[IDS], tokens.mask, all_layers=all_layers)
        backward = self.back.read(tokens.inputs[IDS_BACKWARD], tokens.mask, all_layers=all_layers)
        layers = None
        if forward.hidden_states is not None and backward.hidden_states is not None:
            layers = torch.cat([forward.hidden_states, backward.hidden_states], -1)
        return EncoderOutput(
            torch.cat([forward.last_hidden_state, backward.last_hidden_state], -1), hidden_states=layers
        )

    def restrict(self, words: Iterable[str]) -> None:
        """Extend both vocabularies; see :meth:`harness.encoders.awd_lstm.encoder.AwdLstmEncoder.restrict`."""
        self.tokenizer.extend(words)
        self.ahead.fit_table()
        self.back.fit_table()

    def layer_groups(self) -> list[Group]:
        """Return both tables, then each pair of layers; extra layers of a deeper model are separate
        groups."""
        embeddings, *levels = aligned_groups([self.ahead.layer_groups(), self.back.layer_groups()])
        layers = [(f"lstm_{i}", parameters_of(level)) for i, level in enumerate(levels)]
        return [("embeddings", parameters_of(embeddings)), *layers]

    def embedding_encoder(self) -> BidirectionalAwdLstmTable:
        return BidirectionalAwdLstmTable(
            self.ahead.embedding_encoder(),
            self.back.embedding_encoder(),
            tokenizer=self.tokenizer.table(),
            name=self.name,
        )

    def fingerprint(self) -> str:
        return data_fingerprint([self.ahead.fingerprint(), self.back.fingerprint(), "both", CODE_VERSION])


class BidirectionalAwdLstmTable(Encoder):
    """Both embedding tables, concatenated.

    Args:
        forward_table, backward_table: the table of each direction.
        tokenizer: for both vocabularies, without ``xxbos``.
    """

    tokenizer: FastaiTokenizer

    def __init__(
        self,
        forward_table: AwdLstmTable,
        backward_table: AwdLstmTable,
        *,
        tokenizer: FastaiTokenizer,
        name: str,
    ) -> None:
        super().__init__()
        self.tables = nn.ModuleList([forward_table.table, backward_table.table])
        self._names = (forward_table.fingerprint(), backward_table.fingerprint())
        self.tokenizer = tokenizer
        self.name, self.hidden_size, self.num_layers = (
            name,
            forward_table.hidden_size + backward_table.hidden_size,
            0,
        )
        self.max_length, self.pooling, self.pairs = None, "mean", "separate"

    def forward(self, tokens: TokenBatch, *, all_layers: bool = False) -> EncoderOutput:
        ids = (tokens.inputs[IDS], tokens.inputs[IDS_BACKWARD])
        per_direction = [table.look_up(i) for table, i in zip(self._tables(), ids, strict=True)]
        states = torch.cat(per_direction, -1) * tokens.mask[..., None]
        return EncoderOutput(states, hidden_states=states[None] if all_layers else None)

    def restrict(self, words: Iterable[str]) -> None:
        self.tokenizer.extend(words)
        for table, vocabulary in zip(self._tables(), self.tokenizer.vocabularies.values(), strict=True):
            if vocabulary.added:
                table.add(vocabulary.added)

    def _tables(self) -> list[WordTable]:
        return [table for table in self.tables if isinstance(table, WordTable)]

    def layer_groups(self) -> list[Group]:
        return [("embeddings", list(self.parameters()))]

    def embedding_encoder(self) -> BidirectionalAwdLstmTable:
        return self

    def fingerprint(self) -> str:
        words = [data_fingerprint(v.all_words()) for v in self.tokenizer.vocabularies.values()]
        return data_fingerprint([*self._names, *words])
