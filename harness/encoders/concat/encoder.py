"""Concatenation of encoders over the same words: h_w = [h_w^1; ...; h_w^n] (Peters et al. 2018, section 3.3).

The tokens are words. Each member tokenizes the text as usual, in its own windows if the text exceeds its
maximum length; a member's vector of a word is the mean over the word's tokens. A member that deletes a word
contributes zeros. Members of different depth are aligned at the top: below its layers, a member repeats its
embeddings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from harness.core.fingerprint import data_fingerprint
from harness.data.text import Text
from harness.data.tokenizer import WindowOptions
from harness.data.tokens import EncoderOutput, TokenBatch, TokenizedWindow, word_states
from harness.encoders.base import Encoder, Group
from harness.encoders.concat.files import active_members
from harness.encoders.concat.packing import pack, unpack
from harness.encoders.config import EncoderConfig
from harness.encoders.parameters import aligned_groups, parameters_of
from harness.encoders.word_windows import WordWindow, is_truncated, word_windows
from harness.errors import HarnessError

CODE_VERSION = 1
"""Increment when the same members give different states; part of the fingerprint."""


def load(
    *,
    name: str,
    members: Mapping[str, EncoderConfig] | None = None,
    random_init: bool = False,
    cache_dir: Path,
) -> ConcatEncoder:
    """Build the members and concatenate them.

    Args:
        name: as in the configuration.
        members: encoder configurations by member name.
        random_init: random weights in every member.
        cache_dir: for tables and downloads.

    Raises:
        HarnessError: no members, or a member that cannot be built.
    """
    built = {
        key: config.build(random_init=random_init, cache_dir=cache_dir)
        for key, config in active_members(members).items()
    }
    return ConcatEncoder(built, name=name)


class ConcatTokenizer:
    """Windows of words that contain the tokens of each member; see :mod:`harness.encoders.concat.packing`."""

    def __init__(self, members: Mapping[str, Encoder]) -> None:
        # packed inputs mark their real tokens, and unpacking pads again, so any fill value works
        self.pad: Mapping[str, float] = {}
        self._members = {name: (m.tokenizer, m.max_length) for name, m in members.items()}
        self._texts_cut = 0

    def tokenize(self, texts: Sequence[Text], windowing: WindowOptions) -> list[list[TokenizedWindow]]:
        """Return windows of words; ``max_length`` counts words. A member may split such a window further."""
        word_spans: list[WordWindow] = []

        def inputs(window: WordWindow) -> dict[str, np.ndarray]:
            word_spans.append(window)
            return {}

        out = [word_windows(text, windowing, inputs) for text in texts]
        self._texts_cut += sum(is_truncated(w, text, windowing) for w, text in zip(out, texts, strict=True))
        windows = [window for windows_of_text in out for window in windows_of_text]
        self._add_inputs(windows, [span.as_text() for span in word_spans], windowing.stride)
        return out

    def tokenize_pairs(
        self, pairs: Sequence[tuple[Text, Text]], windowing: WindowOptions
    ) -> list[list[TokenizedWindow]]:
        """Not supported, since concatenated encoders share words, not separators: always an error."""
        raise HarnessError(
            "concatenated encoders encode the two texts of a pair separately: set encoder.pairs=separate"
        )

    def coverage(self) -> dict[str, float]:
        """Return the counts of each member as ``member.key``, and ``texts_cut``."""
        per_member = {name: tokenizer.coverage() for name, (tokenizer, _) in self._members.items()}
        counts = {f"{name}.{key}": n for name, report in per_member.items() for key, n in report.items()}
        return counts | {"texts_cut": float(self._texts_cut)}

    def _add_inputs(self, windows: Sequence[TokenizedWindow], texts: Sequence[Text], stride: int) -> None:
        """Tokenize each window's text with every member and add the packed tokens to the window's inputs."""
        for name, (tokenizer, max_length) in self._members.items():
            member_stride = stride if max_length is None else min(stride, max_length // 4)
            options = WindowOptions(max_length=max_length, stride=member_stride)
            tokenized = tokenizer.tokenize(texts, options)
            for window, text, member_windows in zip(windows, texts, tokenized, strict=True):
                window.inputs |= pack(member_windows, len(text), prefix=f"{name}/")


class ConcatEncoder(Encoder):
    """Concatenated encoders; ``hidden_size`` is the members' sum, ``num_layers`` their maximum."""

    tokenizer: ConcatTokenizer

    def __init__(self, members: Mapping[str, Encoder], *, name: str) -> None:
        super().__init__()
        for key in members:
            if "/" in key or "." in key:
                raise HarnessError(f"encoder.members.{key}: a member's name must not contain '/' or '.'")
        self.name = name
        self.members = nn.ModuleDict(dict(members))
        self.hidden_size = sum(m.hidden_size for m in members.values())
        self.num_layers = max(m.num_layers for m in members.values())
        self.max_length, self.pooling, self.pairs = None, "mean", "separate"
        self.tokenizer = ConcatTokenizer(members)

    def forward(self, tokens: TokenBatch, *, all_layers: bool = False) -> EncoderOutput:
        """Compute the states (B, S, H) of words; with ``all_layers`` also (L + 1, B, S, H)."""
        depth = self.num_layers + 1 if all_layers else 1
        parts = [self._member_states(name, tokens, depth) for name in self.members]
        layers = torch.cat(parts, dim=-1)  # (depth, B, S, H)
        return EncoderOutput(layers[-1], hidden_states=layers if all_layers else None)

    def _member_states(self, name: str, tokens: TokenBatch, depth: int) -> Tensor:
        """Return the word states of a member, (depth, B, S, H of the member), the top layer last."""
        member = self.members[name]
        assert isinstance(member, Encoder)
        member_tokens, source = unpack(tokens.inputs, tokens, prefix=f"{name}/", pad=member.tokenizer.pad)
        rows, width = tokens.mask.shape
        if not len(member_tokens):
            return next(self.parameters()).new_zeros(depth, rows, width, member.hidden_size)
        output = member(member_tokens, all_layers=depth > 1)
        layers = output.last_hidden_state[None] if output.hidden_states is None else output.hidden_states
        out = []
        for layer in layers[-depth:]:
            # each word belongs to one window, all other windows contribute zeros: the sum over windows
            # selects
            words = word_states(layer, member_tokens, how="mean")
            out.append(words.new_zeros(rows, width, member.hidden_size).index_add_(0, source, words))
        # a member of fewer layers repeats its embeddings below: [e, a1] for depth 4 is [e, e, e, a1]
        return torch.stack([out[0]] * (depth - len(out)) + out)

    def restrict(self, words: Iterable[str]) -> None:
        """Restrict the tables of the members that have one to the words of the data."""
        words = set(words)
        for member in self._encoders():
            restrict = getattr(member, "restrict", None)
            if callable(restrict):
                restrict(words)

    def layer_groups(self) -> list[Group]:
        """Return [0] the embeddings of all members, then their layers aligned at the top."""
        embeddings, *levels = aligned_groups([member.layer_groups() for member in self._encoders()])
        names = ["+".join(dict.fromkeys(name for name, _ in level)) for level in levels]
        layers = [(name, parameters_of(level)) for name, level in zip(names, levels, strict=True)]
        return [("embeddings", parameters_of(embeddings)), *layers]

    def embedding_encoder(self) -> ConcatEncoder:
        """Return the concatenation of the members' embedding tables."""
        tables = {n: m.embedding_encoder() for n, m in zip(self.members, self._encoders(), strict=True)}
        return ConcatEncoder(tables, name=self.name)

    def fingerprint(self) -> str:
        members = [[n, m.fingerprint()] for n, m in zip(self.members, self._encoders(), strict=True)]
        return data_fingerprint({"members": members, "version": CODE_VERSION})

    def gradient_checkpointing(self) -> None:
        for member in self._encoders():
            member.gradient_checkpointing()

    def _encoders(self) -> list[Encoder]:
        return [member for member in self.members.values() if isinstance(member, Encoder)]
