"""Shared parts of masked and causal language models: the decoder over an encoder's layers, rows, files."""

from __future__ import annotations

import contextlib
import shutil
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from harness.adaptation.job import AdaptationJob
from harness.adaptation.trainer import ContinuedObjective, default_recipe
from harness.data.targets import IGNORE_INDEX
from harness.data.text import Text
from harness.encoders.config import EncoderConfig
from harness.encoders.transformer.encoder import TransformerEncoder
from harness.encoders.transformer.files import CONFIG, checkpoint_files, loading_folder
from harness.encoders.transformer.hub import local_folder
from harness.errors import HarnessError
from harness.pretraining.base import BatchLoss, TrainingBatch
from harness.pretraining.text.packing import TokenSequence, batch_by_length, tokenize_texts

if TYPE_CHECKING:
    from transformers import PreTrainedModel
    from transformers.modeling_outputs import BaseModelOutput

    AutoModelClass: TypeAlias = (
        "type[transformers.AutoModelForCausalLM] | type[transformers.AutoModelForMaskedLM]"
    )
    import transformers

MAX_ROW = 512
"""Maximum tokens per row, for encoders that accept more."""


class TransformerObjective(ContinuedObjective["PreTrainedModel", None]):
    """A transformer with the decoder of its checkpoint; each text is a row, long texts are split.

    The encoder is loaded as a cell loads it, so a pretrained pooler is kept; the layers of the language model
    receive the encoder's weights and return them when it is saved.

    Attributes:
        causal: the language model is causal.
        min_row: minimum useful number of tokens per row.
        prefix, suffix: special tokens before and after a row's text.
        train, test: rows with special tokens.
    """

    causal: bool
    min_row = 1
    prefix: list[int]
    suffix: list[int]

    def __init__(self, job: AdaptationJob) -> None:
        super().__init__(job)
        self.family, self.recipe, self.notes = ("gpt" if self.causal else "bert"), default_recipe(job), []
        self.source = local_folder(job.encoder.text_option("path"), job.cache_dir)
        self.files = checkpoint_files(self.source)
        self.batch_size = int(job.options.batch_size or 1)

    def build(self) -> PreTrainedModel:
        self.encoder = self.job.load(TransformerEncoder)
        model = self._language_model()
        self.tokenizer = self.encoder.tokenizer
        self.width = min(self.encoder.max_length or MAX_ROW, MAX_ROW)
        self.set_special_tokens(model)
        self.train, self.test = self._rows(self.job.texts.train), self._rows(self.job.texts.dev)
        self.tokens_per_epoch = sum(self.text_tokens(row) for row in self.train)
        model.train()
        return model

    @abstractmethod
    def set_special_tokens(self, model: PreTrainedModel) -> None:
        """Set ``prefix`` and ``suffix``, and what else the objective needs."""

    def text_tokens(self, row: TokenSequence) -> int:
        """Tokens of text in a row."""
        return len(row) - len(self.prefix) - len(self.suffix)

    def _rows(self, texts: Sequence[Text]) -> list[TokenSequence]:
        room = self.width - len(self.prefix) - len(self.suffix)
        if room < 1:
            raise HarnessError(f"{self.source}: rows of {self.width} tokens have no room for text")
        # tokenizers cannot encode lone surrogates
        raw = [t.text.encode("utf-8", "replace").decode() for t in texts]
        sequences = tokenize_texts(self.tokenizer.backend, raw)
        parts = [s.slice(at, at + room) for s in sequences for at in range(0, len(s), room)]
        prefix, suffix = _without_words(self.prefix), _without_words(self.suffix)
        rows = [TokenSequence.join([prefix, part, suffix]) for part in parts]
        return [row for row in rows if len(row) >= self.min_row]

    def draw_batches(self, rng: np.random.Generator) -> list[np.ndarray]:
        """Row indices of each batch of an epoch, rows of similar length together."""
        lengths = [len(row) for row in self.train]
        tokens = round(self.job.items_per_step(len(lengths)) * float(np.mean(lengths)))
        return batch_by_length(lengths, tokens, rng)

    def eval_batches(self) -> Iterator[list[TokenSequence]]:
        """The dev rows in batches, sorted by length."""
        rows = sorted(self.test, key=len)
        for at in range(0, len(rows), self.batch_size):
            yield rows[at : at + self.batch_size]

    def loss(self, model: PreTrainedModel, batch: TrainingBatch, carry: None) -> BatchLoss[None]:
        inputs = {k: v for k, v in batch.tensors.items() if k != "labels"}
        logits, gold = labelled_logits(model, inputs, batch.tensors["labels"])
        if not len(gold):  # nothing to predict in these rows: a zero loss with a zero gradient
            return BatchLoss(logits.sum() * 0.0, 0.0, 0)
        mean = F.cross_entropy(logits, gold)
        return BatchLoss(mean, float(mean.detach()) * len(gold), len(gold))

    def _language_model(self) -> PreTrainedModel:
        """The checkpoint's model with its decoder and the encoder's weights in its layers."""
        import transformers

        auto: AutoModelClass = (
            transformers.AutoModelForCausalLM if self.causal else transformers.AutoModelForMaskedLM
        )
        try:
            with quiet():
                if self.job.random_init:
                    config = self.encoder.model.config
                    model: PreTrainedModel = auto.from_config(  # type: ignore[no-untyped-call]
                        config, dtype=torch.float32, trust_remote_code=False
                    )
                else:
                    model = self._load_pretrained(auto)
        except HarnessError:
            raise
        except Exception as e:
            kind = f"{'causal' if self.causal else 'masked'} language model"
            raise HarnessError(
                f"{self.source}: cannot be loaded as a {kind} ({type(e).__name__}: {e}); "
                "remove strategy.adapt"
            ) from e
        model.base_model.load_state_dict(self.encoder.model.state_dict(), strict=False)
        model.config.use_cache = False
        return model

    def _load_pretrained(self, auto: AutoModelClass) -> PreTrainedModel:
        with loading_folder(self.files) as view:
            loaded: Any = auto.from_pretrained(
                str(view),
                config=self.encoder.model.config,
                dtype=torch.float32,
                local_files_only=True,
                trust_remote_code=False,
                use_safetensors=any(name.endswith(".safetensors") for name in self.files),
                weights_only=True,
                output_loading_info=True,
            )
        model: PreTrainedModel = loaded[0]
        inner = {id(p) for p in model.base_model.parameters()}
        missing = set(loaded[1]["missing_keys"])
        self.new_parameters = sorted(
            name for name, p in model.named_parameters() if name in missing and id(p) not in inner
        )
        if self.new_parameters:
            self.notes.append(
                "the checkpoint has no decoder: a new one over its embedding table was trained first, with "
                "the encoder frozen"
            )
        return model

    def save(self, model: PreTrainedModel, folder: Path) -> None:
        """Save the encoder with its adapted weights and copy its tokenizer's files."""
        encoder = self.encoder.model
        _, unexpected = encoder.load_state_dict(model.base_model.state_dict(), strict=False)
        assert not unexpected
        with quiet():
            encoder.save_pretrained(folder)
        for name, path in self.files.items():
            if name != CONFIG and not name.endswith((".safetensors", ".bin", ".index.json")):
                shutil.copyfile(path, folder / name)

    def vocabulary_size(self) -> int:
        weight = self.encoder.model.get_input_embeddings().weight
        assert isinstance(weight, torch.Tensor)
        return len(weight)


def labelled_logits(
    model: PreTrainedModel, tensors: Mapping[str, Tensor], labels: Tensor
) -> tuple[Tensor, Tensor]:
    """Logits (N, V) and labels (N,) at the labelled positions of (B, S) labels.

    All decoders work position by position, so a hook replaces their (B, S, H) input by the N labelled states
    as one row (1, N, H): no logits are computed elsewhere.
    """
    at = labels != IGNORE_INDEX

    def select(module: nn.Module, args: object, output: BaseModelOutput) -> BaseModelOutput:
        assert output.last_hidden_state is not None
        output.last_hidden_state = output.last_hidden_state[at][None]
        return output

    handle = _states_module(model).register_forward_hook(select)
    try:
        logits: Tensor = model(**tensors, return_dict=True).logits
    finally:
        handle.remove()
    return logits[0].float(), labels[at]


def _states_module(model: PreTrainedModel) -> nn.Module:
    """Return the module whose states the decoder reads: OPT's language model calls only a part of "
    "its base."""
    base = model.base_model
    if model.config.model_type == "opt":
        return base.get_submodule("decoder")
    return base


def summed_nll(model: PreTrainedModel, tensors: Mapping[str, Tensor], labels: Tensor) -> tuple[float, int]:
    """Sum of the nats of all labels, and their number."""
    logits, gold = labelled_logits(model, tensors, labels)
    return float(F.cross_entropy(logits, gold, reduction="sum")), len(gold)


def adapted_config(encoder: EncoderConfig, folder: Path) -> EncoderConfig:
    """The encoder's configuration with its files in ``folder``."""
    return encoder.with_options(path=str(folder))


def _without_words(ids: Sequence[int]) -> TokenSequence:
    return TokenSequence(np.array(ids, dtype=np.int64), np.zeros(len(ids), dtype=np.int64))


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence progress bars and the report of loaded keys, which are checked here."""
    from transformers.utils import logging

    bar, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bar:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]
