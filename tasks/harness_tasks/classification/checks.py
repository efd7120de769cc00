"""Checks whether columns and labels of a data set are plausible."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from statistics import fmean

from harness.data.reading.log import ReadLog
from harness.errors import HarnessError
from harness_tasks.classification.reader import LabelledRow, Rows

_FEW = 20
"""Fewer rows than this say nothing about the number of classes."""
_MANY_SHARE = 0.1
_MOST_SHARE = 0.5
_MANY = 20
"""More numbers with decimals than this are scores, not classes."""
_NUMBER = re.compile(r"[+-]?\d*\.?\d+(?:[eE][+-]?\d+)?")
_LONG_LABEL = 12
"""A class of more words than this looks like a text."""
_SHOWN = 6


def check_classes(rows: Rows, log: ReadLog, *, declared: bool, guessed: bool) -> None:
    """Refuse or warn of labels that do not look like classes.

    Args:
        rows: of all splits, with classes.
        log: receives warnings.
        declared: the classes were listed by the user.
        guessed: the column of the labels was recognised, not named; what is only a warning for a named
            column is then an error.

    Raises:
        HarnessError: see above.
    """
    train = [r for r in rows["train"] if r.label is not None]
    counts = Counter(str(r.label) for r in train)
    if declared or len(train) < _FEW:
        return
    if _are_scores(counts, len(train)):
        shown = ", ".join(list(counts)[:3])
        raise HarnessError(
            f"{train[0].source}: the labels are {len(counts)} different numbers ({shown}, ...): "
            "task=text_regression learns numbers; list task.labels if they are classes all the same"
        )
    problems = []
    if len(counts) > max(2, _MANY_SHARE * len(train)):
        shown = ", ".join(f"{label:.30}" for label in list(counts)[:3])
        text = f"train: {len(counts):,} classes in {len(train):,} rows ({shown}, ...)"
        log.warn(f"{text}: more than a tenth of the rows; is the column the label?")
        if len(counts) > _MOST_SHARE * len(train):
            problems.append(text)
    labels = fmean(len(str(r.label)) for r in train)
    texts = fmean(len(text) for r in train for text in r.texts)
    if labels > texts:
        text = f"train: the labels are longer than the texts ({labels:.0f} and {texts:.0f} characters)"
        problems.append(text)
        log.warn(text)
    long = [label for label in counts if len(label.split()) > _LONG_LABEL]
    whole = _texts_as_labels(train, counts)
    if whole or long:
        text = f"train: class {(whole or long)[0]!r:.60} looks like a whole text"
        log.warn(text)
        if len(whole) > 1:
            problems.append(text)
    if problems and guessed:
        raise HarnessError(
            f"{train[0].source}: {'; '.join(problems)}; is another column the label? Set task.label=COLUMN "
            "(task.columns=[text,label] names the columns of a file without a header line)"
        )


def _are_scores(counts: Counter[str], n: int) -> bool:
    if len(counts) <= _MANY or not all(_NUMBER.fullmatch(label) for label in counts):
        return False
    return any("." in label for label in counts) or len(counts) > _MOST_SHARE * n


def _texts_as_labels(train: Sequence[LabelledRow], counts: Counter[str]) -> list[str]:
    """The labels of several words that are also the text of a row."""
    texts = {text.strip() for row in train for text in row.texts}
    return [label for label in counts if len(label.split()) > 2 and label in texts]


def check_shared_classes(rows: Rows, declared: Sequence[str] | None) -> None:
    """Refuse a dev or test split none of whose labels occurs in train.

    Raises:
        HarnessError: names both sets.
    """
    known = {r.label for r in rows["train"]} | set(declared or ())
    for role in ("dev", "test"):
        labels = {str(r.label): r for r in rows.get(role, ()) if r.label is not None}
        if labels and not known & set(labels):
            first = next(iter(labels.values()))
            raise HarnessError(
                f"{first.source}: none of the labels of {role} ({_some(labels)}) occurs in train "
                f"({_some(known)}); map names to each other with task.label_names, or name the right column "
                "with task.label"
            )


def _some(labels: set[str | None] | dict[str, LabelledRow]) -> str:
    names = sorted(map(str, labels))
    return ", ".join(f"{name:.40}" for name in names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
