"""ELMo: continue the bidirectional language model, as the paper does (Peters et al. 2018, supplement A.1).

Each text is a row with the task's words. The softmax beside the weights is used if there is one (``harness
pretrain`` writes ``softmax.safetensors`` and ``vocabulary.txt``). The published files have none, so a new one
over the words of the training texts is trained first; it is not needed after adaptation.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import numpy as np
from torch import Tensor

from harness.adaptation.job import AdaptationJob, AdaptationResult
from harness.adaptation.trainer import (
    ContinuedObjective,
    continue_training,
    default_recipe,
    word_perplexity,
)
from harness.encoders.config import EncoderConfig
from harness.encoders.elmo.encoder import ElmoEncoder
from harness.encoders.elmo.files import WEIGHTS
from harness.errors import HarnessError
from harness.pretraining.base import EvalResult
from harness.pretraining.objectives.bilm import MAX_EVAL_ROW, MAX_FULL_SOFTMAX, BiLMObjective
from harness.pretraining.objectives.bilm_model import MARKERS, UNKNOWN, BiLM

SOFTMAX, VOCABULARY = "softmax.safetensors", "vocabulary.txt"
ADAPTIVE = "adaptive.head.weight"
"""A weight that only an adaptive softmax has."""
StoredSoftmax: TypeAlias = tuple[list[str], dict[str, Tensor], Path]
"""Words, weights and file of a softmax."""


def adapt(job: AdaptationJob) -> AdaptationResult:
    """Continue ELMo's language model."""
    return continue_training(ContinuedBiLM(job))


class ContinuedBiLM(BiLMObjective, ContinuedObjective[BiLM, None]):
    """See the module."""

    def __init__(self, job: AdaptationJob) -> None:
        self.encoder = job.load(ElmoEncoder)
        BiLMObjective.__init__(
            self,
            self.encoder.options,
            replace(default_recipe(job), weight_decay=0.0),
            max_vocabulary=1_000_000,
            min_frequency=1,
            softmax="auto",
            row_words=MAX_EVAL_ROW,
            batch_words=1,
        )
        ContinuedObjective.__init__(self, job)
        # each text is a document of one line
        train, test = ([[text.words] for text in part] for part in (job.texts.train, job.texts.dev))
        self.prepare_words(train, test)
        count = len(job.texts.train)
        self.batch_words = max(1, round(job.items_per_step(count) * self.tokens_per_epoch / count))

    def build(self) -> BiLM:
        stored = None if self.job.random_init else self._stored_softmax()
        return self._new_softmax() if stored is None else self._with_softmax(stored)

    def _new_softmax(self) -> BiLM:
        model = BiLM(self.encoder, len(self.words), adaptive=len(self.words) > MAX_FULL_SOFTMAX)
        if not self.job.random_init:
            self.new_parameters = [n for n, _ in model.named_parameters() if not n.startswith("encoder.")]
            self.notes.append(
                f"the files have no softmax: a new one over {len(self.words)} words of the training texts "
                "was trained first, with the encoder frozen"
            )
        return model.train()

    def _with_softmax(self, stored: StoredSoftmax) -> BiLM:
        words, weights, path = stored
        self._set_classes(words)
        model = BiLM(self.encoder, len(words), adaptive=ADAPTIVE in weights)
        expected = {k: v.shape for k, v in model.state_dict().items() if not k.startswith("encoder.")}
        if expected != {k: v.shape for k, v in weights.items()}:
            raise HarnessError(f"{path}: does not match {VOCABULARY} and the weights beside it")
        model.load_state_dict({k: v.float() for k, v in weights.items()}, strict=False)
        return model.train()

    def _stored_softmax(self) -> StoredSoftmax | None:
        """Read the softmax beside the encoder's weights; None if there is none."""
        from safetensors.torch import load_file

        folder = self.job.encoder.files(self.job.cache_dir)[WEIGHTS].parent
        if not (folder / SOFTMAX).is_file() or not (folder / VOCABULARY).is_file():
            return None
        try:
            words = (folder / VOCABULARY).read_text(encoding="utf-8").removesuffix("\n").split("\n")
            weights = dict(load_file(folder / SOFTMAX))
        except Exception as e:
            raise HarnessError(f"{folder / SOFTMAX}: cannot be read ({type(e).__name__}: {e})") from e
        if tuple(words[: len(MARKERS)]) != MARKERS:
            raise HarnessError(f"{folder / VOCABULARY}: does not begin with {', '.join(MARKERS)}")
        return words, weights, folder / SOFTMAX

    def _set_classes(self, words: list[str]) -> None:
        """Use the classes of a softmax; words that it does not have share the class of unknown ones."""
        class_of = {word: i for i, word in enumerate(words) if i >= len(MARKERS)}
        unknown = MARKERS.index(UNKNOWN)
        self.words = words
        self.classes = np.array([class_of.get(word, unknown) for word in self.types], dtype=np.int64)

    def save(self, model: BiLM, folder: Path) -> None:
        model.encoder.save(folder)

    def measures(self, result: EvalResult) -> dict[str, float]:
        return word_perplexity(result)


def adapted_config(encoder: EncoderConfig, folder: Path) -> EncoderConfig:
    """The encoder's configuration with its files in ``folder``."""
    return encoder.with_options(path=str(folder), files=None)
