"""ELMo (Peters et al. 2018, "Deep contextualized word representations"): a character-based biLM.

With ``x_k`` the context-free vector of word k (:mod:`harness.encoders.elmo.characters`) and ``f^l``, ``b^l``
the forward and backward LSTM layers (:mod:`harness.encoders.elmo.lstm`), the L + 1 layers of word k are ::

    h_k^0 = [x_k; x_k]
    h_k^l = [f^l_k; b^l_k],   l = 1 .. L

(section 3.2), combined by a scalar mix (equation 1: ``encoder.layers=mix``). One token per word; the sentence
boundaries are read, but are not tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from harness.core.fingerprint import data_fingerprint
from harness.data.tokens import EncoderOutput, TokenBatch
from harness.encoders.base import Encoder, Group
from harness.encoders.elmo.characters import CharacterEncoder, ElmoTokenizer, boundary_ids
from harness.encoders.elmo.files import OPTIONS, PROJECTION, WEIGHTS, ElmoOptions, elmo_files, read_options
from harness.encoders.elmo.lstm import BiLSTMLayer, Packing, State
from harness.encoders.elmo.weights import check_weights, read_weights, write_weights
from harness.encoders.parameters import weights_fingerprint
from harness.errors import HarnessError

CODE_VERSION = 1
"""Increment when the same files and options give different states; part of the fingerprint."""


def load(
    *,
    name: str,
    path: str | Path | None = None,
    random_init: bool = False,
    cache_dir: Path,
    files: Mapping[str, object] | None = None,
    url: Mapping[str, object] | None = None,
    sha256: Mapping[str, object] | None = None,
    dropout: float | None = None,
) -> ElmoEncoder:
    """Load a model in the published format.

    Args:
        name: name in the configuration.
        path: folder with ``options.json`` and one ``*weights*.hdf5``.
        random_init: the same architecture with random weights.
        cache_dir: for downloads.
        files: ``options`` and ``weights``, if they are not in one folder.
        url: download addresses of ``options`` and ``weights``, used without path and files.
        sha256: expected checksums of the downloaded ``options`` and ``weights``.
        dropout: of each LSTM layer's input and of the states in training; None = as in ``options.json``.

    Raises:
        HarnessError: files that are missing, unreadable, or do not belong to one model.
    """
    config = {"name": name, "path": path, "files": files, "url": url, "sha256": sha256}
    paths = elmo_files(config, cache_dir)
    options = read_options(paths[OPTIONS])
    is_number = isinstance(dropout, int | float) and not isinstance(dropout, bool)
    if dropout is not None and not (is_number and 0 <= dropout < 1):
        raise HarnessError(f"encoder.dropout={dropout!r}: expected a number in [0, 1)")
    rate = options.dropout if dropout is None else float(dropout)
    check_weights(paths[WEIGHTS], options)  # its sizes bound those of random weights, too
    weights = None if random_init else read_weights(paths[WEIGHTS], options)
    return ElmoEncoder(options, weights, name=name, dropout=rate)


class ElmoEncoder(Encoder):
    """ELMo with all layers; states at padding are zero.

    Args:
        options: the architecture.
        weights: published weights by key; None = random, from torch's global generator.
        name: name in the configuration.
        dropout: of each LSTM layer's input and of the states, in training only.

    Attributes:
        stateful: row k of a batch starts from the final state of row k of the previous batch, per layer and
            direction, as in the original program; the same sentence then gives different states each time.
            New rows start from zeros, rows without words keep their state, and no gradient flows between
            batches.
    """

    tokenizer: ElmoTokenizer

    def __init__(
        self,
        options: ElmoOptions,
        weights: Mapping[str, np.ndarray] | None,
        *,
        name: str,
        dropout: float = 0.0,
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
        self._initialise(weights)

    def forward(self, tokens: TokenBatch, *, all_layers: bool = False) -> EncoderOutput:
        """Compute the states (B, S, 2 P) of the words; with ``all_layers`` also (L + 1, B, S, 2 P)."""
        mask = tokens.mask
        words = tokens.inputs["characters"][mask]
        boundaries = self._boundaries.to(words.device)
        # each distinct word is convolved once: token i has the vector vectors[index[i]]
        vectors, index = self.characters(torch.cat([words, boundaries.to(words.dtype)]))
        packing = Packing.of(mask)
        embedded = vectors[index[packing.source]]  # (2, N, P)
        context_free = vectors[index[: len(words)]]
        layers = [torch.cat([context_free, context_free], dim=1)] if all_layers else []
        for depth, x in enumerate(self.read(embedded, packing)):
            if all_layers or depth == self.num_layers - 1:
                out = torch.cat([x[0][packing.place[0]], x[1][packing.place[1]]], dim=1)
                layers.append(self._drop(out) if depth == self.num_layers - 1 else out)
        spread = [_spread(states, mask) for states in layers]
        return EncoderOutput(spread[-1], hidden_states=torch.stack(spread) if all_layers else None)

    def read(self, x: Tensor, packing: Packing) -> Iterator[Tensor]:
        """Run the LSTM layers over packed tokens.

        Args:
            x: (2, N, P), the tokens of both directions.
            packing: the positions of the tokens.

        Yields:
            The output of each layer, (2, N, P), packed like ``x``.
        """
        for depth, layer in enumerate(self._lstms()):
            x, final = layer(self._drop(x), packing.sizes, self._initial_state(depth, packing.rows, x))
            self._store_state(depth, packing.rows, final)
            yield x

    def reset(self) -> None:
        """Reset the states of previous batches (``stateful``)."""
        self._states = []

    def layer_groups(self) -> list[Group]:
        """Return [0] the character layer, then each bidirectional LSTM layer."""
        layers = [(f"layer_{n}", list(m.parameters())) for n, m in enumerate(self.layers, start=1)]
        return [("embeddings", list(self.characters.parameters())), *layers]

    def embedding_encoder(self) -> ElmoCharacters:
        """Return the context-free character layer."""
        return ElmoCharacters(self.characters, self.tokenizer, name=self.name)

    def fingerprint(self) -> str:
        return _fingerprint(self, self.options)

    def save(self, folder: Path, *, half: bool = False) -> None:
        """Write the current weights in the published format, which :func:`load` reads.

        Args:
            folder: destination of ``options.json`` and ``weights.hdf5``.
            half: store half precision; reading converts to float32.
        """
        weights = self.characters.published()
        for number, layer in enumerate(self._lstms()):
            weights |= layer.published(number)
        write_weights(folder, self.options, weights, half=half)

    def _initialise(self, weights: Mapping[str, np.ndarray] | None) -> None:
        if weights is None:
            self.characters.reset_parameters()
        else:
            self.characters.assign(weights)
        for number, layer in enumerate(self._lstms()):
            if weights is None:
                layer.reset_parameters()
            else:
                layer.assign(weights, number)

    def _lstms(self) -> list[BiLSTMLayer]:
        return list(self.layers)  # type: ignore[arg-type]

    def _drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout, self.training) if self.dropout else x

    def _initial_state(self, depth: int, rows: Tensor, x: Tensor) -> State:
        """Return the initial states of the layer's ``rows``, (2, A, P) and (2, A, C)."""
        sizes = (self.options.projection_dim, self.options.dim)
        if not self.stateful or len(self._states) <= depth:
            h, c = (x.new_zeros(2, len(rows), size) for size in sizes)
            return h, c
        h, c = (
            _with_rows(s.to(x.device), int(rows.max()) + 1 if len(rows) else 0) for s in self._states[depth]
        )
        return h[:, rows], c[:, rows]

    def _store_state(self, depth: int, rows: Tensor, final: State) -> None:
        if not self.stateful:
            return
        if len(self._states) <= depth:
            h, c = (state[:, :0].detach() for state in final)
            self._states.append((h, c))
        count = int(rows.max()) + 1 if len(rows) else 0
        states = [_with_rows(s.to(f.device), count) for s, f in zip(self._states[depth], final, strict=True)]
        for state, value in zip(states, final, strict=True):
            state[:, rows] = value.detach()
        self._states[depth] = (states[0], states[1])


class ElmoCharacters(Encoder):
    """ELMo's context-free character layer as a separate encoder: states (B, S, P)."""

    tokenizer: ElmoTokenizer

    def __init__(self, characters: CharacterEncoder, tokenizer: ElmoTokenizer, *, name: str) -> None:
        super().__init__()
        self.name, self.hidden_size, self.num_layers = name, characters.options.projection_dim, 0
        self.max_length, self.pooling, self.pairs = None, "mean", "separate"
        self.characters, self.tokenizer = characters, tokenizer

    def forward(self, tokens: TokenBatch, *, all_layers: bool = False) -> EncoderOutput:
        words = tokens.inputs["characters"][tokens.mask]
        if len(words):
            vectors, index = self.characters(words)
            states = _spread(vectors[index], tokens.mask)
        else:
            states = self.characters.characters.new_zeros(*tokens.mask.shape, self.hidden_size)
        return EncoderOutput(states, hidden_states=states[None] if all_layers else None)

    def layer_groups(self) -> list[Group]:
        return [("embeddings", list(self.characters.parameters()))]

    def embedding_encoder(self) -> ElmoCharacters:
        """Return itself."""
        return self

    def fingerprint(self) -> str:
        return _fingerprint(self, self.characters.options)


def _spread(states: Tensor, mask: Tensor) -> Tensor:
    """Map (words, H) to (B, S, H), zero at padding."""
    return states.new_zeros(*mask.shape, states.shape[1]).index_put((mask,), states)


def _with_rows(state: Tensor, count: int) -> Tensor:
    """Return a copy with at least ``count`` rows, new ones zero."""
    more = max(0, count - state.shape[1])
    return torch.cat([state, state.new_zeros(state.shape[0], more, state.shape[2])], dim=1)


def _fingerprint(encoder: nn.Module, options: ElmoOptions) -> str:
    weights = weights_fingerprint(encoder)
    return data_fingerprint({"weights": weights, "options": options.to_json(), "version": CODE_VERSION})
