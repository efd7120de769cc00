"""Lines that consist of a label and a text: ``label text``, ``text<TAB>label`` and fastText's format.

Which part of a line is the label is recognised by its values: labels are few and most of them repeat.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from harness.data.reading.formats.dialect import lines
from harness.data.reading.log import ambiguous
from harness.data.reading.table import DataTable, TextFile
from harness.errors import HarnessError

FASTTEXT = "__label__"
_TREE = re.compile(r"\(\d+")
_SMALL = 200
"""Up to this many rows, a quarter may be different labels; beyond it, a tenth."""
_LABEL_FIRST = ("label", "text")
_TEXT_FIRST = ("text", "label")
_DECLARE = {
    "label first": "task.columns=[label,text]",
    "text first": "task.columns=[text,label]",
}


@dataclass(frozen=True, slots=True)
class LabelCount:
    """How many different labels there would be if these values were labels.

    Attributes:
        rows: number of values.
        classes: number of different values.
        single: number of values that occur once.
    """

    rows: int
    classes: int
    single: int

    @classmethod
    def of(cls, values: Sequence[str]) -> LabelCount:
        """Count values."""
        counts = Counter(values)
        return cls(len(values), len(counts), sum(n == 1 for n in counts.values()))

    @property
    def plausible(self) -> bool:
        """Whether the values are few, and few of them occur only once."""
        most = max(2, self.rows // 4 if self.rows < _SMALL else max(_SMALL // 4, self.rows // 10))
        return self.classes <= most and (self.classes <= 3 or self.single <= self.classes / 3)

    def __str__(self) -> str:
        return f"{self.classes:,} classes in {self.rows:,} rows"


def label_column(columns: Sequence[Sequence[str]], file: TextFile) -> tuple[str, str]:
    """Return the names of two columns, of which one has the labels.

    Raises:
        HarnessError: neither or both columns may be labels.
    """
    counts = [LabelCount.of(values) for values in columns]
    plausible = [count.plausible for count in counts]
    if all(plausible):  # few rows, or texts that repeat: labels are much shorter
        lengths = [sum(map(len, values)) for values in columns]
        plausible = [lengths[0] * 2 <= lengths[1], lengths[1] * 2 <= lengths[0]]
    if plausible[0] != plausible[1]:
        names = _LABEL_FIRST if plausible[0] else _TEXT_FIRST
        file.log.recognised(file.path, "columns", ", ".join(names))
        return names
    question = f"which column is the label ({counts[0]} or {counts[1]})"
    raise ambiguous(file.path, question, _DECLARE)


def read_tabbed(file: TextFile) -> DataTable:
    """Read lines of a label and a text, in the order that their values show, separated by a tab.

    Raises:
        HarnessError: the order is not clear; a line without exactly one tab (skipped with
            ``task.on_error=skip``).
    """
    positions, data = _cut(file, "\t")
    names = label_column(data, file)
    _check_first_row(data[names.index("label")], file)
    file.log.recognised(file.path, "delimiter", "tab")
    return DataTable(str(file.path), dict(zip(names, data, strict=True)), positions)


def _check_first_row(labels: Sequence[str], file: TextFile) -> None:
    """Refuse a first row whose label is the only one that does not repeat: it may be a header."""
    counts = Counter(labels)
    if len(labels) > 10 and counts[labels[0]] == 1 and sum(n == 1 for n in counts.values()) == 1:
        raise ambiguous(
            file.path,
            f"is the first line a header ({labels[0]!r:.40} occurs only there as a label)",
            {"a header": "task.format=tsv"} | _DECLARE,
        )


def read_label_text(file: TextFile) -> DataTable:
    """Read lines of a label, a blank (or a tab, if every line has one) and the text."""
    positions, texts = zip(*lines(file.text), strict=True)
    delimiter = "\t" if all("\t" in line for line in texts) else " "
    cells = [line.partition(delimiter) for line in texts]
    labels = [label for label, _, _ in cells]
    if file.how.format is None:
        _check_first_words(labels, texts, file)
    data = {"label": labels, "text": [text for _, _, text in cells]}
    return DataTable(str(file.path), data, list(positions))


def _check_first_words(labels: Sequence[str], texts: Sequence[str], file: TextFile) -> None:
    """Refuse lines whose first words are no labels, or whose last parts may be labels as well.

    Raises:
        HarnessError: names the settings for each reading.
    """
    for delimiter in "@|;,":
        if all(delimiter in line for line in texts):
            last = LabelCount.of([line.rpartition(delimiter)[2] for line in texts])
            if last.plausible and last.classes > 1:
                last_part = f"task.columns=[text,label] task.delimiter='{delimiter}'"
                readings = {
                    f"after the last {delimiter}": last_part,
                    "the first word": "task.format=label_text",
                }
                raise ambiguous(file.path, "where is the label", readings)
    if all(_TREE.fullmatch(label) for label in labels):
        raise HarnessError(
            f"{file.path}: its lines are trees such as (3 (2 It) (2 works)), as in the Stanford Sentiment "
            "Treebank; write the label of the root, a blank and the words of each line instead"
        )
    count = LabelCount.of(labels)
    if not count.plausible:
        raise HarnessError(
            f"{file.path}: not recognised; its lines would be {count} if each began with its label. Set "
            "task.format=label_text (if they do), or task.columns=[text,label] and task.delimiter. Texts and "
            "labels in two files: join them line by line with paste LABELS TEXTS > FILE.tsv and set "
            "task.columns=[label,text]"
        )


def read_text_label(file: TextFile) -> DataTable:
    """Read lines of a text, a tab and its label (``task.format=text_label``)."""
    positions, (texts, labels) = _cut(file, "\t", last=True)
    return DataTable(str(file.path), {"text": texts, "label": labels}, positions)


def _cut(file: TextFile, delimiter: str, *, last: bool = False) -> tuple[list[int], list[list[str]]]:
    """Return the positions and both parts of the lines, cut at their only (or last) delimiter."""
    positions: list[int] = []
    data: list[list[str]] = [[], []]
    for at, line in lines(file.text):
        cells = line.rsplit(delimiter, 1) if last else line.split(delimiter)
        if len(cells) != 2:
            file.skip(at, f"{len(cells)} field(s) separated by tabs, expected a text and its label")
            continue
        for values, cell in zip(data, cells, strict=True):
            values.append(cell)
        positions.append(at)
    return positions, data


def read_fasttext(file: TextFile) -> DataTable:
    """Read lines of one ``__label__NAME``, a blank or a tab, and the text.

    Raises:
        HarnessError: a line has no label or several (skipped with ``task.on_error=skip``).
    """
    positions: list[int] = []
    data: dict[str, list[str]] = {"label": [], "text": []}
    for at, line in lines(file.text):
        words = re.split("[ \t]", line)
        labels = [w for w in words if w.startswith(FASTTEXT)]
        if len(labels) != 1 or not words[0].startswith(FASTTEXT):
            what = f"{len(labels)} labels ({' '.join(labels):.100})" if labels else "no label"
            file.skip(at, f"{what}; each line is one {FASTTEXT}NAME, a space and the text")
            continue
        data["label"].append(labels[0].removeprefix(FASTTEXT))
        data["text"].append(line[len(words[0]) + 1 :])
        positions.append(at)
    return DataTable(str(file.path), data, positions)
