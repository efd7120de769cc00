"""Encoders over the same words side by side: h_w = [h_w^1; ...; h_w^n] (Peters et al. 2018, section 3.3).

The tokens are words. Each member tokenises the text as it always does, in windows of its own where the text is
longer than it takes; a word's vector from a member is the mean over the word's tokens. A member that deletes
a word gives zeros there. Members of different depth are aligned at the top: below its own layers a member
repeats its embeddings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from harness.core.fingerprint import data_fingerprint
from harness.core.instantiate import build
from harness.data.text import Text
from harness.data.tokenizer import WindowOptions
from harness.data.tokens import EncoderOutput, TokenBatch, TokenizedWindow, word_states
from harness.encoders.base import Encoder, Group
from harness.encoders.concat.files import the_members
from harness.encoders.concat.packing import pack, unpack
from harness.encoders.word_rows import WordWindow, cut, word_rows
from harness.errors import HarnessError

CODE_VERSION = 1
"""Raised when the same members give other states; part of the fingerprint."""


def load(
    *, name: str, members: Mapping[str, Any], random_init: bool = False, cache_dir: Path
) -> ConcatEncoder:
    """Build the members and join them.

    Args:
        name: as in the configuration.
        members: encoder configurations by member name; those that are None are left out.
        random_init: random weights in every member.
        cache_dir: tables and downloads.

    Raises:
        HarnessError: no members, or one cannot be built.
    """
    built = {
        key: build(config, random_init=random_init, cache_dir=cache_dir)
        for key, config in the_members(members).items()
    }
    return ConcatEncoder(built, name=name)


class ConcatTokenizer:
    """Rows of words that carry each member's own tokens; see :mod:`harness.encoders.concat.packing`."""

    def __init__(self, members: Mapping[str, Encoder]) -> None:
        self.pad: Mapping[
            str, float
        ] = {}  # packed inputs know their real tokens and are filled again unpacked
        self._members = {name: (m.tokenizer, m.max_length) for name, m in members.items()}
        self._texts_cut = 0

    def tokenize(self, texts: Sequence[Text], windowing: WindowOptions) -> list[list[TokenizedWindow]]:
        """Windows of words; ``max_length`` counts words. A member may cut such a window into several."""
        wins: list[WordWindow] = []

        def inputs(window: WordWindow) -> dict[str, np.ndarray]:
            wins.append(window)
            return {}

        out = [word_rows(text, windowing, inputs) for text in texts]
        self._texts_cut += sum(cut(rows, text, windowing) for rows, text in zip(out, texts, strict=True))
        self._fill([row for rows in out for row in rows], [w.cut() for w in wins], windowing.stride)
        return out

    def tokenize_pairs(
        self, pairs: Sequence[tuple[Text, Text]], windowing: WindowOptions
    ) -> list[list[TokenizedWindow]]:
        """Joined encoders share words, not separators: always an error."""
        raise HarnessError("joined encoders take the two texts of a pair apart: encoder.pairs=separate")

    def coverage(self) -> dict[str, float]:
        """Each member's report, its keys as ``member.key``, and ``texts_cut``."""
        reports = {name: tokenizer.coverage() for name, (tokenizer, _) in self._members.items()}
        joined = {f"{name}.{key}": value for name, its in reports.items() for key, value in its.items()}
        return joined | {"texts_cut": float(self._texts_cut)}

    def _fill(self, rows: Sequence[TokenizedWindow], texts: Sequence[Text], stride: int) -> None:
        for name, (tokenizer, most) in self._members.items():
            fitting = stride if most is None else min(stride, most // 4)
            windows = tokenizer.tokenize(texts, WindowOptions(max_length=most, stride=fitting))
            for row, text, its in zip(rows, texts, windows, strict=True):
                row.inputs |= pack(its, len(text), prefix=f"{name}/")


class ConcatEncoder(Encoder):
    """See the module. ``hidden_size`` is the sum of the members', ``num_layers`` the deepest member's."""

    tokenizer: ConcatTokenizer

    def __init__(self, members: Mapping[str, Encoder], *, name: str) -> None:
        super().__init__()
        for key in members:
            if "/" in key or "." in key:
                raise HarnessError(f"encoder.members.{key}: a member's name holds no '/' and no '.'")
        self.name = name
        self.members = nn.ModuleDict(dict(members))
        self.hidden_size = sum(m.hidden_size for m in members.values())
        self.num_layers = max(m.num_layers for m in members.values())
        self.max_length, self.pooling, self.pairs = None, "mean", "separate"
        self.tokenizer = ConcatTokenizer(members)

    def forward(self, tokens: TokenBatch, *, all_layers: bool = False) -> EncoderOutput:
        """States (B, S, H) of words; with ``all_layers`` (L + 1, B, S, H)."""
        depth = self.num_layers + 1 if all_layers else 1
        parts = [self._member_words(name, tokens, depth) for name in self.members]
        joined = torch.cat(parts, dim=-1)  # (depth, B, S, H)
        return EncoderOutput(joined[-1], hidden_states=joined if all_layers else None)

    def _member_words(self, name: str, tokens: TokenBatch, depth: int) -> Tensor:
        """(depth, B, S, H of the member), the top layer last."""
        member: Encoder = self.members[name]  # type: ignore[assignment]
        own, source = unpack(tokens.inputs, tokens, prefix=f"{name}/", pad=member.tokenizer.pad)
        rows, width = tokens.mask.shape
        if not len(own):
            return next(self.parameters()).new_zeros(depth, rows, width, member.hidden_size)
        encoded = member(own, all_layers=depth > 1)
        layers = encoded.last_hidden_state[None] if encoded.hidden_states is None else encoded.hidden_states
        out = []
        for layer in layers[-depth:]:
            words = word_states(layer, own, how="mean")
            out.append(words.new_zeros(rows, width, member.hidden_size).index_add_(0, source, words))
        return torch.stack([out[0]] * (depth - len(out)) + out)

    def restrict(self, words: Iterable[str]) -> None:
        """Shrink the tables of those members that have one to the words of the data."""
        words = set(words)
        for member in self._list():
            shrink = getattr(member, "restrict", None)
            if callable(shrink):
                shrink(words)

    def layer_groups(self) -> list[Group]:
        """[0] all members' embeddings, then their layers aligned at the top."""
        groups = [m.layer_groups() for m in self._list()]
        depth = max(len(g) for g in groups)
        out: list[Group] = [("embeddings", [p for g in groups for p in g[0][1]])]
        for level in range(1, depth):
            here = [g[at] for g in groups if (at := len(g) - depth + level) >= 1]
            out.append(("+".join(dict.fromkeys(n for n, _ in here)), [p for _, ps in here for p in ps]))
        return out

    def embedding_encoder(self) -> ConcatEncoder:
        """The members' embedding tables, joined."""
        tables = {name: m.embedding_encoder() for name, m in zip(self.members, self._list(), strict=True)}
        return ConcatEncoder(tables, name=self.name)

    def fingerprint(self) -> str:
        members = [[n, m.fingerprint()] for n, m in zip(self.members, self._list(), strict=True)]
        return data_fingerprint({"members": members, "version": CODE_VERSION})

    def gradient_checkpointing(self) -> None:
        for member in self._list():
            member.gradient_checkpointing()

    def _list(self) -> list[Encoder]:
        return list(self.members.values())  # type: ignore[arg-type]
