"""Scores of label sequences: spans as conlleval and as strict IOB2 count them, surface forms, tokens.

With c correct, p predicted and g gold entities over all sentences, an entity being correct when type and both
ends agree::

    precision = c / p      recall = c / g      F1 = 2 * precision * recall / (precision + recall)

and 0 where a denominator is 0. ``span_*`` reads predictions by conlleval's rule (:func:`schemes.entities`),
``strict_span_f1`` by :func:`schemes.strict_entities`. Either may be the higher one. Neither torch nor
datasets is imported here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from harness_tasks.tagging.schemes import OUTSIDE, entities, strict_entities

Labels = Sequence[str]


def span_counts(gold: Sequence[Labels], predicted: Sequence[Labels], *, strict: bool = False) -> np.ndarray:
    """Counts that resampling adds up: (N, 3) int64, correct, predicted and gold entities of each sentence.

    Args:
        gold, predicted: N sequences of IOB2 labels, equally long pair by pair.
        strict: read both by strict IOB2 rather than by conlleval's rule.
    """
    read = strict_entities if strict else entities
    counts = np.zeros((len(gold), 3), dtype=np.int64)
    for i, (g, p) in enumerate(zip(gold, predicted, strict=True)):
        want, got = set(read(g)), set(read(p))
        counts[i] = len(want & got), len(got), len(want)
    return counts


def prf(correct: int, predicted: int, gold: int) -> tuple[float, float, float]:
    """Precision, recall and F1 of counts."""
    precision = correct / predicted if predicted else 0.0
    recall = correct / gold if gold else 0.0
    total = precision + recall
    return precision, recall, 2 * precision * recall / total if total else 0.0


def token_counts(gold: Sequence[Labels], predicted: Sequence[Labels]) -> np.ndarray:
    """(N, 2) int64: words labelled right and words of each sentence."""
    pairs = zip(gold, predicted, strict=True)
    counts = [(sum(a == b for a, b in zip(g, p, strict=True)), len(g)) for g, p in pairs]
    return np.array(counts, dtype=np.int64).reshape(-1, 2)


def score_tokens(gold: Sequence[Labels], predicted: Sequence[Labels]) -> dict[str, float]:
    """``token_accuracy`` over all words."""
    right, total = token_counts(gold, predicted).sum(axis=0).tolist()
    return {"token_accuracy": right / total if total else 0.0}


def score_spans(
    gold: Sequence[Labels], predicted: Sequence[Labels], *, words: Sequence[Sequence[str]] | None = None
) -> dict[str, float]:
    """All scores of entity labels.

    Args:
        gold, predicted: N sequences of IOB2 labels, equally long pair by pair.
        words: the words, for ``surface_f1``; left out without them.

    Returns:
        ``span_f1``, ``span_precision``, ``span_recall`` (conlleval), ``strict_span_f1``, ``token_accuracy``,
        ``surface_f1`` and ``f1/<TYPE>`` (conlleval) for each type that gold or predictions hold.
    """
    precision, recall, f1 = prf(*span_counts(gold, predicted).sum(axis=0).tolist())
    strict = prf(*span_counts(gold, predicted, strict=True).sum(axis=0).tolist())[2]
    scores = {"span_f1": f1, "span_precision": precision, "span_recall": recall, "strict_span_f1": strict}
    scores |= score_tokens(gold, predicted)
    if words is not None:
        scores["surface_f1"] = surface_f1(gold, predicted, words=words)
    return scores | {f"f1/{kind}": value for kind, value in f1_by_type(gold, predicted).items()}


def f1_by_type(gold: Sequence[Labels], predicted: Sequence[Labels]) -> dict[str, float]:
    """conlleval's F1 of each type that occurs in gold or predictions, by type in alphabetical order."""
    correct: Counter[str] = Counter()
    got: Counter[str] = Counter()
    want: Counter[str] = Counter()
    for g, p in zip(gold, predicted, strict=True):
        golds, guesses = set(entities(g)), set(entities(p))
        want.update(e[0] for e in golds)
        got.update(e[0] for e in guesses)
        correct.update(e[0] for e in golds & guesses)
    return {kind: prf(correct[kind], got[kind], want[kind])[2] for kind in sorted(want | got)}


def surface_f1(
    gold: Sequence[Labels], predicted: Sequence[Labels], *, words: Sequence[Sequence[str]]
) -> float:
    """F1 over distinct surface forms (Derczynski et al. 2017, section 5): each pair of a type and the words
    of an entity counts once, and is correct when the entity was found at one of its places."""
    want: set[tuple[str, ...]] = set()
    got: set[tuple[str, ...]] = set()
    correct: set[tuple[str, ...]] = set()
    for g, p, w in zip(gold, predicted, words, strict=True):
        golds, guesses = set(entities(g)), set(entities(p))
        for spans, forms in ((golds, want), (guesses, got), (golds & guesses, correct)):
            forms.update((kind, *w[a:b]) for kind, a, b in spans)
    return prf(len(correct), len(got), len(want))[2]


def macro_f1(gold: Sequence[Labels], predicted: Sequence[Labels]) -> float:
    """Mean of the F1 of each label over all tokens, for labels but ``O`` that occur in gold or predictions;
    0 when there are none."""
    want: Counter[str] = Counter()
    got: Counter[str] = Counter()
    right: Counter[str] = Counter()
    for g, p in zip(gold, predicted, strict=True):
        want.update(g)
        got.update(p)
        right.update(a for a, b in zip(g, p, strict=True) if a == b)
    labels = sorted({*want, *got} - {OUTSIDE})
    return sum(prf(right[x], got[x], want[x])[2] for x in labels) / len(labels) if labels else 0.0
