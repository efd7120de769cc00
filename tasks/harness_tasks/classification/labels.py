"""From raw labels to classes: which labels mean "no label", one normal form per column, names and levels.

A column has one normal form over all splits: where all labels of train are whole numbers, ``1.0`` is ``1``.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from harness.data.reading.log import ReadLog, ambiguous
from harness.errors import HarnessError, did_you_mean
from harness_tasks.classification.reader import LabelledRow, Rows
from harness_tasks.classification.values import are_whole_numbers, whole_number

LEVELS = ("coarse", "fine")
_MARKERS = frozenset({"-", "--", "?", "nan", "n/a", "#n/a", "<na>", "null"})
"""Labels, in lower case, that often mean "no label"."""
_SHOWN = 5
_SEPARATORS = re.compile(r"\s*[,;|]\s*")


@dataclass(frozen=True, slots=True)
class Labels:
    """How a raw label becomes a class.

    Attributes:
        names: class name of each raw label; None = raw labels are the classes.
        level: ``coarse`` keeps the part before the first colon (``HUM:ind`` -> ``HUM``); None or ``fine``
            keeps all of it.
        declared: the classes (``task.labels``); None = those of train.
        unlabelled: ``task.unlabelled``; empty = all labels are classes, None = not set.
    """

    names: Mapping[str, str] | None = None
    level: str | None = None
    declared: tuple[str, ...] | None = None
    unlabelled: frozenset[str] | None = None

    def __post_init__(self) -> None:
        if self.level not in (None, "coarse", "fine"):
            raise HarnessError(f"task.label_level={self.level}: {did_you_mean(str(self.level), LEVELS)}")

    def classes(self, rows: Rows, log: ReadLog) -> Rows:
        """Return the rows with their classes as labels.

        Raises:
            HarnessError: labels that may mean "no label", several labels in one, or a label without a name.
        """
        rows = self._without_markers(rows, log)
        labels = _count(rows)
        forms = {label: label for label in labels}
        if are_whole_numbers(_count({"train": rows["train"]})):
            forms = {label: whole_number(label) or label for label in labels}
            if changed := next((label for label in labels if forms[label] != label), None):
                log.note(f"labels are whole numbers: {changed} is read as {forms[changed]}")
        _refuse_several(labels, self._known(), rows)
        classes = {label: self._class(label, form) for label, form in forms.items()}
        if missing := [label for label, name in classes.items() if name is None]:
            self._refuse_unnamed(missing, rows)
        _warn_variants(rows, classes, log)
        return {
            role: [r if r.label is None else replace(r, label=classes[r.label]) for r in part]
            for role, part in rows.items()
        }

    def same_form(self, name: str, classes: Iterable[str]) -> str:
        """A configured class in the normal form of the column's classes."""
        number = whole_number(name)
        return number if number is not None and are_whole_numbers(classes) else name

    def _known(self) -> set[str]:
        return {*(self.declared or ()), *(self.names or ()), *(self.names or {}).values()}

    def _class(self, label: str, form: str) -> str | None:
        """The class of a raw label; None if it has no name."""
        name: str | None = form
        if self.names is not None:
            names = {**self.names} | {number: v for k, v in self.names.items() if (number := whole_number(k))}
            keep = label if label in self.names.values() else None
            name = self.names.get(label) or names.get(form) or keep
        return name.split(":", 1)[0] if name is not None and self.level == "coarse" else name

    def _refuse_unnamed(self, missing: Sequence[str], rows: Rows) -> None:
        names = self.names or {}
        label = missing[0]
        row = _first(rows, label)
        more = f" and {len(missing) - 1} more labels" if len(missing) > 1 else ""
        near = [name for name in names if name.casefold() == label.casefold()]
        hint = f"; did you mean {near[0]!r}?" if near else "; add it"
        raise HarnessError(
            f"{row.where}: label {label!r}{more} is not in task.label_names ({', '.join(names)}){hint}"
        )

    def _without_markers(self, rows: Rows, log: ReadLog) -> Rows:
        """Refuse labels that may mean "no label", unless the configuration says what they are."""
        counts = _count(rows)
        found = [] if self.unlabelled == frozenset() else _markers(counts)
        unclear = [label for label in found if label not in self._known()]
        if not unclear:
            return rows
        if self.declared is None:
            label, markers = unclear[0], [*sorted(self.unlabelled or ()), *found]
            raise ambiguous(
                _first(rows, label).where,
                f"label {label!r} ({counts[label]} rows): is it a class, or does it mean that there is no "
                "label",
                {
                    "no label: such rows are left out": f"task.unlabelled={_listed(markers)}",
                    "all labels are classes": "task.unlabelled=[]",
                },
            )
        log.note(f"label {', '.join(unclear)} is not listed in task.labels and means that there is no label")
        return {
            role: [replace(r, label=None) if r.label in unclear else r for r in part]
            for role, part in rows.items()
        }


def _listed(markers: Sequence[str]) -> str:
    labels = list(dict.fromkeys(whole_number(marker) or marker for marker in markers))
    return labels[0] if len(labels) == 1 else f"[{','.join(labels)}]"


def _count(rows: Rows) -> Counter[str]:
    """Number of each raw label over all splits."""
    return Counter(r.label for part in rows.values() for r in part if r.label is not None)


def _first(rows: Rows, label: str) -> LabelledRow:
    return next(r for part in rows.values() for r in part if r.label == label)


def _markers(counts: Mapping[str, int]) -> list[str]:
    """The labels that may mean "no label" beside at least two other classes.

    -1 is one of them where all others are whole numbers of at least 0; a punctuation mark is none beside
    other marks.
    """
    found = [label for label in counts if label.casefold() in _MARKERS]
    others = [label for label in counts if label not in found]
    if any(not any(c.isalnum() for c in label) for label in others):
        found = [label for label in found if any(c.isalnum() for c in label)]
    numbers = [whole_number(label) for label in others]
    if "-1" in numbers and all(n is not None and (n == "-1" or n[0] != "-") for n in numbers):
        found += [label for label in others if whole_number(label) == "-1"]
    classes = {whole_number(label) or label for label in counts if label not in found}
    return found if len(classes) >= 2 else []


def _refuse_several(counts: Mapping[str, int], known: set[str], rows: Rows) -> None:
    """Refuse labels that are lists of other labels, such as ``2,5`` beside ``2`` and ``5``."""
    several = {label: _elements(label) for label in counts if label not in known}
    several = {label: parts for label, parts in several.items() if len(parts) > 1}
    listed = [label for label, parts in several.items() if all(part in counts for part in parts)]
    if not listed and len(several) >= 3 and len(several) > len(counts) / 2:
        uses = Counter(part for parts in several.values() for part in set(parts))
        listed = list(several) if min(uses.values()) > 1 else []
    if listed:
        label = listed[0]
        raise HarnessError(
            f"{_first(rows, label).where}: label {label!r} lists several labels, as "
            f"{sum(counts[one] for one in listed):,} rows do: several labels per text (multi-label) are not "
            "supported; keep the rows with one label, or list task.labels if these are classes"
        )


def _elements(label: str) -> list[str]:
    parts = _SEPARATORS.split(label)
    if len(parts) == 1 and all(part.isdecimal() for part in label.split()):
        parts = label.split()
    return parts if all(parts) else [label]


def _warn_variants(rows: Rows, classes: Mapping[str, str | None], log: ReadLog) -> None:
    """Warn of classes that differ only in case, white space, Unicode form or the form of a number."""
    counts = Counter(classes[r.label] for part in rows.values() for r in part if r.label is not None)
    variants: dict[str, list[str]] = defaultdict(list)
    for name in counts:
        variants[_folded(name or "")].append(name or "")
    for names in variants.values():
        if len(names) > 1:
            shown = ", ".join(f"{name!r} ({counts[name]})" for name in names[:_SHOWN])
            log.warn(f"labels that differ only in their writing are different classes: {shown}")


def _folded(name: str) -> str:
    text = "".join(unicodedata.normalize("NFC", name).casefold().split())
    try:
        return repr(float(text)) if len(text) < 16 and text[-1:].isdigit() else text
    except ValueError:
        return text
