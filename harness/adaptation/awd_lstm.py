"""AWD-LSTMs: the second stage of ULMFiT (Howard & Ruder 2018, section 3.2), forwards or backwards.

The rate is a slanted triangle and falls by 2.6 from each layer to the one below; table and decoder, which
are one, move at the full rate. Dropout is the encoder's own. Where ``encoder.vocabulary`` is ``task``, tokens
of the training texts that the table lacks and that are there at least twice get rows of their own, at first
its mean, as in the published code; rarer ones are the unknown word.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from harness.adaptation.job import Job, Told
from harness.adaptation.trainer import Continued, continue_training, usual_recipe
from harness.data.text import Text
from harness.encoders.awd_lstm.checkpoint import write_model
from harness.encoders.awd_lstm.fastai_rules import BOS, MAJ, REP, UNKNOWN, UP, WREP, Token, fastai_tokens
from harness.encoders.awd_lstm.model import AwdLstmLM, Dropouts
from harness.pretraining.base import HeldOut
from harness.pretraining.objectives.word_lm import WordLM
from harness.pretraining.text.packing import beginnings

FALL = 2.6
LEAST = 2
"""Occurrences from which on a new token has a row."""
BPTT = 70
ALPHA, BETA = 2.0, 1.0
"""Of the regularisation of activations (Merity et al. 2018, section 5)."""


def adapt(job: Job) -> Told:
    """Continue an AWD-LSTM's language model."""
    return continue_training(WordTexts(job))


class WordTexts(WordLM, Continued):
    """See the module."""

    def __init__(self, job: Job) -> None:
        # betas: Howard & Ruder 2018, section 4.1
        recipe = usual_recipe(
            job, schedule="slanted", warmup=0.1, betas=(0.7, 0.99), weight_decay=0.0, max_grad_norm=0.25
        )
        WordLM.__init__(
            self,
            {},
            Dropouts(),
            recipe,
            backwards=False,
            max_vocabulary=1,
            min_frequency=LEAST,
            batch_rows=1,
            bptt=BPTT,
            alpha=ALPHA,
            beta=BETA,
        )
        Continued.__init__(self, job)

    def build(self) -> AwdLstmLM:
        self.encoder = self.job.load()
        self.backwards, vocabulary = self.encoder.backwards, self.encoder.vocabulary
        texts = self.job.texts
        train, test = ([self._read(t) for t in part] for part in (texts.train, texts.dev))
        if vocabulary.task:
            self._grow(train)
        self.unknown = vocabulary.ids.get(UNKNOWN, len(vocabulary.words))
        self.begin = vocabulary.number(BOS)
        self._rows = vocabulary.ids | {w: vocabulary.number(w) for w in vocabulary.extend([])}
        self.train, self.test = ([self._numbered(*row) for row in part] for part in (train, test))
        self.tokens_per_epoch = sum(map(len, self.train))
        self.batch_rows = self.job.per_step(max(1, self.tokens_per_epoch // BPTT))
        model, self.words = self.encoder.language_model()
        return model.train()

    def _read(self, text: Text) -> tuple[list[str], np.ndarray]:
        """Tokens of a text, and for each the words that begin in it; no marker the model does not know."""
        tokens = [t for t in fastai_tokens(text.text) if not self._left_out(t)]
        return [t.text for t in tokens], beginnings(text.text, [t.end for t in tokens])

    def _left_out(self, token: Token) -> bool:
        marker = token.marker and token.text in (UP, MAJ, REP, WREP)
        return marker and not self.encoder.vocabulary.known(token.text)

    def _grow(self, rows: Sequence[tuple[list[str], np.ndarray]]) -> None:
        vocabulary = self.encoder.vocabulary
        counts = Counter(token for tokens, _ in rows for token in tokens)
        new = {t for t, n in counts.items() if n >= LEAST and not vocabulary.known(t)}
        vocabulary.extend(new | ({BOS} - vocabulary.ids.keys()))
        self.encoder.fit_table()
        if new:
            self.notes.append(f"{len(new)} tokens of the training texts got vectors of their own")

    def speeds(self, model: AwdLstmLM) -> list[tuple[list[nn.Parameter], float]]:
        rnns = list(model.core.rnns)
        layers = [(list(rnn.parameters()), FALL ** (i + 1 - len(rnns))) for i, rnn in enumerate(rnns)]
        return [([*model.core.table.parameters(), model.bias], 1.0), *layers]

    def save(self, model: AwdLstmLM, folder: Path) -> None:
        """As :func:`harness.encoders.awd_lstm.checkpoint.write_model`, without the row that new words shared:
        those that are still new shall be new to the cell as well."""
        weights, words = dict(model.weights()), list(self.words)
        if self.encoder.vocabulary.task:
            shared = len(self.encoder.vocabulary.words)
            keep = torch.tensor([i for i in range(len(words)) if i != shared])
            for name in ("table.weight", "decoder.bias"):
                weights[name] = weights[name][keep]
            del words[shared]
        write_model(folder, weights, words, backwards=self.backwards)

    def measured(self, held: HeldOut) -> dict[str, float]:
        per_word = held.word_perplexity if held.words else None
        return {} if per_word is None else {"perplexity per word": per_word}


def placed(config: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The encoder's configuration with its files in ``folder``."""
    names = {"weights": "model.safetensors", "vocabulary": "vocabulary.json", "options": "options.json"}
    return {**config, "path": None, "files": {role: str(folder / name) for role, name in names.items()}}
