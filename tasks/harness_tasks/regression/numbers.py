"""Reading the labels of rows as numbers. A column with decimal commas is recognised over all splits."""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace

from harness.data.reading.log import ReadLog
from harness.data.text import Example
from harness.errors import HarnessError
from harness_tasks.classification.reader import LabelledRow, Rows, without_unlabelled

_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_COMMA = re.compile(r"[+-]?[0-9]+,[0-9]+")
_THOUSANDS = re.compile(r"[+-]?[1-9][0-9]{0,2}(?:,[0-9]{3})+(?:\.[0-9]*)?")
_MISSING = frozenset({"nan", "n/a", "#n/a", "<na>", "na", "null", "none"})
"""Texts, in lower case, that stand for a missing number."""


@dataclass(frozen=True, slots=True)
class NumberedRow:
    """A row and its number; None without one."""

    row: LabelledRow
    value: float | None

    def key(self) -> tuple[Hashable, Hashable]:
        """Normalised texts, and the number."""
        return self.row.key()[0], self.value

    def example(self) -> Example:
        """Split the texts into words."""
        return self.row.example(gold=self.value)


def read_numbers(rows: Rows, log: ReadLog) -> dict[str, list[NumberedRow]]:
    """Return the rows with their numbers; rows without one are left out and counted, unless no row of test
    has one.

    Raises:
        HarnessError: a label is no finite number; names the row.
    """
    rows = {role: [_missing_as_none(row) for row in part] for role, part in rows.items()}
    labels = [row.label for part in rows.values() for row in part if row.label is not None]
    commas = _decimal_commas(labels)
    if commas:
        log.note("numbers have decimal commas: 1,5 is read as 1.5")
    out: dict[str, list[NumberedRow]] = {}
    values: dict[int, float] = {}
    kept: dict[str, list[LabelledRow]] = {}
    text = _mostly_text(labels)
    for role, part in rows.items():
        kept[role] = []
        for row in part:
            try:
                if row.label is not None:
                    values[id(row)] = _number(row, row.label, commas=commas, text=text)
            except HarnessError as e:
                log.skip(row.where, e)
                continue
            kept[role].append(row)
    for role, part in without_unlabelled(kept, log).items():
        out[role] = [NumberedRow(row, values.get(id(row))) for row in part]
    _warn_classes(out, log)
    return out


def _missing_as_none(row: LabelledRow) -> LabelledRow:
    missing = row.label is not None and row.label.casefold() in _MISSING
    return replace(row, label=None) if missing else row


def _decimal_commas(labels: Iterable[str]) -> bool:
    """Whether commas separate decimals: no label has a point, and not all could be thousands."""
    found = list(labels)
    with_comma = [label for label in found if _COMMA.fullmatch(label)]
    if not with_comma or all(_THOUSANDS.fullmatch(label) for label in with_comma):
        return False
    return not any("." in label for label in found)


def _mostly_text(labels: list[str]) -> bool:
    return sum(not any(c.isdigit() for c in label) for label in labels) > len(labels) / 2


def _number(row: LabelledRow, label: str, *, commas: bool, text: bool) -> float:
    plain = label.replace(",", ".") if commas else label
    value = float(plain) if _NUMBER.fullmatch(plain) else math.nan
    if math.isfinite(value):
        return value
    if text:
        advice = "task=text_classification learns names; or name the column of the number with task.label"
    elif "," in label:
        advice = "write decimals with a point and thousands without a separator"
    else:
        advice = "correct or remove the row, or leave such rows out with task.on_error=skip"
    raise HarnessError(f"{row.where}: the label {label!r:.60} is no finite number; {advice}")


def _warn_classes(rows: Mapping[str, list[NumberedRow]], log: ReadLog) -> None:
    values = {numbered.value for numbered in rows["train"]}
    if len(values) == 2 and len(rows["train"]) > 2:
        shown = " and ".join(f"{value:g}" for value in sorted(v for v in values if v is not None))
        log.warn(f"train has only the numbers {shown}: task=text_classification learns classes")
    for role in ("dev", "test"):
        same = {numbered.value for numbered in rows.get(role, ())}
        if len(rows.get(role, ())) > 2 and len(same) == 1 and (value := same.pop()) is not None:
            log.warn(
                f"{role} holds the same number {value:g} everywhere, so that no correlation is defined; set "
                f"task.unlabelled={value:g} if it means that there is no label"
            )
