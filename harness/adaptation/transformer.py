"""What masked and causal language models share: the decoder over an encoder's own layers, rows, files."""

from __future__ import annotations

import contextlib
import shutil
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from harness.adaptation.job import Job
from harness.adaptation.trainer import Continued, usual_recipe
from harness.data.targets import IGNORE_INDEX
from harness.data.text import Text
from harness.encoders.transformer.hub import CONFIG, checkpoint_files, local_folder
from harness.errors import HarnessError
from harness.pretraining.base import Batch, Loss
from harness.pretraining.text.packing import Pieces, batched, tokenise

LONGEST = 512
"""Most tokens of a row, for encoders that take more."""
Row = Pieces


class TransformerTexts(Continued):
    """A transformer with the decoder of its checkpoint; a text is a row, longer ones are cut into several.

    The encoder is loaded as a cell loads it, so its pooler is kept where it was trained; the decoder's layers
    are given its weights, and give them back.
    """

    causal: bool
    shortest = 1
    """Least tokens of a row that is of use."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.family, self.recipe, self.notes = ("gpt" if self.causal else "bert"), usual_recipe(job), []
        self.source = local_folder(job.encoder.get("path"), job.cache_dir)
        self.files = checkpoint_files(self.source)

    def build(self) -> nn.Module:
        self.encoder = self.job.load()
        model = self._language_model()
        self.tokenizer = self.encoder.tokenizer
        self.width = min(self.encoder.max_length or LONGEST, LONGEST)
        self.rows_of_texts(model)
        return model.train()

    def rows_of_texts(self, model: Any) -> None:
        """Set ``train``, ``test`` (rows) and ``tokens_per_epoch``."""
        self.special(model)
        self.train, self.test = self._rows(self.job.texts.train), self._rows(self.job.texts.dev)
        self.tokens_per_epoch = sum(self.counted(row) for row in self.train)

    @abstractmethod
    def special(self, model: Any) -> None:
        """Set ``before`` and ``behind``, the special tokens around a row's text, and what else is needed."""

    def counted(self, row: Row) -> int:
        """Units of text in a row."""
        return len(row) - len(self.before) - len(self.behind)

    before: list[int]
    behind: list[int]

    def _rows(self, texts: Sequence[Text]) -> list[Row]:
        room = self.width - len(self.before) - len(self.behind)
        if room < 1:
            raise HarnessError(f"{self.source}: rows of {self.width} tokens have no room for text")
        # half a surrogate is nothing that a tokenizer reads
        raw = [t.text.encode("utf-8", "replace").decode() for t in texts]
        pieces = tokenise(self.tokenizer.backend, raw)
        cut = [p.cut(at, at + room) for p in pieces for at in range(0, len(p), room)]
        rows = [Pieces.join([_units(self.before), p, _units(self.behind)]) for p in cut]
        return [row for row in rows if len(row) >= self.shortest]

    def chosen(self, rng: np.random.Generator) -> list[np.ndarray]:
        """Numbers of rows by batch, rows of about one length together."""
        lengths = [len(row) for row in self.train]
        tokens = round(self.job.per_step(len(lengths)) * float(np.mean(lengths)))
        return batched(lengths, tokens, rng)

    def loss(self, model: Any, batch: Batch, carry: Any) -> Loss:
        shown = {k: v for k, v in batch.tensors.items() if k != "labels"}
        logits, gold = scores(model, shown, batch.tensors["labels"])
        if not len(gold):  # rows in which nothing can be predicted: no loss, and no gradient
            return Loss(logits.sum() * 0.0, 0.0, 0)
        mean = F.cross_entropy(logits, gold)
        return Loss(mean, float(mean.detach()) * len(gold), len(gold))

    def _language_model(self) -> Any:
        """The checkpoint's model with its decoder, the layers those of the encoder."""
        import transformers

        kind: Any = transformers.AutoModelForCausalLM if self.causal else transformers.AutoModelForMaskedLM
        config = self.encoder.model.config
        try:
            with quiet():
                if self.job.random_init:
                    model = kind.from_config(config, dtype=torch.float32)
                else:
                    model = self._pretrained(kind, config)
        except HarnessError:
            raise
        except Exception as e:
            what = f"{'causal' if self.causal else 'masked'} language model"
            raise HarnessError(
                f"{self.source}: no {what} can be made of it ({type(e).__name__}: {e}); "
                "leave strategy.adapt out"
            ) from e
        model.base_model.load_state_dict(self.encoder.model.state_dict(), strict=False)
        model.config.use_cache = False
        return model

    def _pretrained(self, kind: Any, config: Any) -> Any:
        model, info = kind.from_pretrained(
            str(self.source),
            config=config,
            dtype=torch.float32,
            local_files_only=True,
            use_safetensors=any(name.endswith(".safetensors") for name in self.files),
            weights_only=True,
            output_loading_info=True,
        )
        inner = {id(p) for p in model.base_model.parameters()}
        missing = set(info["missing_keys"])
        self.fresh = sorted(
            name for name, p in model.named_parameters() if name in missing and id(p) not in inner
        )
        if self.fresh:
            self.notes.append(
                "the checkpoint has no decoder: one was made on its embedding table and trained first, "
                "the encoder held still"
            )
        return model

    def save(self, model: Any, folder: Path) -> None:
        """The encoder as it was found, its weights adapted, its tokenizer's files copied."""
        its = self.encoder.model
        _, unexpected = its.load_state_dict(model.base_model.state_dict(), strict=False)
        assert not unexpected
        with quiet():
            its.save_pretrained(folder)
        for name, path in self.files.items():
            if name != CONFIG and not name.endswith((".safetensors", ".bin", ".index.json")):
                shutil.copyfile(path, folder / name)

    def vocabulary_size(self) -> int:
        return len(self.encoder.model.get_input_embeddings().weight)


def scores(model: Any, tensors: Mapping[str, Tensor], labels: Tensor) -> tuple[Tensor, Tensor]:
    """Scores (N, V) where there is a label, and these labels (N,): the decoder sees nothing else.

    Every decoder works place by place, so its input is replaced by the wanted states in one row.
    """
    at = labels != IGNORE_INDEX

    def pick(module: nn.Module, given: Any, out: Any) -> Any:
        out.last_hidden_state = out.last_hidden_state[at][None]
        return out

    handle = model.base_model.register_forward_hook(pick)
    try:
        logits: Tensor = model(**tensors, return_dict=True).logits
    finally:
        handle.remove()
    return logits[0].float(), labels[at]


def summed(model: Any, tensors: Mapping[str, Tensor], labels: Tensor) -> tuple[float, int]:
    """Nats of all labels together, and how many there are."""
    logits, gold = scores(model, tensors, labels)
    return float(F.cross_entropy(logits, gold, reduction="sum")), len(gold)


def placed(config: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The encoder's configuration with its files in ``folder``."""
    return {**config, "path": str(folder)}


def _units(ids: Sequence[int]) -> Pieces:
    return Pieces(np.array(ids, dtype=np.int64), np.zeros(len(ids), dtype=np.int64))


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """No progress bars and no table of loaded keys: they are judged here."""
    from transformers.utils import logging

    bar, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bar:
            logging.enable_progress_bar()
