"""Tagging metrics, computed from per-sentence statistics (:mod:`harness.data.statistics`).

With c correct, p predicted and g gold entities over all sentences, an entity being correct when its type and
both ends agree::

    precision = c / p      recall = c / g      F1 = 2 * precision * recall / (precision + recall)

and 0 where a denominator is 0. ``span_*`` reads labels by conlleval's rule (:func:`schemes.entities`),
``strict_span_f1`` by strict IOB2 (:func:`schemes.strict_entities`). Either may be the higher one.

Columns: ``correct``, ``predicted`` and ``gold`` entities, ``strict/...``, ``type/PER/...`` per type,
``label/B-PER/...`` per label of labelled characters, ``tag/NOUN/...`` per plain label, ``words`` and
``words/right``. ``surface_f1`` is over the distinct forms of the whole text and not a sum over sentences, so
it has no columns and no confidence interval. This module imports neither torch nor datasets.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from harness.data.statistics import ClassCounts, ExampleStats, MetricFromStats, Scores, pick, ratio
from harness_tasks.tagging.schemes import OUTSIDE, entities, strict_entities

Labels = Sequence[str]

PARTS = ("correct", "predicted", "gold")
STRICT = tuple(f"strict/{part}" for part in PARTS)
MACRO = "character_macro_f1"
WORDS = ("words/right", "words")


def example_stats(
    gold: Sequence[Labels], predicted: Sequence[Labels], *, spans: bool = True, characters: bool = False
) -> ExampleStats:
    """Statistics of N sentences.

    Args:
        gold, predicted: N label sequences (IOB2 unless the labels are plain), of equal length pairwise.
        spans: count entities; False for plain labels, whose counts per label are kept instead.
        characters: the labels are those of characters; count each label for ``character_macro_f1``.
    """
    names, columns = [*WORDS], [token_counts(gold, predicted)]
    if spans:
        names += [*PARTS, *STRICT]
        columns += [span_counts(gold, predicted), span_counts(gold, predicted, strict=True)]
        types, by_type = _by_type(gold, predicted)
        names += [f"type/{kind}/{part}" for kind in types for part in PARTS]
        columns.append(by_type)
    if characters or not spans:
        prefix, ignored = ("label", OUTSIDE) if characters else ("tag", None)
        labels, by_label = _by_label(gold, predicted, ignored=ignored)
        names += [f"{prefix}/{label}/{part}" for label in labels for part in PARTS]
        columns.append(by_label)
    return ExampleStats(tuple(names), np.hstack(columns).astype(np.float64))


def span_counts(gold: Sequence[Labels], predicted: Sequence[Labels], *, strict: bool = False) -> np.ndarray:
    """(N, 3) int64: correct, predicted and gold entities of each sentence.

    Args:
        gold, predicted: N sequences of IOB2 labels, of equal length pairwise.
        strict: read both by strict IOB2 instead of conlleval's rule.
    """
    read = strict_entities if strict else entities
    counts = np.zeros((len(gold), 3), dtype=np.int64)
    for i, (g, p) in enumerate(zip(gold, predicted, strict=True)):
        # entities are (type, start, end): the intersection holds those with equal type and ends
        gold_set, predicted_set = set(read(g)), set(read(p))
        counts[i] = len(gold_set & predicted_set), len(predicted_set), len(gold_set)
    return counts


def token_counts(gold: Sequence[Labels], predicted: Sequence[Labels]) -> np.ndarray:
    """(N, 2) int64: correctly labelled words and words of each sentence."""
    pairs = zip(gold, predicted, strict=True)
    counts = [(sum(a == b for a, b in zip(g, p, strict=True)), len(g)) for g, p in pairs]
    # the reshape keeps two columns if there are no sentences
    return np.array(counts, dtype=np.int64).reshape(-1, 2)


def _by_label(
    gold: Sequence[Labels], predicted: Sequence[Labels], *, ignored: str | None
) -> tuple[list[str], np.ndarray]:
    """The labels that occur, without ``ignored``, and (N, 3 L) counts: correct, predicted, gold per label."""
    labels = sorted({x for side in (gold, predicted) for sequence in side for x in sequence} - {ignored})
    first = {label: 3 * i for i, label in enumerate(labels)}
    out = np.zeros((len(gold), 3 * len(labels)), dtype=np.int64)
    # each row is a view of `out`, so that adding to it fills the table
    for row, gold_labels, predicted_labels in zip(out, gold, predicted, strict=True):
        for g, p in zip(gold_labels, predicted_labels, strict=True):
            # gold NOUN, predicted VERB: (ignored, VERB, NOUN) counts a predicted VERB and a gold NOUN, and
            # nothing as correct
            for part, label in enumerate((g if g == p else ignored, p, g)):
                if label is not None and label != ignored:
                    row[first[label] + part] += 1
    return labels, out


def _by_type(gold: Sequence[Labels], predicted: Sequence[Labels]) -> tuple[list[str], np.ndarray]:
    """The entity types that occur, and (N, 3 T) counts: correct, predicted, gold entities per type."""
    pairs = [(set(entities(g)), set(entities(p))) for g, p in zip(gold, predicted, strict=True)]
    # entity[0] is the type
    types = sorted({entity[0] for g, p in pairs for entity in g | p})
    first = {kind: 3 * i for i, kind in enumerate(types)}
    out = np.zeros((len(pairs), 3 * len(types)), dtype=np.int64)
    for row, (g, p) in zip(out, pairs, strict=True):
        for part, counted in enumerate((g & p, p, g)):
            for entity in counted:
                row[first[entity[0]] + part] += 1
    return types, out


def score_tokens(gold: Sequence[Labels], predicted: Sequence[Labels]) -> dict[str, float]:
    """``token_accuracy`` over all words."""
    return FROM_STATS.compute(ExampleStats(WORDS, token_counts(gold, predicted).astype(np.float64)))


def score_spans(
    gold: Sequence[Labels],
    predicted: Sequence[Labels],
    *,
    words: Sequence[Sequence[str]] | None = None,
    characters: bool = False,
) -> dict[str, float]:
    """Compute all scores of entity labels.

    Args:
        gold, predicted: N sequences of IOB2 labels, of equal length pairwise.
        words: the words (or characters), for ``surface_f1``; without them it is left out.
        characters: the labels are those of characters.

    Returns:
        ``span_f1``, ``span_precision``, ``span_recall`` (conlleval), ``strict_span_f1``, ``token_accuracy``,
        ``surface_f1``, ``f1/<TYPE>`` (conlleval) for each type in gold or predictions, and, for characters,
        ``character_macro_f1``.
    """
    scores = FROM_STATS.compute(example_stats(gold, predicted, characters=characters))
    if words is not None:
        scores["surface_f1"] = surface_f1(gold, predicted, words=words)
    if characters:
        scores.setdefault(MACRO, 0.0)  # neither side has a label other than O
    return scores


def surface_f1(
    gold: Sequence[Labels], predicted: Sequence[Labels], *, words: Sequence[Sequence[str]]
) -> float:
    """F1 over distinct surface forms (Derczynski et al. 2017, section 5): each pair of a type and the words
    of an entity counts once, and is correct when the entity was found at one of its positions."""
    gold_forms: set[tuple[str, ...]] = set()
    predicted_forms: set[tuple[str, ...]] = set()
    # (PER, John) in three sentences, found in one of them: one gold form and one correct form
    correct_forms: set[tuple[str, ...]] = set()
    for g, p, w in zip(gold, predicted, words, strict=True):
        gold_set, predicted_set = set(entities(g)), set(entities(p))
        for spans, forms in (
            (gold_set, gold_forms),
            (predicted_set, predicted_forms),
            (gold_set & predicted_set, correct_forms),
        ):
            forms.update((kind, *w[a:b]) for kind, a, b in spans)
    counts = (np.asarray(len(forms)) for forms in (correct_forms, predicted_forms, gold_forms))
    return float(f1(*counts))


def f1(correct: np.ndarray, predicted: np.ndarray, gold: np.ndarray) -> np.ndarray:
    """F1 as conlleval and seqeval compute it, from precision and recall, so that it agrees with them to the
    last digit; 2 c / (p + g) is the same number rounded differently."""
    precision, recall = ratio(correct, predicted), ratio(correct, gold)
    return ratio(2 * precision * recall, precision + recall)


def _columns(metric: str, names: Sequence[str]) -> list[str]:
    if metric.startswith("f1/") and PARTS[0] in names:
        return [f"type/{metric.removeprefix('f1/')}/{part}" for part in PARTS]
    if metric == MACRO:
        return [name for name in names if name.startswith("label/")]
    needed = {
        "span_f1": [*PARTS],
        "span_precision": [*PARTS[:2]],
        "span_recall": [PARTS[0], PARTS[2]],
        "strict_span_f1": [*STRICT],
        "token_accuracy": [*WORDS],
    }.get(metric, [])
    return needed if set(needed) <= set(names) else []


def _scores(sums: np.ndarray, names: Sequence[str]) -> Scores:
    out: Scores = {}
    correct, predicted, gold = pick(sums, names, *PARTS)
    if PARTS[0] in names:
        # pick() fills missing columns with zeros: only the metrics whose columns exist are computed
        out |= {"span_f1": f1(correct, predicted, gold)} if set(PARTS) <= set(names) else {}
        out |= {"span_precision": ratio(correct, predicted)} if PARTS[1] in names else {}
        out |= {"span_recall": ratio(correct, gold)} if PARTS[2] in names else {}
    if STRICT[0] in names:
        out["strict_span_f1"] = f1(*pick(sums, names, *STRICT))
    if WORDS[0] in names:
        out["token_accuracy"] = ratio(*pick(sums, names, *WORDS))
    for kind in _groups(names, "type"):
        out[f"f1/{kind}"] = f1(*pick(sums, names, *(f"type/{kind}/{part}" for part in PARTS)))
    if labels := _groups(names, "label"):
        out[MACRO] = _macro_f1(sums, names, labels)
    return out


def _macro_f1(sums: np.ndarray, names: Sequence[str], labels: Sequence[str]) -> np.ndarray:
    """Mean F1 of the labels that occur in gold or predictions."""
    # (..., labels) each
    correct, predicted, gold = (
        np.stack(pick(sums, names, *(f"label/{label}/{part}" for label in labels)), axis=-1) for part in PARTS
    )
    # cumsum adds from left to right; sum() would add pairwise and could change the last digit
    total = f1(correct, predicted, gold).cumsum(axis=-1)[..., -1]
    return ratio(total, (predicted + gold > 0).sum(axis=-1))


def _groups(names: Sequence[str], prefix: str) -> list[str]:
    """X of each group of columns ``prefix/X/...``."""
    # a label may itself contain a slash, so the name is cut from both ends instead of split
    start, end = f"{prefix}/", f"/{PARTS[2]}"
    return [n.removeprefix(start).removesuffix(end) for n in names if n.startswith(start) and n.endswith(end)]


def _degenerate(sums: np.ndarray, names: Sequence[str]) -> str:
    """No entity is predicted although there are some."""
    _, predicted, gold = pick(sums, names, *PARTS)
    return "predicts no entity" if PARTS[1] in names and gold > 0 and predicted == 0 else ""


def _undefined(sums: np.ndarray, names: Sequence[str], metric: str) -> str:
    """A score of entities is requested where there are none."""
    column = {"span_f1": PARTS[2], "span_recall": PARTS[2], "strict_span_f1": STRICT[2]}.get(metric)
    if metric.startswith("f1/"):
        column = f"type/{metric.removeprefix('f1/')}/{PARTS[2]}"
    if column is None:
        return ""
    (gold,) = pick(sums, names, column)
    return "there is no such entity" if gold == 0 else ""


def _per_class(sums: np.ndarray, names: Sequence[str]) -> list[ClassCounts]:
    total = dict(zip(names, sums.tolist(), strict=True))
    for prefix in ("type", "tag"):
        if groups := _groups(names, prefix):
            return [ClassCounts(g, *(total[f"{prefix}/{g}/{part}"] for part in PARTS)) for g in groups]
    return []


FROM_STATS = MetricFromStats(
    _scores, _columns, degenerate=_degenerate, undefined=_undefined, per_class=_per_class
)
