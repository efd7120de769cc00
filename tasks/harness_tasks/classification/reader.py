"""Reading tables as labelled rows by split, from local files or a hub data set.

Rows hold plain strings; they become examples (with words) only after a limit has been applied.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

from harness.data.reading.card import CardExample
from harness.data.reading.log import ReadLog
from harness.data.reading.overlap import text_key
from harness.data.reading.source import DataSource
from harness.data.reading.table import DataTable, ReadOptions
from harness.data.reading.tables import read_table
from harness.data.text import Example, Text
from harness.errors import HarnessError
from harness_tasks.classification.columns import Columns
from harness_tasks.classification.conll import refuse_words
from harness_tasks.classification.values import (
    raw_label,
    read_tags,
    read_text,
    read_word_index,
    whole_number,
    with_nested,
)

HUB_COLUMNS = ("text", "label")


@dataclass(frozen=True, slots=True)
class TargetExample(Example):
    """An example whose class is that of a word in context.

    Attributes:
        at: index of the target word in each text.
    """

    at: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class LabelledRow:
    """One row: id, one or two texts, label (None = unlabelled), slices, the index of the target word in each
    text, group, and its file with the position in it (a line or a row)."""

    id: str
    texts: tuple[str, ...]
    label: str | None
    tags: tuple[str, ...] = ()
    at: tuple[int, ...] = ()
    group: str | None = None
    source: str = ""
    unit: str = "line"
    position: int = 0

    @property
    def where(self) -> str:
        """File and position, for messages."""
        return f"{self.source}, {self.unit} {self.position}"

    def card_example(self) -> CardExample:
        """What the data card shows and compares."""
        labels = () if self.label is None else (self.label,)
        return CardExample(self.texts, labels, gold=(*labels, *map(str, self.at)))

    def key(self) -> tuple[Hashable, Hashable]:
        """Normalised texts, and what is compared between equal texts."""
        return (text_key(*self.texts), self.at), self.label

    def example(self, gold: object = None) -> Example:
        """Split the texts into words.

        Args:
            gold: of the example; None = the label.

        Raises:
            HarnessError: a text has fewer words than the index of its target word.
        """
        texts = tuple(Text.from_string(t) for t in self.texts)
        value = self.label if gold is None else gold
        if not self.at:
            return Example(self.id, texts, value, self.tags)
        for text, index in zip(texts, self.at, strict=True):
            if index >= len(text):
                raise HarnessError(
                    f"example {self.id!r}: the target is word {index} (task.target, counted from 0), but "
                    f"{text.text!r:.60} has {len(text)} words; punctuation marks count as words"
                )
        return TargetExample(self.id, texts, value, self.tags, self.at)


Rows = Mapping[str, Sequence[LabelledRow]]
"""Rows by split."""


@dataclass(frozen=True, slots=True)
class RowReader:
    """Reads the rows of a task.

    Attributes:
        source: files or hub data set. The hub's ``label`` may be a mapping from label level to column.
        columns: column names as configured.
        allow_empty: keep rows whose text is empty.
        level: which of the hub's label columns is read.
        unlabelled: raw labels that mean "no label", besides empty ones.
        task: name of the kind of task, for messages.
    """

    source: DataSource
    columns: Columns
    allow_empty: bool
    level: str | None = None
    unlabelled: frozenset[str] = frozenset()
    task: str = "text_classification"

    def rows(self, log: ReadLog) -> dict[str, list[LabelledRow]]:
        """Rows of every split that the data contain, with raw labels.

        Raises:
            HarnessError: no data, or a row that cannot be used.
        """
        files = self.source.locate()
        if files:
            for path in (p for paths in files.values() for p in paths):
                if self.source.read.format is None:
                    refuse_words(path, task=self.task)
            tables = {role: [read_table(p, self.options, log=log) for p in ps] for role, ps in files.items()}
        else:
            tables = {role: [table] for role, table in self.source.load_hub(log).items()}
        if "train" not in tables:
            raise HarnessError("task.train: no training data; give its file")
        return {role: self._split(role, parts, log, local=bool(files)) for role, parts in tables.items()}

    @property
    def options(self) -> ReadOptions:
        """Options of tables, with the recognition of header lines."""
        return replace(self.source.read, has_header=self.columns.is_header)

    def resolve(self, columns: Sequence[str], source: str, *, local: bool = True) -> dict[str, str]:
        """The column of each role. The hub's names apply to a local file only where it has them: it may be a
        copy of the hub's file.

        Raises:
            HarnessError: see :meth:`Columns.find`.
        """
        return self._configured(columns, local=local).find(columns, source)

    def _configured(self, columns: Sequence[str], *, local: bool) -> Columns:
        text, label = (_names(self._hub_column(key)) for key in ("text", "label"))
        if local:
            text, label = ([c for c in names if c in columns] for names in (text, label))
        own = self.columns
        return replace(own, text=own.text or text or None, label=own.label or label or None)

    def _hub_column(self, key: str) -> object:
        value = self.source.hub.columns.get(key) if self.source.hub else None
        return value.get(self.level or "fine") if isinstance(value, Mapping) else value

    def _split(
        self, role: str, tables: Sequence[DataTable], log: ReadLog, *, local: bool
    ) -> list[LabelledRow]:
        rows: list[LabelledRow] = []
        for table in tables:
            at = self.resolve(table.columns, table.source, local=local)
            for key, column in at.items():
                given = key.startswith("target") or bool(getattr(self.columns, key))
                log.fact(table.source, key, column, given=given)
            if not self._configured(table.columns, local=local).text:
                _warn_unread_texts(table, set(at.values()), log)
            self._read(role, with_nested(table, at.values()), at, rows, log)
        if not rows:
            raise HarnessError(f"{tables[0].source}: no rows below the header")
        _check_ids(rows, tables)
        return rows

    def _read(
        self, role: str, table: DataTable, at: Mapping[str, str], rows: list[LabelledRow], log: ReadLog
    ) -> None:
        """Append the rows of a table."""
        padded: Counter[str] = Counter()
        plain: set[str] = set()
        for i in range(len(table)):
            try:
                row = self._row(f"{role}-{len(rows)}", table, i, at)
            except HarnessError as e:
                log.skip(table.where(i), e)
                continue
            raw = table.data[at["label"]][i]
            if isinstance(raw, str) and row.label is not None:
                (padded.update([row.label]) if raw != row.label else plain.add(row.label))
            rows.append(row)
        for label in sorted(padded.keys() & plain):
            log.warn(
                f"{table.source}: label {label!r} has white space around it in {padded[label]} rows and none "
                "in others; both are read as one class"
            )

    def _row(self, name: str, table: DataTable, i: int, at: Mapping[str, str]) -> LabelledRow:
        sides = [at[side] for side in ("text", "text_b") if side in at]
        targets = [at[key] for key in ("target_0", "target_1") if key in at]
        return LabelledRow(
            id=str(table.data[at["id"]][i]) if "id" in at else name,
            texts=tuple(read_text(table, i, c, allow_empty=self.allow_empty) for c in sides),
            label=raw_label(table, i, at["label"], self.unlabelled),
            tags=read_tags(table, i, at["tags"]) if "tags" in at else (),
            at=tuple(read_word_index(table, i, c) for c in targets),
            group=str(table.data[at["group"]][i]) if "group" in at else None,
            source=table.source,
            unit=table.unit,
            position=table.at[i],
        )


def unlabelled_labels(value: object) -> frozenset[str]:
    """``task.unlabelled`` as a set of raw labels, with numbers in normal form and all spellings of NaN."""
    values = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    texts = {str(v).strip() for v in values if v is not None}
    if any(text.lower() == "nan" for text in texts):  # YAML reads .nan as a number
        texts |= {"nan", "NaN", "NAN"}
    return frozenset(texts | {number for text in texts if (number := whole_number(text)) is not None})


def _names(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    return [str(name) for name in value] if isinstance(value, Sequence) else []


def without_unlabelled(rows: Rows, log: ReadLog) -> dict[str, list[LabelledRow]]:
    """Leave out and count the rows without a label; a test split without any label is kept whole.

    Raises:
        HarnessError: no row of train or dev has a label.
    """
    out = {}
    for role, part in rows.items():
        if role == "test" and all(row.label is None for row in part):
            log.warn(f"test: none of the {len(part):,} rows has a label: there are predictions and no score")
            out[role] = list(part)
        else:
            out[role] = _labelled(role, part, log)
    return out


def _labelled(role: str, rows: Sequence[LabelledRow], log: ReadLog) -> list[LabelledRow]:
    kept = [row for row in rows if row.label is not None]
    if not kept:
        hint = "; set task.dev=none, or task.dev=null to cut it from train" if role == "dev" else ""
        raise HarnessError(f"{rows[0].source}: none of the {len(rows)} rows of {role} has a label{hint}")
    if missing := len(rows) - len(kept):
        log.exclude(rows[0].source, "no label", missing)
        if missing > len(kept):
            log.warn(f"{role}: {missing} of {len(rows)} rows have no label and are left out")
    return kept


def _check_ids(rows: Sequence[LabelledRow], tables: Sequence[DataTable]) -> None:
    seen: set[str] = set()
    for row in rows:
        if row.id in seen:
            raise HarnessError(
                f"{tables[0].source}: two rows have the id {row.id!r}; ids must be unique within a split; "
                "without task.id the rows are numbered"
            )
        seen.add(row.id)


def _warn_unread_texts(table: DataTable, used: set[str], log: ReadLog) -> None:
    """Warn of columns that contain texts of several words and are not read."""
    for column in table.columns:
        if column in {part for name in used for part in (name, *name.split("+"))}:
            continue
        values = [v for v in table.data[column][:50] if isinstance(v, str)]
        words = sorted(len(v.split()) for v in values)
        if words and words[len(words) // 2] > 3:
            log.warn(
                f"{table.source}: column {column} contains texts too and is not read; set "
                f"task.text_b={column} for pairs, or name the text with task.text to confirm"
            )
