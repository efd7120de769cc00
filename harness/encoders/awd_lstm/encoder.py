"""AWD-LSTMs as encoders: ULMFiT (Howard & Ruder 2018, "Universal Language Model Fine-tuning for Text
Classification"), with the weights fastai publishes and saves.

The tokens are fastai's (:mod:`harness.encoders.awd_lstm.tokenizer`). The middle layers are wider than the
table and the top layer (1152 against 400), whereas scalar mixes and probes need states of one width.
Therefore ``hidden_states`` contains only layers of the top layer's width, the embeddings and the top layer,
and ``num_layers`` is 1 for the published sizes. Padding or cropping the others would mix unrelated
dimensions. :meth:`AwdLstmEncoder.layer_groups` has every layer.

**Out-of-vocabulary words.** With ``vocabulary: task`` (as published), every word of the data that is not in
the table gets a vector, initialised with the mean of the table and trained with it; in frozen encoders it
stays at the mean. Words of the table keep their vectors, also if the data does not contain them.
``vocabulary: pretrained`` maps new words to ``xxunk``.

**Direction.** A backward model reads each row from the last token to the first, ``xxbos`` last, as in
pretraining; the tokens stay in text order. Its row vector includes the first token's state
(``concat_backward``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from harness.core.fingerprint import data_fingerprint, files_fingerprint
from harness.data.tokens import EncoderOutput, TokenBatch
from harness.encoders.awd_lstm.checkpoint import Checkpoint, read_checkpoint
from harness.encoders.awd_lstm.files import awd_lstm_files
from harness.encoders.awd_lstm.model import MAX_LEN, AwdLstm, AwdLstmLM, Dropouts, Sizes, WordTable
from harness.encoders.awd_lstm.tokenizer import FastaiTokenizer, Vocabulary
from harness.encoders.base import Encoder, Group
from harness.encoders.parameters import weights_fingerprint
from harness.errors import HarnessError, did_you_mean

CODE_VERSION = 1
"""Increment when the same files and options give different states; part of the fingerprint."""
VOCABULARIES = ("task", "pretrained")
IDS = "input_ids"


def load(
    *,
    name: str,
    path: str | Path | None = None,
    files: Mapping[str, object] | None = None,
    random_init: bool = False,
    cache_dir: Path,
    backwards: bool | None = None,
    vocabulary: str = "task",
    dropouts: Mapping[str, float] | None = None,
    dropout_multiplier: float = 1.0,
    max_len: int = MAX_LEN,
) -> AwdLstmEncoder:
    """Load an AWD-LSTM from its files.

    Args:
        name: name in the configuration.
        path, files: see :func:`harness.encoders.awd_lstm.files.awd_lstm_files`.
        random_init: the same sizes and vocabulary, weights initialised as for pretraining.
        cache_dir: unused.
        backwards: whether the model reads from right to left; None = according to its options file, otherwise
            False.
        vocabulary: treatment of out-of-vocabulary words, ``task`` or ``pretrained``; see the module
            docstring.
        dropouts: rates of ``embedding``, ``input``, ``hidden``, ``weight`` and ``output`` in training.
        dropout_multiplier: factor on all these rates (fastai's ``drop_mult``).
        max_len: number of tokens at the end of a row that receive a gradient. All tokens are pooled, whereas
            fastai's classifier pools only these: longer rows give different vectors than in fastai.

    Raises:
        HarnessError: invalid files or options.
    """
    if vocabulary not in VOCABULARIES:
        raise HarnessError(f"encoder.vocabulary={vocabulary}: {did_you_mean(str(vocabulary), VOCABULARIES)}")
    if backwards is not None and not isinstance(backwards, bool):
        raise HarnessError(f"encoder.backwards={backwards!r}: expected null, true or false")
    if isinstance(max_len, bool) or not isinstance(max_len, int) or max_len < 1:
        raise HarnessError(f"encoder.max_len={max_len}: expected an integer of at least 1")
    rates = resolve_dropouts(dropouts, dropout_multiplier)
    paths = awd_lstm_files({"name": name, "path": path, "files": files}, cache_dir)
    checkpoint = read_checkpoint(paths)
    reads_backwards = bool(checkpoint.backwards) if backwards is None else backwards
    options = {
        "backwards": reads_backwards,
        "vocabulary": vocabulary,
        "dropouts": str(rates),
        "max_len": max_len,
    }
    identity = data_fingerprint([files_fingerprint(paths), "awd_lstm", CODE_VERSION, options])
    return AwdLstmEncoder(
        random_core(checkpoint, rates) if random_init else pretrained_core(checkpoint, rates),
        Vocabulary(checkpoint.vocabulary, task=vocabulary == "task"),
        name=name,
        backwards=reads_backwards,
        max_len=max_len,
        identity=None if random_init else identity,
        bias=None if random_init else checkpoint.weights.get("decoder.bias"),
    )


def load_language_model(
    path: str | Path, *, dropouts: Mapping[str, float] | None = None, dropout_multiplier: float = 1.0
) -> tuple[AwdLstmLM, Checkpoint]:
    """Load the language model of a folder, and its checkpoint (vocabulary, direction).

    Raises:
        HarnessError: see :func:`load`.
    """
    checkpoint = read_checkpoint(awd_lstm_files({"path": path}, Path()))
    core = pretrained_core(checkpoint, resolve_dropouts(dropouts, dropout_multiplier))
    return AwdLstmLM(core, checkpoint.weights.get("decoder.bias")), checkpoint


def resolve_dropouts(rates_by_name: Mapping[str, float] | None, factor: float) -> Dropouts:
    """Check the rates, fill in the defaults, and multiply all by ``factor``."""
    for name, value in (rates_by_name or {}).items():
        if name not in Dropouts.__slots__:
            raise HarnessError(f"encoder.dropouts.{name}: {did_you_mean(name, Dropouts.__slots__)}")
        if not _is_number(value):
            raise HarnessError(f"encoder.dropouts.{name}={value}: expected a number in [0, 1)")
    if not _is_number(factor):
        raise HarnessError(f"encoder.dropout_multiplier={factor}: expected a number of at least 0")
    rates = Dropouts(**dict(rates_by_name or {})).times(factor)
    for name in Dropouts.__slots__:
        if not 0 <= getattr(rates, name) < 1:
            raise HarnessError(
                f"encoder.dropouts.{name} times encoder.dropout_multiplier is {getattr(rates, name):g}: "
                "must be in [0, 1)"
            )
    return rates


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


def sizes_of(weights: Mapping[str, Tensor]) -> Sizes:
    words, wide = weights["table.weight"].shape
    layers = sum(k.endswith("weight_hh_l0") for k in weights)
    return Sizes(words, wide, weights["rnns.0.weight_hh_l0"].shape[1], layers)


def pretrained_core(checkpoint: Checkpoint, dropouts: Dropouts) -> AwdLstm:
    return AwdLstm.of(sizes_of(checkpoint.weights), checkpoint.weights, dropouts)


def random_core(checkpoint: Checkpoint, dropouts: Dropouts) -> AwdLstm:
    return AwdLstm(sizes_of(checkpoint.weights), dropouts)


class AwdLstmEncoder(Encoder):
    """An AWD-LSTM as an encoder.

    Args:
        core: the layers.
        vocabulary: maps words to rows of the core's table.
        name: name in the configuration.
        backwards: whether the model reads from right to left.
        max_len: see :meth:`AwdLstm.read`.
        identity: hex digest of files and options; None = digest of the current weights when requested.
        bias: the decoder's bias, kept for :meth:`language_model`; not part of the encoder.
    """

    tokenizer: FastaiTokenizer

    def __init__(
        self,
        core: AwdLstm,
        vocabulary: Vocabulary,
        *,
        name: str,
        backwards: bool = False,
        max_len: int = MAX_LEN,
        identity: str | None = None,
        bias: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.core, self.vocabulary, self.backwards, self.max_len = core, vocabulary, backwards, max_len
        self.name, self.hidden_size = name, core.sizes.embedding
        self.num_layers = sum(n == self.hidden_size for _, n in core.sizes.widths())
        self.max_length, self.pairs = None, "separate"
        self.pooling = "concat_backward" if backwards else "concat"
        self.tokenizer = FastaiTokenizer({IDS: vocabulary}, word_state="first" if backwards else "last")
        self._identity, self._extended = identity, ""
        self._bias = bias
        if vocabulary.added:
            core.table.add(vocabulary.added)

    def forward(self, tokens: TokenBatch, *, all_layers: bool = False) -> EncoderOutput:
        """Compute the states (B, S, H), zero at padding; layers are the embeddings and those of the top
        width."""
        return self.read(tokens.inputs[IDS], tokens.mask, all_layers=all_layers)

    def read(self, ids: Tensor, mask: Tensor, *, all_layers: bool = False) -> EncoderOutput:
        """Compute the states for (B, S) ids padded on the right and their (B, S) mask."""
        lengths = mask.sum(1)
        order = reversed_rows(lengths, ids.shape[1]) if self.backwards else None
        layers = self.core.read(ids if order is None else ids.gather(1, order), lengths, max_len=self.max_len)
        outputs = [x for x in layers if x.shape[-1] == self.hidden_size] if all_layers else layers[-1:]
        if order is not None:
            outputs = [x.gather(1, order[..., None].expand_as(x)) for x in outputs]
        # torch.where, not mask * x: padded positions may be NaN
        outputs = [torch.where(mask[..., None], x, x.new_zeros(())) for x in outputs]
        return EncoderOutput(outputs[-1], hidden_states=torch.stack(outputs) if all_layers else None)

    def restrict(self, words: Iterable[str]) -> None:
        """Add vectors for words of the data that are not in the table.

        Unlike in word-vector encoders, no words are dropped; the method has the name of the common interface.
        """
        self.tokenizer.extend(words)
        self.fit_table()

    def fit_table(self) -> None:
        """Extend the table to the size of the vocabulary."""
        if self.vocabulary.added:
            self.core.table.add(self.vocabulary.added)
            self._extended = data_fingerprint(self.vocabulary.all_words())

    def layer_groups(self) -> list[Group]:
        """Return the table, then each layer."""
        groups: list[Group] = [("embeddings", list(self.core.table.parameters()))]
        return groups + [(f"lstm_{i}", list(rnn.parameters())) for i, rnn in enumerate(self.core.rnns)]

    def embedding_encoder(self) -> AwdLstmTable:
        return AwdLstmTable(
            self.core.table, self.tokenizer.table(), name=self.name, identity=self.fingerprint
        )

    def fingerprint(self) -> str:
        if self._identity is not None:
            return data_fingerprint([self._identity, self._extended])
        return weights_fingerprint(self)

    def language_model(self) -> tuple[AwdLstmLM, list[str]]:
        """Return the language model, which shares these layers, and its words. New words get the mean
        bias."""
        rows = len(self.core.table.all_rows())
        device = self.core.table.weight.device
        bias = torch.zeros(len(self.vocabulary.words)) if self._bias is None else self._bias
        bias = torch.cat([bias, bias.mean().expand(rows - len(bias))]).to(device)
        return AwdLstmLM(self.core, bias), self.vocabulary.all_words()


class AwdLstmTable(Encoder):
    """The embedding table alone: no context, no ``xxbos``, rows of any length.

    Args:
        table: shared with the model, not copied.
        tokenizer: without ``xxbos``.
        identity: computes the fingerprint of the model.
    """

    tokenizer: FastaiTokenizer

    def __init__(
        self, table: WordTable, tokenizer: FastaiTokenizer, *, name: str, identity: Callable[[], str]
    ) -> None:
        super().__init__()
        self.table, self.tokenizer = table, tokenizer
        self.name, self.hidden_size, self.num_layers = name, table.weight.shape[1], 0
        self.max_length, self.pooling, self.pairs = None, "mean", "separate"
        self._identity, self._extended = data_fingerprint([identity(), "embedding table"]), ""

    def forward(self, tokens: TokenBatch, *, all_layers: bool = False) -> EncoderOutput:
        states = self.table.look_up(tokens.inputs[IDS]) * tokens.mask[..., None]
        return EncoderOutput(states, hidden_states=states[None] if all_layers else None)

    def restrict(self, words: Iterable[str]) -> None:
        """See :meth:`AwdLstmEncoder.restrict`."""
        self.tokenizer.extend(words)
        vocabulary = self.tokenizer.vocabularies[IDS]
        if vocabulary.added:
            self.table.add(vocabulary.added)
            self._extended = data_fingerprint(vocabulary.all_words())

    def layer_groups(self) -> list[Group]:
        return [("embeddings", list(self.table.parameters()))]

    def embedding_encoder(self) -> AwdLstmTable:
        return self

    def fingerprint(self) -> str:
        return data_fingerprint([self._identity, self._extended])


def reversed_rows(lengths: Tensor, width: int) -> Tensor:
    """Return the indices that reverse each row, (B, width) Long; padding keeps its place.

    Example: lengths [3, 2] and width 4 give [[2, 1, 0, 3], [1, 0, 2, 3]].
    """
    position = torch.arange(width, device=lengths.device)[None]
    last = lengths[:, None] - 1
    return torch.where(position <= last, last - position, position)
