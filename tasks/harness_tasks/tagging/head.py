"""Dropout and a linear layer over the state of each word (Devlin et al. 2019, section 5.3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from harness.data.batch import Batch
from harness.data.targets import IGNORE_INDEX
from harness.data.text import Example
from harness.data.tokens import EncoderOutput, owned_word_states
from harness.task import HeadInput, Prediction
from harness_tasks.tagging.schemes import bridge


class TaggingHead(nn.Module):
    """Labels of words from the states of tokens.

    Args:
        spec: H and the dropout.
        labels: L labels, in the order of the outputs.
        fallback: label of a word without a token.
        word_pooling: ``first`` or ``mean``, see :func:`harness.data.tokens.word_states`.
        finish: converts an example's labels of words to the value of its prediction; None = unchanged.
    """

    def __init__(
        self,
        spec: HeadInput,
        *,
        labels: Sequence[str],
        fallback: str,
        word_pooling: str = "first",
        finish: Callable[[Example, list[str]], list[str]] | None = None,
    ) -> None:
        super().__init__()
        self.finish = finish
        self.labels = list(labels)
        self.fallback = fallback
        self.word_pooling = word_pooling
        self.dropout = nn.Dropout(spec.dropout)
        self.output = nn.Linear(spec.hidden_size, len(self.labels))

    def forward(self, encoded: tuple[EncoderOutput, ...], batch: Batch) -> dict[str, Tensor]:
        """``logits`` (B, W, L), zero for words that a window does not own."""
        tokens = batch.tokens[-1]
        rows, words, states = owned_word_states(encoded[-1].last_hidden_state, tokens, how=self.word_pooling)
        owned = self.output(self.dropout(states))
        logits = owned.new_zeros(*tokens.word_to_token.shape, len(self.labels))
        return {"logits": logits.index_put((rows, words), owned)}

    def loss(self, outputs: Mapping[str, Tensor], batch: Batch) -> tuple[Tensor, int]:
        """Sum of the cross entropies of the words with a target, and their number. Each word has its target
        in one window only."""
        targets = batch.targets["labels"]  # (B, W)
        logits = outputs["logits"].float()
        total = cross_entropy(
            logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORE_INDEX, reduction="sum"
        )
        return total, int((targets != IGNORE_INDEX).sum())

    def decode(self, outputs: Mapping[str, Tensor], batch: Batch) -> list[Prediction]:
        """One label per word, predicted in the window that owns the word.

        ``value`` is a list of W labels, converted by ``finish``, and ``scores`` the W * L logits, word by
        word; ``extra`` has ``shape`` [W, L], ``labels`` and, if there are any, ``no_tokens``: the words that
        the tokenizer deleted. Their logits are 0; inside an entity that continues after them they belong to
        it, elsewhere they get the fallback label.
        """
        logits = outputs["logits"].detach().float().cpu()
        owned = (batch.tokens[-1].word_to_token >= 0).cpu()
        return [
            self._prediction(logits[rows], owned[rows], example)
            for rows, example in zip(batch.groups, batch.examples, strict=True)
        ]

    def _prediction(self, logits: Tensor, owned: Tensor, example: Example) -> Prediction:
        """Join the windows (R, W, L) and (R, W) of one example; W may be padded beyond its words.

        Example: owned [[1, 1, 0], [0, 0, 1]] gives row [0, 0, 1]: the logits of words 0 and 1 come from the
            first
        window, those of word 2 from the second.
        """
        n_words = len(example.texts[-1])
        words = torch.arange(n_words)
        row = owned[:, :n_words].int().argmax(dim=0)
        seen = owned[:, :n_words].any(dim=0)
        joined = logits[row, words] * seen[:, None]  # (n_words, L)
        best = joined.argmax(dim=1).tolist() if n_words else []
        read = [self.labels[b] if s else None for b, s in zip(best, seen.tolist(), strict=True)]
        value = [self.fallback if label is None else label for label in bridge(read)]
        extra: dict[str, object] = {"shape": [n_words, len(self.labels)], "labels": self.labels}
        missing = [w for w, s in enumerate(seen.tolist()) if not s]
        if missing:
            extra["no_tokens"] = missing
        if self.finish is not None:
            value = self.finish(example, value)
        return Prediction(value=value, scores=joined.flatten().tolist(), extra=extra)
