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
from itertools import chain

import numpy as np

from harness.data.statistics import ClassCounts, ExampleStats, MetricFromStats, Scores, pick, ratio
from harness_tasks.tagging.schemes import OUTSIDE
from harness_tasks.tagging.span_arrays import LabelArrays, LabelParts, SpanArrays, matching
from harness_tasks.tagging.span_arrays import spans as find_spans

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
    return _stats(LabelArrays.of(gold, predicted), spans=spans, characters=characters)


def _stats(labels: LabelArrays, *, spans: bool, characters: bool) -> ExampleStats:
    names, columns = [*WORDS], [_token_counts(labels)]
    if spans:
        types, by_type = _type_counts(labels)
        names += [*PARTS, *STRICT, *(f"type/{kind}/{part}" for kind in types for part in PARTS)]
        columns += [_totals(by_type), _totals(_type_counts(labels, strict=True)[1]), _flat(by_type)]
    if characters or not spans:
        prefix, ignored = ("label", OUTSIDE) if characters else ("tag", None)
        kept, by_label = _label_counts(labels, ignored=ignored)
        names += [f"{prefix}/{label}/{part}" for label in kept for part in PARTS]
        columns.append(_flat(by_label))
    return ExampleStats(tuple(names), np.hstack(columns).astype(np.float64))


def span_counts(gold: Sequence[Labels], predicted: Sequence[Labels], *, strict: bool = False) -> np.ndarray:
    """(N, 3) int64: correct, predicted and gold entities of each sentence.

    Args:
        gold, predicted: N sequences of IOB2 labels, of equal length pairwise.
        strict: read both by strict IOB2 instead of conlleval's rule.
    """
    return _totals(_type_counts(LabelArrays.of(gold, predicted), strict=strict)[1])


def _token_counts(labels: LabelArrays) -> np.ndarray:
    """(N, 2) int64: correctly labelled words and words of each sentence."""
    right = labels.gold == labels.predicted
    return np.stack([labels.per_sequence(right), labels.per_sequence(np.ones_like(right))], axis=1)


def _totals(counts: np.ndarray) -> np.ndarray:
    """(N, 3) sums over the classes of (N, C, 3) counts."""
    return np.asarray(counts.sum(axis=1))


def _flat(counts: np.ndarray) -> np.ndarray:
    """(N, C, 3) counts as (N, 3 C) columns, class by class."""
    return counts.reshape(counts.shape[0], counts.shape[1] * counts.shape[2])


def _tally(size: int, classes: int, parts: Sequence[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """(N, C, 3) int64: the items of each of three parts, counted by sentence and class.

    Example: the items of sentences 0 0 1 with classes 1 1 0 give the counts [[0, 2], [1, 0]] of that part.

    Args:
        size: N.
        classes: C.
        parts: sentence and class of each item, for each of :data:`PARTS`.
    """
    cells = [np.bincount(s * classes + c, minlength=size * classes) for s, c in parts]
    return np.stack([cell.reshape(size, classes) for cell in cells], axis=-1)


def _label_counts(labels: LabelArrays, *, ignored: str | None) -> tuple[list[str], np.ndarray]:
    """The labels that occur, without ``ignored``, and (N, L, 3) counts: correct, predicted, gold."""
    right = labels.gold == labels.predicted
    # gold NOUN, predicted VERB: counts a predicted VERB and a gold NOUN, and nothing as correct
    parts = [
        (labels.sequence[right], labels.gold[right]),
        (labels.sequence, labels.predicted),
        (labels.sequence, labels.gold),
    ]
    counts = _tally(labels.size, len(labels.names), parts)
    kept = [i for i, name in enumerate(labels.names) if name != ignored]
    return [labels.names[i] for i in kept], counts[:, kept]


def _type_counts(labels: LabelArrays, *, strict: bool = False) -> tuple[list[str], np.ndarray]:
    """The entity types that occur, and (N, T, 3) counts: correct, predicted, gold entities per type."""
    parts = LabelParts.of(labels.names)
    gold, predicted = (
        find_spans(side, labels.sequence, parts, strict=strict) for side in (labels.gold, labels.predicted)
    )
    right = matching(gold, predicted)
    counts = _tally(
        labels.size,
        len(parts.types),
        [
            (labels.sequence[predicted.start[right]], predicted.type[right]),
            (labels.sequence[predicted.start], predicted.type),
            (labels.sequence[gold.start], gold.type),
        ],
    )
    return list(parts.types), counts


def score_tokens(gold: Sequence[Labels], predicted: Sequence[Labels]) -> dict[str, float]:
    """``token_accuracy`` over all words."""
    counts = _token_counts(LabelArrays.of(gold, predicted))
    return FROM_STATS.compute(ExampleStats(WORDS, counts.astype(np.float64)))


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
    labels = LabelArrays.of(gold, predicted)
    scores = FROM_STATS.compute(_stats(labels, spans=True, characters=characters))
    if words is not None:
        scores["surface_f1"] = _surface_f1(labels, words)
    if characters:
        scores.setdefault(MACRO, 0.0)  # neither side has a label other than O
    return scores


def surface_f1(
    gold: Sequence[Labels], predicted: Sequence[Labels], *, words: Sequence[Sequence[str]]
) -> float:
    """F1 over distinct surface forms (Derczynski et al. 2017, section 5): each pair of a type and the words
    of an entity counts once, and is correct when the entity was found at one of its positions."""
    return _surface_f1(LabelArrays.of(gold, predicted), words)


def _surface_f1(labels: LabelArrays, words: Sequence[Sequence[str]]) -> float:
    parts = LabelParts.of(labels.names)
    flat = list(chain.from_iterable(words))
    found_gold, found = (find_spans(side, labels.sequence, parts) for side in (labels.gold, labels.predicted))
    gold_forms, predicted_forms = (_forms(side, parts.types, flat) for side in (found_gold, found))
    right = matching(found_gold, found)
    # (PER, John) in three sentences, found in one of them: one gold form and one correct form
    correct = SpanArrays(found.start[right], found.end[right], found.type[right])
    correct_forms = _forms(correct, parts.types, flat)
    counts = (np.asarray(len(forms)) for forms in (correct_forms, predicted_forms, gold_forms))
    return float(f1(*counts))


def _forms(spans: SpanArrays, types: Sequence[str], words: Sequence[str]) -> set[tuple[str, ...]]:
    """The distinct pairs of type and words."""
    places = zip(spans.type.tolist(), spans.start.tolist(), spans.end.tolist(), strict=True)
    return {(types[kind], *words[start:end]) for kind, start, end in places}


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
