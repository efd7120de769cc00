"""A forward and a backward AWD-LSTM over the same tokens, states side by side: h = [h_forward; h_backward].

Both read fastai's tokens of the text, each numbered by its own vocabulary. A row is summarised by
``concat_both``: where each direction has read all of it, and [max; mean] over the tokens. (The paper's pair is
two classifiers whose predictions are averaged: Howard & Ruder 2018, section 3.3; that is two cells.)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from torch import nn

from harness.core.fingerprint import data_fingerprint
from harness.data.tokens import EncoderOutput, TokenBatch
from harness.encoders.awd_lstm.encoder import IDS, AwdLstmEncoder, AwdLstmTable
from harness.encoders.awd_lstm.files import the_directions
from harness.encoders.awd_lstm.tokenizer import FastaiTokenizer
from harness.encoders.base import Encoder, Group
from harness.encoders.config import EncoderConfig
from harness.errors import HarnessError

IDS_BACKWARD = "input_ids_backward"
CODE_VERSION = 1
"""Raised when the same members give other states; part of the fingerprint."""


def load_bidirectional(
    *,
    name: str,
    members: Mapping[str, EncoderConfig] | None = None,
    path: str | Path | None = None,
    random_init: bool = False,
    cache_dir: Path,
) -> BiAwdLstmEncoder:
    """Two AWD-LSTMs as one encoder.

    Args:
        name: as in the configuration.
        members: the configurations of ``forward`` and ``backward``.
        path: unused here: members without a path have been given their folder below it.
        random_init: random weights in both.
        cache_dir: unused.

    Raises:
        HarnessError: see :func:`harness.encoders.awd_lstm.encoder.load`; or models of different widths.
    """
    built = {
        key: config.build(random_init=random_init, cache_dir=cache_dir)
        for key, config in the_directions(members).items()
    }
    return BiAwdLstmEncoder(built["forward"], built["backward"], name=name)


class BiAwdLstmEncoder(Encoder):
    """See the module. ``hidden_size`` is twice a direction's.

    Args:
        ahead, back: the forward and the backward model.
        name: as in the configuration.
    """

    tokenizer: FastaiTokenizer

    def __init__(self, ahead: Encoder, back: Encoder, *, name: str) -> None:
        super().__init__()
        if not isinstance(ahead, AwdLstmEncoder) or not isinstance(back, AwdLstmEncoder):
            raise HarnessError(f"encoder {name}: members.forward and members.backward must be AWD-LSTMs")
        if ahead.backwards or not back.backwards:
            raise HarnessError(
                f"encoder {name}: members.forward reads from {'right' if ahead.backwards else 'left'}, "
                f"members.backward from {'right' if back.backwards else 'left'}: one of each is wanted, in "
                "this order (encoder.members.backward.backwards=true says so where the files do not)"
            )
        if (ahead.hidden_size, ahead.num_layers) != (back.hidden_size, back.num_layers):
            raise HarnessError(
                f"encoder {name}: states of {ahead.hidden_size} and {back.hidden_size}; two alike are wanted"
            )
        self.ahead, self.back = ahead, back
        self.name, self.hidden_size, self.num_layers = name, 2 * ahead.hidden_size, ahead.num_layers
        self.max_length, self.pooling, self.pairs = None, "concat_both", "separate"
        self.tokenizer = FastaiTokenizer(
            {IDS: ahead.vocabulary, IDS_BACKWARD: back.vocabulary}, stands="last"
        )

    def forward(self, tokens: TokenBatch, *, all_layers: bool = False) -> EncoderOutput:
        """States (B, S, 2 H), zero at padding."""
        one = self.ahead.read(tokens.inputs[IDS], tokens.mask, all_layers=all_layers)
        two = self.back.read(tokens.inputs[IDS_BACKWARD], tokens.mask, all_layers=all_layers)
        layers = None
        if one.hidden_states is not None and two.hidden_states is not None:
            layers = torch.cat([one.hidden_states, two.hidden_states], -1)
        return EncoderOutput(
            torch.cat([one.last_hidden_state, two.last_hidden_state], -1), hidden_states=layers
        )

    def restrict(self, words: Iterable[str]) -> None:
        """As :meth:`harness.encoders.awd_lstm.encoder.AwdLstmEncoder.restrict`, in both."""
        self.tokenizer.extend(words)
        self.ahead.fit_table()
        self.back.fit_table()

    def layer_groups(self) -> list[Group]:
        """Both tables, then each pair of layers; those of a deeper model stand alone at the bottom."""
        groups = [self.ahead.layer_groups(), self.back.layer_groups()]
        depth = max(len(g) for g in groups)
        out: list[Group] = [("embeddings", [p for g in groups for p in g[0][1]])]
        for level in range(1, depth):
            here = [g[at] for g in groups if (at := len(g) - depth + level) >= 1]
            out.append((f"lstm_{level - 1}", [p for _, ps in here for p in ps]))
        return out

    def embedding_encoder(self) -> BiAwdLstmTable:
        return BiAwdLstmTable(
            self.ahead.embedding_encoder(),
            self.back.embedding_encoder(),
            tokenizer=self.tokenizer.table(),
            name=self.name,
        )

    def fingerprint(self) -> str:
        return data_fingerprint([self.ahead.fingerprint(), self.back.fingerprint(), "both", CODE_VERSION])


class BiAwdLstmTable(Encoder):
    """Both tables side by side, without context.

    Args:
        ahead, back: each direction's table.
        tokenizer: numbers the tokens for both, without ``xxbos``.
    """

    tokenizer: FastaiTokenizer

    def __init__(
        self, ahead: AwdLstmTable, back: AwdLstmTable, *, tokenizer: FastaiTokenizer, name: str
    ) -> None:
        super().__init__()
        self.tables = nn.ModuleList([ahead.table, back.table])
        self._names = (ahead.fingerprint(), back.fingerprint())
        self.tokenizer = tokenizer
        self.name, self.hidden_size, self.num_layers = name, ahead.hidden_size + back.hidden_size, 0
        self.max_length, self.pooling, self.pairs = None, "mean", "separate"

    def forward(self, tokens: TokenBatch, *, all_layers: bool = False) -> EncoderOutput:
        ids = (tokens.inputs[IDS], tokens.inputs[IDS_BACKWARD])
        both = [table.look_up(i) for table, i in zip(self.tables, ids, strict=True)]  # type: ignore[operator]
        states = torch.cat(both, -1) * tokens.mask[..., None]
        return EncoderOutput(states, hidden_states=states[None] if all_layers else None)

    def restrict(self, words: Iterable[str]) -> None:
        self.tokenizer.extend(words)
        for table, vocabulary in zip(self.tables, self.tokenizer.vocabularies.values(), strict=True):
            if vocabulary.added:
                table.add(vocabulary.added)  # type: ignore[operator]

    def layer_groups(self) -> list[Group]:
        return [("embeddings", list(self.parameters()))]

    def embedding_encoder(self) -> BiAwdLstmTable:
        return self

    def fingerprint(self) -> str:
        words = [data_fingerprint(v.all_words()) for v in self.tokenizer.vocabularies.values()]
        return data_fingerprint([*self._names, *words])
