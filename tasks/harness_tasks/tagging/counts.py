"""Counts of one sentence, and the scores of their sums (:mod:`harness.data.statistics`).

``correct``, ``predicted`` and ``gold`` entities by conlleval's rule, ``strict/...`` by strict IOB2,
``type/PER/...`` of each type, ``label/B-PER/...`` of each label where characters are labelled, ``words``
and ``words/right``. ``surface_f1`` is over distinct forms of the whole text, no sum over sentences: it has
no counts and therefore no interval. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from harness.data.statistics import Aggregate, Counts, Scores, f1, pick, ratio
from harness_tasks.tagging.schemes import OUTSIDE, entities
from harness_tasks.tagging.scoring import span_counts, token_counts

PARTS = ("correct", "predicted", "gold")
STRICT = tuple(f"strict/{part}" for part in PARTS)
MACRO = "character_macro_f1"
WORDS = ("words/right", "words")
Labels = Sequence[str]


def count(
    gold: Sequence[Labels], predicted: Sequence[Labels], *, spans: bool = True, labels: bool = False
) -> Counts:
    """Counts of N sentences, of entities unless the labels are plain, and when asked for of each label."""
    names, columns = [*WORDS], [token_counts(gold, predicted)]
    if spans:
        names += [*PARTS, *STRICT]
        columns += [span_counts(gold, predicted), span_counts(gold, predicted, strict=True)]
        types, by_type = _by_type(gold, predicted)
        names += [f"type/{kind}/{part}" for kind in types for part in PARTS]
        columns.append(by_type)
    if labels:
        kinds, by_label = _by_label(gold, predicted)
        names += [f"label/{kind}/{part}" for kind in kinds for part in PARTS]
        columns.append(by_label)
    return Counts(tuple(names), np.hstack(columns).astype(np.float64))


def _by_label(gold: Sequence[Labels], predicted: Sequence[Labels]) -> tuple[list[str], np.ndarray]:
    kinds = sorted({x for side in (gold, predicted) for labels in side for x in labels} - {OUTSIDE})
    at = {kind: 3 * i for i, kind in enumerate(kinds)}
    out = np.zeros((len(gold), 3 * len(kinds)), dtype=np.int64)
    for row, g, p in zip(out, gold, predicted, strict=True):
        for want, got in zip(g, p, strict=True):
            for part, kind in enumerate((want if want == got else OUTSIDE, got, want)):
                if kind != OUTSIDE:
                    row[at[kind] + part] += 1
    return kinds, out


def _by_type(gold: Sequence[Labels], predicted: Sequence[Labels]) -> tuple[list[str], np.ndarray]:
    read = [(set(entities(g)), set(entities(p))) for g, p in zip(gold, predicted, strict=True)]
    types = sorted({e[0] for golds, guesses in read for e in golds | guesses})
    at = {kind: 3 * i for i, kind in enumerate(types)}
    out = np.zeros((len(read), 3 * len(types)), dtype=np.int64)
    for row, (golds, guesses) in zip(out, read, strict=True):
        for part, found in enumerate((golds & guesses, guesses, golds)):
            for entity in found:
                row[at[entity[0]] + part] += 1
    return types, out


def columns(metric: str, names: Sequence[str]) -> list[str]:
    """The columns a metric needs."""
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


def scores(sums: np.ndarray, names: Sequence[str]) -> Scores:
    """(..., k) -> each score (...)."""
    out: Scores = {}
    correct, predicted, gold = pick(sums, names, *PARTS)
    if PARTS[0] in names:
        out |= {"span_f1": f1(correct, predicted, gold)} if set(PARTS) <= set(names) else {}
        out |= {"span_precision": ratio(correct, predicted)} if PARTS[1] in names else {}
        out |= {"span_recall": ratio(correct, gold)} if PARTS[2] in names else {}
    if STRICT[0] in names:
        out["strict_span_f1"] = f1(*pick(sums, names, *STRICT))
    if WORDS[0] in names:
        out["token_accuracy"] = ratio(*pick(sums, names, *WORDS))
    blocks = [[i for i, n in enumerate(names) if n.startswith("label/") and n.endswith(p)] for p in PARTS]
    if blocks[0]:
        right, got, want = (sums[..., block] for block in blocks)
        out[MACRO] = ratio(f1(right, got, want).sum(axis=-1), (got + want > 0).sum(axis=-1))
    for name in names:
        if name.startswith("type/") and name.endswith("/correct"):
            kind = name.removeprefix("type/").removesuffix("/correct")
            out[f"f1/{kind}"] = f1(*pick(sums, names, *(f"type/{kind}/{part}" for part in PARTS)))
    return out


def degenerate(sums: np.ndarray, names: Sequence[str]) -> str:
    """Whether no entity is predicted at all, where there are some."""
    _, predicted, gold = pick(sums, names, *PARTS)
    return "predicts no entity" if PARTS[1] in names and gold > 0 and predicted == 0 else ""


def undefined(sums: np.ndarray, names: Sequence[str], metric: str) -> str:
    """Whether a score of entities is asked for where there are none."""
    wanted = {"span_f1": PARTS[2], "span_recall": PARTS[2], "strict_span_f1": STRICT[2]}.get(metric)
    if metric.startswith("f1/"):
        wanted = f"type/{metric.removeprefix('f1/')}/{PARTS[2]}"
    if wanted is None:
        return ""
    (gold,) = pick(sums, names, wanted)
    return "there is no such entity" if gold == 0 else ""


AGGREGATE = Aggregate(scores, columns, degenerate=degenerate, undefined=undefined)
