"""AWD-LSTMs as encoders: ULMFiT (Howard & Ruder 2018, "Universal Language Model Fine-tuning for Text
Classification"), with the weights fastai publishes and saves.

TokenBatch are fastai's tokens (:mod:`harness.encoders.awd_lstm.tokenizer`). The layers between are wider than the
table and the top (1152 against 400), and states of one width are what mixes and probes take: so the layers
an encoder shows are those of the top's width, the embeddings and the top layer, and ``num_layers`` is 1 for
the published sizes. Padding the others with zeros or cutting them would mix unlike coordinates.
:meth:`AwdLstmEncoder.layer_groups` has every layer.

**Words the model has never seen.** ``vocabulary: task`` (the published way) gives every word of the data that
the table lacks a vector of its own, the mean of the table, which trains with the rest; frozen, all of them
stay at the mean. Words of the table keep their vectors, also those the data lack. ``vocabulary: pretrained``
reads new ones as ``xxunk``.

**Direction.** A backward model reads each row from its last token to its first, ``xxbos`` last, as it was
trained; the tokens stay in the order of the text. Its summary of a row is the first unit's state
(``concat_backward``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from harness.core.fingerprint import data_fingerprint, files_fingerprint
from harness.data.tokens import EncoderOutput, TokenBatch
from harness.encoders.awd_lstm.checkpoint import Checkpoint, read_checkpoint, write_fastai, write_model
from harness.encoders.awd_lstm.files import awd_lstm_files
from harness.encoders.awd_lstm.model import MAX_LEN, AwdLstm, AwdLstmLM, Dropouts, Sizes, WordTable
from harness.encoders.awd_lstm.tokenizer import FastaiTokenizer, Vocabulary
from harness.encoders.base import Encoder, Group
from harness.errors import HarnessError, did_you_mean

__all__ = ["AwdLstmEncoder", "AwdLstmTable", "load", "load_language_model", "write_fastai", "write_model"]

CODE_VERSION = 1
"""Raised when the same files and options give other states; part of the fingerprint."""
VOCABULARIES = ("task", "pretrained")
IDS = "input_ids"


def load(
    *,
    name: str,
    path: str | Path | None = None,
    files: Mapping[str, Any] | None = None,
    random_init: bool = False,
    cache_dir: Path,
    backwards: bool | None = None,
    vocabulary: str = "task",
    dropouts: Mapping[str, float] | None = None,
    dropout_multiplier: float = 1.0,
    max_len: int = MAX_LEN,
) -> AwdLstmEncoder:
    """An AWD-LSTM from its files.

    Args:
        name: as in the configuration.
        path, files: see :func:`harness.encoders.awd_lstm.files.awd_lstm_files`.
        random_init: the same sizes and vocabulary, weights as before pretraining.
        cache_dir: unused.
        backwards: the model reads from right to left; None = as its options file says, else False.
        vocabulary: what becomes of words the table lacks, ``task`` or ``pretrained``; see the module.
        dropouts: rates of ``embedding``, ``input``, ``hidden``, ``weight`` and ``output`` in training.
        dropout_multiplier: of all these rates (fastai's ``drop_mult``).
        max_len: tokens at the end of a row that the gradient reaches. All tokens are pooled, where fastai's
            classifier pools none but these: rows that are longer give other vectors than there.

    Raises:
        HarnessError: files or options that do not do.
    """
    if vocabulary not in VOCABULARIES:
        raise HarnessError(f"encoder.vocabulary={vocabulary}: {did_you_mean(str(vocabulary), VOCABULARIES)}")
    if backwards is not None and not isinstance(backwards, bool):
        raise HarnessError(f"encoder.backwards={backwards!r}: null, true or false is wanted")
    if isinstance(max_len, bool) or not isinstance(max_len, int) or max_len < 1:
        raise HarnessError(f"encoder.max_len={max_len}: a whole number of tokens is wanted, at least 1")
    rates = the_dropouts(dropouts, dropout_multiplier)
    found = awd_lstm_files({"name": name, "path": path, "files": files}, cache_dir)
    checkpoint = read_checkpoint(found)
    reads = bool(checkpoint.backwards) if backwards is None else backwards
    options = {"backwards": reads, "vocabulary": vocabulary, "dropouts": str(rates), "max_len": max_len}
    identity = data_fingerprint([files_fingerprint(found), "awd_lstm", CODE_VERSION, options])
    return AwdLstmEncoder(
        random_core(checkpoint, rates) if random_init else the_core(checkpoint, rates),
        Vocabulary(checkpoint.vocabulary, task=vocabulary == "task"),
        name=name,
        backwards=reads,
        max_len=max_len,
        identity=None if random_init else identity,
        bias=None if random_init else checkpoint.weights.get("decoder.bias"),
    )


def load_language_model(
    path: str | Path, *, dropouts: Mapping[str, float] | None = None, dropout_multiplier: float = 1.0
) -> tuple[AwdLstmLM, Checkpoint]:
    """The language model of a folder, and what else its files say (words, direction).

    Raises:
        HarnessError: see :func:`load`.
    """
    checkpoint = read_checkpoint(awd_lstm_files({"path": path}, Path()))
    core = the_core(checkpoint, the_dropouts(dropouts, dropout_multiplier))
    return AwdLstmLM(core, checkpoint.weights.get("decoder.bias")), checkpoint


def the_dropouts(given: Mapping[str, float] | None, factor: float) -> Dropouts:
    """Checked rates, those not given at their defaults, all times ``factor``."""
    for name, value in (given or {}).items():
        if name not in Dropouts.__slots__:
            raise HarnessError(f"encoder.dropouts.{name}: {did_you_mean(name, Dropouts.__slots__)}")
        if not _is_number(value):
            raise HarnessError(f"encoder.dropouts.{name}={value}: a number in [0, 1) is wanted")
    if not _is_number(factor):
        raise HarnessError(f"encoder.dropout_multiplier={factor}: a number, 0 or more, is wanted")
    rates = Dropouts(**dict(given or {})).times(factor)
    for name in Dropouts.__slots__:
        if not 0 <= getattr(rates, name) < 1:
            raise HarnessError(
                f"encoder.dropouts.{name} times encoder.dropout_multiplier is {getattr(rates, name):g}: "
                "it must lie in [0, 1)"
            )
    return rates


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


def the_sizes(weights: Mapping[str, Tensor]) -> Sizes:
    words, wide = weights["table.weight"].shape
    layers = sum(k.endswith("weight_hh_l0") for k in weights)
    return Sizes(words, wide, weights["rnns.0.weight_hh_l0"].shape[1], layers)


def the_core(checkpoint: Checkpoint, dropouts: Dropouts) -> AwdLstm:
    return AwdLstm.of(the_sizes(checkpoint.weights), checkpoint.weights, dropouts)


def random_core(checkpoint: Checkpoint, dropouts: Dropouts) -> AwdLstm:
    return AwdLstm(the_sizes(checkpoint.weights), dropouts)


class AwdLstmEncoder(Encoder):
    """See the module.

    Args:
        core: the layers.
        vocabulary: words to rows of the core's table.
        name: as in the configuration.
        backwards: reads from right to left.
        max_len: see :meth:`AwdLstm.read`.
        identity: hex digest of files and options; None = of the weights as they are when it is asked for.
        bias: of the decoder, kept for :meth:`language_model`; no part of the encoder.
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
        self.tokenizer = FastaiTokenizer({IDS: vocabulary}, stands="first" if backwards else "last")
        self._identity, self._extended = identity, ""
        self._bias = bias
        if vocabulary.added:
            core.table.add(vocabulary.added)

    def forward(self, tokens: TokenBatch, *, all_layers: bool = False) -> EncoderOutput:
        """States (B, S, H), zero at padding; layers are the embeddings and those of the top's width."""
        return self.read(tokens.inputs[IDS], tokens.mask, all_layers=all_layers)

    def read(self, ids: Tensor, mask: Tensor, *, all_layers: bool = False) -> EncoderOutput:
        """States for (B, S) ids padded on the right, (B, S) mask."""
        lengths = mask.sum(1)
        order = reversed_rows(lengths, ids.shape[1]) if self.backwards else None
        layers = self.core.read(ids if order is None else ids.gather(1, order), lengths, max_len=self.max_len)
        shown = [x for x in layers if x.shape[-1] == self.hidden_size] if all_layers else layers[-1:]
        if order is not None:
            shown = [x.gather(1, order[..., None].expand_as(x)) for x in shown]
        # not a product: what stands behind a row's end is no number to count on
        shown = [torch.where(mask[..., None], x, x.new_zeros(())) for x in shown]
        return EncoderOutput(shown[-1], hidden_states=torch.stack(shown) if all_layers else None)

    def restrict(self, words: Iterable[str]) -> None:
        """Give the words of the data that the table lacks vectors of their own. Nothing is taken away: that
        the name says so is the engine's."""
        self.tokenizer.extend(words)
        self.fit_table()

    def fit_table(self) -> None:
        """Make the table as long as the vocabulary now is."""
        if self.vocabulary.added:
            self.core.table.add(self.vocabulary.added)
            self._extended = data_fingerprint(self.vocabulary.all_words())

    def layer_groups(self) -> list[Group]:
        """The table, then each layer."""
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
        """The language model on top of these very layers and the words of its rows. Words that were new have
        the mean of the decoder's bias."""
        rows = len(self.core.table.whole())
        device = self.core.table.weight.device
        bias = torch.zeros(len(self.vocabulary.words)) if self._bias is None else self._bias
        bias = torch.cat([bias, bias.mean().expand(rows - len(bias))]).to(device)
        return AwdLstmLM(self.core, bias), self.vocabulary.all_words()


class AwdLstmTable(Encoder):
    """The table alone: no context, no ``xxbos``, rows of any length.

    Args:
        table: shared with the model it comes from.
        tokenizer: without ``xxbos``.
        identity: gives the fingerprint.
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
        """As :meth:`AwdLstmEncoder.restrict`."""
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
    """(B, width) Long: for each place of a row read from its end the place it comes from; padding stays."""
    place = torch.arange(width, device=lengths.device)[None]
    last = lengths[:, None] - 1
    return torch.where(place <= last, last - place, place)


def weights_fingerprint(module: nn.Module) -> str:
    """Hex digest of a module's weights as they are."""
    digest = hashlib.sha256()
    for name, tensor in module.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()
