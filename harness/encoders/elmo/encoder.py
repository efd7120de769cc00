"""ELMo (Peters et al. 2018, "Deep contextualized word representations"): a biLM over characters of words.

With ``x_k`` the context-free vector of word k (:mod:`harness.encoders.elmo.characters`) and ``f^l``, ``b^l``
the forward and backward LSTM layers (:mod:`harness.encoders.elmo.lstm`), the L + 1 layers of word k are ::

    h_k^0 = [x_k; x_k]
    h_k^l = [f^l_k; b^l_k],   l = 1 .. L

(section 3.2), made to one by a learnt mix (equation 1: ``encoder.layers=mix``). One token a word; the marks of
a sentence's begin and end are read, but are no tokens.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from harness.core.fingerprint import data_fingerprint
from harness.data.tokens import EncoderOutput, TokenBatch
from harness.encoders.base import Encoder, Group
from harness.encoders.elmo.characters import CharacterEncoder, ElmoTokenizer, boundary_ids
from harness.encoders.elmo.files import OPTIONS, PROJECTION, WEIGHTS, ElmoOptions, elmo_files, read_options
from harness.encoders.elmo.lstm import BiLSTMLayer, Packing, State
from harness.encoders.elmo.weights import read_weights, write
from harness.errors import HarnessError

CODE_VERSION = 1
"""Raised when the same files and options give other states; part of the fingerprint."""


def load(
    *,
    name: str,
    path: str | Path | None = None,
    random_init: bool = False,
    cache_dir: Path,
    files: Mapping[str, Any] | None = None,
    url: Mapping[str, Any] | None = None,
    dropout: float | None = None,
) -> ElmoEncoder:
    """Read a published model.

    Args:
        name: as in the configuration.
        path: folder of ``options.json`` and one ``*weights*.hdf5``.
        random_init: the same architecture, its weights drawn.
        cache_dir: downloads.
        files: ``options`` and ``weights`` where they lie apart.
        url: where ``options`` and ``weights`` are fetched from without path and files.
        dropout: in training, of each LSTM layer's input and of the states; None = as ``options.json`` says.

    Raises:
        HarnessError: files that are missing, that cannot be read, or that are not of one model.
    """
    found = elmo_files({"name": name, "path": path, "files": files, "url": url}, cache_dir)
    options = read_options(found[OPTIONS])
    number = isinstance(dropout, int | float) and not isinstance(dropout, bool)
    if dropout is not None and not (number and 0 <= dropout < 1):
        raise HarnessError(f"encoder.dropout={dropout!r}: a number in [0, 1) is wanted")
    rate = options.dropout if dropout is None else float(dropout)
    weights = None if random_init else read_weights(found[WEIGHTS], options)
    return ElmoEncoder(options, weights, name=name, dropout=rate)


class ElmoEncoder(Encoder):
    """See the module. States at padding are zero.

    Args:
        options: the architecture.
        weights: as published, by key; None = drawn from torch's global generator.
        name: as in the configuration.
        dropout: of each LSTM layer's input and of the states, in training only.

    Attributes:
        stateful: row k of a batch starts from the state in which row k of the batch before it ended, each
            layer and direction on its own, as the original program does. Then the same sentence gives another
            answer the next time. Rows that no batch before had start from zeros; rows without words leave
            their state as it is; no gradient flows from one batch to the next.
    """

    tokenizer: ElmoTokenizer

    def __init__(
        self, options: ElmoOptions, weights: Mapping[str, Any] | None, *, name: str, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.name, self.hidden_size, self.num_layers = name, 2 * options.projection_dim, options.num_layers
        self.max_length, self.pooling, self.pairs = None, "mean", "separate"
        self.options, self.dropout, self.stateful = options, dropout, False
        self.tokenizer = ElmoTokenizer(length=options.max_characters)
        projected = weights is None or PROJECTION in weights
        self.characters = CharacterEncoder(options, projected=projected)
        numbers = range(options.num_layers)
        self.layers = nn.ModuleList(
            BiLSTMLayer(options, skip=options.use_skip_connections and n > 0) for n in numbers
        )
        self._boundaries = torch.from_numpy(boundary_ids(length=options.max_characters))
        self._states: list[State] = []
        self._fill(weights)

    def forward(self, tokens: TokenBatch, *, all_layers: bool = False) -> EncoderOutput:
        """States (B, S, 2 P) of the words; with ``all_layers`` (L + 1, B, S, 2 P), [0] context-free."""
        mask = tokens.mask
        words = tokens.inputs["characters"][mask]
        boundaries = self._boundaries.to(words.device)
        vectors, number = self.characters(torch.cat([words, boundaries.to(words.dtype)]))
        packing = Packing.of(mask)
        embedded = vectors[number[packing.source]]  # (2, N, P)
        context_free = vectors[number[: len(words)]]
        found = [torch.cat([context_free, context_free], dim=1)] if all_layers else []
        for depth, x in enumerate(self.read(embedded, packing)):
            if all_layers or depth == self.num_layers - 1:
                out = torch.cat([x[0][packing.place[0]], x[1][packing.place[1]]], dim=1)
                found.append(self._drop(out) if depth == self.num_layers - 1 else out)
        spread = [_spread(states, mask) for states in found]
        return EncoderOutput(spread[-1], hidden_states=torch.stack(spread) if all_layers else None)

    def read(self, x: Tensor, packing: Packing) -> Iterator[Tensor]:
        """The LSTM layers over packed tokens, one after the other.

        Args:
            x: (2, N, P), the tokens of both directions.
            packing: where they lie.

        Yields:
            (2, N, P), packed as ``x`` is.
        """
        for depth, layer in enumerate(self._lstms()):
            x, final = layer(self._drop(x), packing.sizes, self._start(depth, packing.rows, x))
            self._keep(depth, packing.rows, final)
            yield x

    def reset(self) -> None:
        """Forget the states of the batches before (``stateful``)."""
        self._states = []

    def layer_groups(self) -> list[Group]:
        """[0] the character layer, then each LSTM layer of both directions."""
        layers = [(f"layer_{n}", list(m.parameters())) for n, m in enumerate(self.layers, start=1)]
        return [("embeddings", list(self.characters.parameters())), *layers]

    def embedding_encoder(self) -> ElmoCharacters:
        """The context-free character layer."""
        return ElmoCharacters(self.characters, self.tokenizer, name=self.name)

    def fingerprint(self) -> str:
        return _fingerprint(self, self.options)

    def save(self, folder: Path, *, half: bool = False) -> None:
        """Write the weights as they are now in the published format; :func:`load` reads them.

        Args:
            folder: gets ``options.json`` and ``weights.hdf5``.
            half: in half precision; they are float32 again when they are read.
        """
        weights = self.characters.published()
        for number, layer in enumerate(self._lstms()):
            weights |= layer.published(number)
        write(folder, self.options, weights, half=half)

    def _fill(self, weights: Mapping[str, Any] | None) -> None:
        if weights is None:
            self.characters.draw()
        else:
            self.characters.assign(weights)
        for number, layer in enumerate(self._lstms()):
            if weights is None:
                layer.draw()
            else:
                layer.assign(weights, number)

    def _lstms(self) -> list[BiLSTMLayer]:
        return list(self.layers)  # type: ignore[arg-type]

    def _drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout, self.training) if self.dropout else x

    def _start(self, depth: int, rows: Tensor, x: Tensor) -> State:
        """Where the layer's ``rows`` start: (2, A, P) and (2, A, C)."""
        sizes = (self.options.projection_dim, self.options.dim)
        if not self.stateful or len(self._states) <= depth:
            h, c = (x.new_zeros(2, len(rows), size) for size in sizes)
            return h, c
        h, c = (_rows(s.to(x.device), int(rows.max()) + 1 if len(rows) else 0) for s in self._states[depth])
        return h[:, rows], c[:, rows]

    def _keep(self, depth: int, rows: Tensor, final: State) -> None:
        if not self.stateful:
            return
        if len(self._states) <= depth:
            h, c = (state[:, :0].detach() for state in final)
            self._states.append((h, c))
        need = int(rows.max()) + 1 if len(rows) else 0
        kept = [_rows(s.to(f.device), need) for s, f in zip(self._states[depth], final, strict=True)]
        for state, value in zip(kept, final, strict=True):
            state[:, rows] = value.detach()
        self._states[depth] = (kept[0], kept[1])


class ElmoCharacters(Encoder):
    """ELMo's context-free character layer as an encoder of its own: states (B, S, P)."""

    tokenizer: ElmoTokenizer

    def __init__(self, characters: CharacterEncoder, tokenizer: ElmoTokenizer, *, name: str) -> None:
        super().__init__()
        self.name, self.hidden_size, self.num_layers = name, characters.options.projection_dim, 0
        self.max_length, self.pooling, self.pairs = None, "mean", "separate"
        self.characters, self.tokenizer = characters, tokenizer

    def forward(self, tokens: TokenBatch, *, all_layers: bool = False) -> EncoderOutput:
        words = tokens.inputs["characters"][tokens.mask]
        if len(words):
            vectors, number = self.characters(words)
            states = _spread(vectors[number], tokens.mask)
        else:
            states = self.characters.characters.new_zeros(*tokens.mask.shape, self.hidden_size)
        return EncoderOutput(states, hidden_states=states[None] if all_layers else None)

    def layer_groups(self) -> list[Group]:
        return [("embeddings", list(self.characters.parameters()))]

    def embedding_encoder(self) -> ElmoCharacters:
        """Itself."""
        return self

    def fingerprint(self) -> str:
        return _fingerprint(self, self.characters.options)


def _spread(states: Tensor, mask: Tensor) -> Tensor:
    """(words, H) to (B, S, H), zero at padding."""
    return states.new_zeros(*mask.shape, states.shape[1]).index_put((mask,), states)


def _rows(state: Tensor, need: int) -> Tensor:
    """A copy with at least ``need`` rows, new ones zero."""
    more = max(0, need - state.shape[1])
    return torch.cat([state, state.new_zeros(state.shape[0], more, state.shape[2])], dim=1)


def _fingerprint(encoder: nn.Module, options: ElmoOptions) -> str:
    digest = hashlib.sha256()
    for name, value in encoder.state_dict().items():
        digest.update(name.encode())
        digest.update(value.detach().cpu().contiguous().numpy().data)
    return data_fingerprint(
        {"weights": digest.hexdigest(), "options": options.to_json(), "version": CODE_VERSION}
    )
