"""ELMo: the language model of both directions goes on, as the paper did before its tasks (Peters et al. 2018,
supplement A.1).

A text is a row, its words those of the task. The softmax is the one beside the weights where there is one
(``harness pretrain`` leaves it: ``softmax.safetensors`` and ``vocabulary.txt``); the published files have
none, so one is made over the words of the training texts and trained first. It is not needed after that.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np

from harness.adaptation.job import Job, Told
from harness.adaptation.trainer import Continued, continue_training, usual_recipe
from harness.encoders.elmo.files import WEIGHTS, elmo_files
from harness.errors import HarnessError
from harness.pretraining.base import HeldOut
from harness.pretraining.objectives.bilm import FULL_MOST, LONGEST, BiLMObjective, Line
from harness.pretraining.objectives.bilm_model import MARKERS, UNKNOWN, BiLM
from harness.pretraining.text.corpus import Corpus

SOFTMAX, VOCABULARY = "softmax.safetensors", "vocabulary.txt"
ADAPTIVE = "adaptive.head.weight"
"""Only an adaptive softmax has it."""


def adapt(job: Job) -> Told:
    """Continue ELMo's language model."""
    return continue_training(ElmoTexts(job))


class ElmoTexts(BiLMObjective, Continued):
    """See the module."""

    def __init__(self, job: Job) -> None:
        self.encoder = job.load()
        BiLMObjective.__init__(
            self,
            self.encoder.options,
            usual_recipe(job, weight_decay=0.0),
            max_vocabulary=1_000_000,
            min_frequency=1,
            softmax="auto",
            row_words=LONGEST,
            batch_words=1,
        )
        Continued.__init__(self, job)
        # a text stands where a corpus has a document
        parts = [tuple((t,) for t in part) for part in (job.texts.train, job.texts.dev)]
        BiLMObjective.prepare(self, Corpus(cast(Any, parts[0]), cast(Any, parts[1]), ""), seed=job.seed)
        count = len(job.texts.train)
        self.batch_words = max(1, round(job.per_step(count) * self.tokens_per_epoch / count))

    def _numbered(self, document: Any) -> list[Line]:
        return [
            np.array([self.types.setdefault(w, len(self.types)) for w in text.words], np.int64)
            for text in document
        ]

    def build(self) -> BiLM:
        found = None if self.job.random_init else self._softmax()
        if found is None:
            many = len(self.words) > FULL_MOST
            model = BiLM(self.encoder, len(self.words), adaptive=many)
            if not self.job.random_init:
                self.fresh = [n for n, _ in model.named_parameters() if not n.startswith("encoder.")]
                self.notes.append(
                    f"the files have no softmax: one over {len(self.words)} words of the training texts was "
                    "trained first, the encoder held still"
                )
            return model.train()
        words, weights, where = found
        self._known(words)
        model = BiLM(self.encoder, len(words), adaptive=ADAPTIVE in weights)
        own = {k: v for k, v in model.state_dict().items() if not k.startswith("encoder.")}
        if {k: v.shape for k, v in own.items()} != {k: v.shape for k, v in weights.items()}:
            raise HarnessError(f"{where}: is not the softmax of {VOCABULARY} and of the weights beside it")
        model.load_state_dict({k: v.float() for k, v in weights.items()}, strict=False)
        return model.train()

    def _softmax(self) -> tuple[list[str], dict[str, Any], Path] | None:
        """Words, weights and file of the softmax beside the encoder's weights."""
        from safetensors.torch import load_file

        folder = elmo_files(self.job.encoder, self.job.cache_dir)[WEIGHTS].parent
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

    def _known(self, words: list[str]) -> None:
        """The softmax's classes; words it lacks share that of unknown ones."""
        place = {word: i for i, word in enumerate(words) if i >= len(MARKERS)}
        unknown = MARKERS.index(UNKNOWN)
        self.words = words
        self.classes = np.array([place.get(word, unknown) for word in self.types], dtype=np.int64)

    def save(self, model: BiLM, folder: Path) -> None:
        model.encoder.save(folder)

    def measured(self, held: HeldOut) -> dict[str, float]:
        per_word = held.word_perplexity if held.words else None
        return {} if per_word is None else {"perplexity per word": per_word}


def placed(config: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The encoder's configuration with its files in ``folder``."""
    return {**config, "path": str(folder), "files": None}
