"""AWD-LSTMs: the second stage of ULMFiT (Howard & Ruder 2018, section 3.2), forwards or backwards.

The learning rate follows a slanted triangle and decreases by a factor of 2.6 from each layer to the one below
(discriminative learning rates); the tied embedding table and decoder use the full rate. Dropout is the
encoder's. With ``encoder.vocabulary=task``, tokens of the training texts that are not in the table and occur
at least twice get rows of their own, initialised to the table's mean as in the published code; rarer ones are
the unknown word.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from torch import nn

from harness.adaptation.job import AdaptationJob, AdaptationResult
from harness.adaptation.trainer import (
    ContinuedObjective,
    continue_training,
    default_recipe,
    word_perplexity,
)
from harness.data.text import Text
from harness.encoders.awd_lstm.checkpoint import write_model
from harness.encoders.awd_lstm.encoder import AwdLstmEncoder
from harness.encoders.awd_lstm.fastai_rules import (
    BOS,
    MAJ,
    REP,
    UNKNOWN,
    UP,
    WREP,
    FastaiToken,
    fastai_tokens,
)
from harness.encoders.awd_lstm.model import AwdLstmLM, Dropouts, Hidden
from harness.encoders.config import EncoderConfig
from harness.pretraining.base import EvalResult
from harness.pretraining.objectives.word_lm import WordLM
from harness.pretraining.text.packing import count_word_starts

LAYER_FACTOR = 2.6
MIN_COUNT = 2
"""Number of occurrences from which on a new token gets a row."""
BPTT = 70
ALPHA, BETA = 2.0, 1.0
"""Weights of activation regularisation (Merity et al. 2018, section 5)."""
Tokens: TypeAlias = tuple[list[str], np.ndarray]
"""Tokens of a text, and the number of words that begin in each."""


def adapt(job: AdaptationJob) -> AdaptationResult:
    """Continue an AWD-LSTM's language model."""
    return continue_training(ContinuedWordLM(job))


class ContinuedWordLM(WordLM, ContinuedObjective[AwdLstmLM, Hidden]):
    """See the module.

    Attributes:
        encoder: set by :meth:`build`.
    """

    encoder: AwdLstmEncoder

    def __init__(self, job: AdaptationJob) -> None:
        WordLM.__init__(
            self,
            {},
            Dropouts(),
            # betas: Howard & Ruder 2018, section 4.1
            replace(
                default_recipe(job),
                schedule="slanted",
                warmup=0.1,
                betas=(0.7, 0.99),
                weight_decay=0.0,
                max_grad_norm=0.25,
            ),
            backwards=False,
            max_vocabulary=1,
            min_frequency=MIN_COUNT,
            batch_rows=1,
            bptt=BPTT,
            alpha=ALPHA,
            beta=BETA,
        )
        ContinuedObjective.__init__(self, job)

    def build(self) -> AwdLstmLM:
        self.encoder = self.job.load(AwdLstmEncoder)
        self.backwards, vocabulary = self.encoder.backwards, self.encoder.vocabulary
        texts = self.job.texts
        train, test = ([self._tokens(t) for t in part] for part in (texts.train, texts.dev))
        if vocabulary.task:
            self._extend_vocabulary(train)
        self.unknown = vocabulary.ids.get(UNKNOWN, len(vocabulary.words))
        self.begin = vocabulary.id_of(BOS)
        self.word_ids = vocabulary.ids | {w: vocabulary.id_of(w) for w in vocabulary.extend([])}
        self.train, self.test = ([self.to_ids(*tokens) for tokens in part] for part in (train, test))
        self.tokens_per_epoch = sum(map(len, self.train))
        self.batch_rows = self.job.items_per_step(max(1, self.tokens_per_epoch // BPTT))
        model, self.words = self.encoder.language_model()
        return model.train()

    def _tokens(self, text: Text) -> Tokens:
        """Tokenize a text, without the markers that the model does not know."""
        tokens = [t for t in fastai_tokens(text.text) if not self._is_unknown_marker(t)]
        return [t.text for t in tokens], count_word_starts(text.text, [t.end for t in tokens])

    def _is_unknown_marker(self, token: FastaiToken) -> bool:
        marker = token.marker and token.text in (UP, MAJ, REP, WREP)
        return marker and not self.encoder.vocabulary.known(token.text)

    def _extend_vocabulary(self, rows: Sequence[Tokens]) -> None:
        vocabulary = self.encoder.vocabulary
        counts = Counter(token for tokens, _ in rows for token in tokens)
        new = {t for t, n in counts.items() if n >= MIN_COUNT and not vocabulary.known(t)}
        vocabulary.extend(new | ({BOS} - vocabulary.ids.keys()))
        self.encoder.fit_table()
        if new:
            self.notes.append(f"{len(new)} tokens of the training texts were added to the vocabulary")

    def param_groups(self, model: AwdLstmLM) -> list[tuple[list[nn.Parameter], float]]:
        # three layers: factors 2.6^-2, 2.6^-1 and 1 from the bottom to the top
        rnns = list(model.core.rnns)
        layers = [(list(rnn.parameters()), LAYER_FACTOR ** (i + 1 - len(rnns))) for i, rnn in enumerate(rnns)]
        return [([*model.core.table.parameters(), model.bias], 1.0), *layers]

    def save(self, model: AwdLstmLM, folder: Path) -> None:
        """Save the model without the row that unknown new words shared during adaptation.

        Words that still have no row must be new to the cell as well.
        """
        weights, words = dict(model.weights()), list(self.words)
        if self.encoder.vocabulary.task:
            shared = len(self.encoder.vocabulary.words)
            rows = torch.tensor([i for i in range(len(words)) if i != shared])
            for name in ("table.weight", "decoder.bias"):
                weights[name] = weights[name][rows]
            del words[shared]
        write_model(folder, weights, words, backwards=self.backwards)

    def measures(self, result: EvalResult) -> dict[str, float]:
        return word_perplexity(result)


def adapted_config(encoder: EncoderConfig, folder: Path) -> EncoderConfig:
    """The encoder's configuration with its files in ``folder``."""
    names = {"weights": "model.safetensors", "vocabulary": "vocabulary.json", "options": "options.json"}
    files = {role: str(folder / name) for role, name in names.items()}
    return encoder.with_options(path=None, files=files)
