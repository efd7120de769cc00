"""F1 of each class, of each kind of entity or of each label, from a cell's stored predictions. Torch-free."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness.records.predictions import PREDICTIONS, read_counts, read_predictions

Line = tuple[str, float, float, float]
"""A class, and how many of it are right, predicted and in the gold."""
MOST = 100


def by_class(folder: Path, *, split: str = "test") -> list[str]:
    """Lines of a table, the commonest class first; none where the task has no classes, or one row with what
    is wrong with the file."""
    try:
        found = _counted(folder, split)
    except (OSError, ValueError) as e:  # a damaged file is the reader's to know, and the record is whole
        return [f"  by class: {PREDICTIONS} cannot be read ({e})"]
    if not found:
        return []
    shown = sorted(found, key=lambda line: (-line[3], line[0]))[:MOST]
    wide = max(len("class"), *(len(name) for name, *_ in shown))
    head = f"    {'class':{wide}}  {'F1':>6}  {'precision':>9}  {'recall':>6}  {'gold':>6}  {'predicted':>9}"
    lines = [f"  {split} by class:", head, *(_line(line, wide) for line in shown)]
    return lines + ([f"    {len(found) - MOST} more"] if len(found) > MOST else [])


def _line(line: Line, wide: int) -> str:
    name, right, predicted, gold = line
    f1, precision, recall = (
        _ratio(2 * right, predicted + gold), _ratio(right, predicted), _ratio(right, gold)
    )  # fmt: skip
    return f"    {name:{wide}}  {f1}  {precision:>9}  {recall}  {gold:6.0f}  {predicted:9.0f}"


def _ratio(above: float, below: float) -> str:
    return f"{above / below:6.4f}" if below else "     -"


def _counted(folder: Path, split: str) -> list[Line]:
    stored = read_counts(folder, split=split)
    if stored is None or not stored.ids:
        return []
    sums = dict(zip(stored.counts.names, stored.counts.values.sum(axis=0).tolist(), strict=True))
    kinds = [n.removeprefix("type/").removesuffix("/gold") for n in sums if _is_type(n)]
    if kinds:
        return [_parts(sums, [f"type/{k}/{p}" for p in ("correct", "predicted", "gold")], k) for k in kinds]
    classes = [n.removeprefix("gold/") for n in sums if n.startswith("gold/")]
    if classes:
        return [_parts(sums, [f"{p}/{c}" for p in ("right", "predicted", "gold")], c) for c in classes]
    return _labels(folder, split) if {"words", "words/right"} == set(sums) else []


def _is_type(name: str) -> bool:
    return name.startswith("type/") and name.endswith("/gold")


def _parts(sums: dict[str, float], names: Sequence[str], name: str) -> Line:
    right, predicted, gold = (sums.get(n, 0.0) for n in names)
    return name, right, predicted, gold


def _labels(folder: Path, split: str) -> list[Line]:
    """Of words with plain labels, whose counts are not stored label by label."""
    found: dict[str, list[float]] = {}
    for row in read_predictions(folder, split=split):
        for gold, predicted in zip(row["gold"], row["prediction"], strict=True):
            found.setdefault(predicted, [0.0, 0.0, 0.0])[1] += 1
            found.setdefault(gold, [0.0, 0.0, 0.0])[2] += 1
            found[gold][0] += gold == predicted
    return [(str(name), right, told, wanted) for name, (right, told, wanted) in found.items()]
