"""Reading tables as labelled rows by split, from local files or a hub data set.

Rows hold plain strings; they become examples (with words) only after a limit has been applied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from harness.data.reading.card import CardExample
from harness.data.reading.log import ReadLog
from harness.data.reading.source import DataSource
from harness.data.reading.tables import DataTable, read_table
from harness.data.text import Example, Text
from harness.errors import HarnessError
from harness_tasks.classification.columns import Columns, Labels, read_tags, read_text, read_word_index

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
    """One labelled row: id, one or two texts, class, slices, and the index of the target word in each
    text."""

    id: str
    texts: tuple[str, ...]
    label: str
    tags: tuple[str, ...] = ()
    at: tuple[int, ...] = ()

    def card_example(self) -> CardExample:
        """What the data card shows and compares."""
        return CardExample(self.texts, (self.label,), gold=(self.label, *map(str, self.at)))

    def example(self) -> Example:
        """Split the texts into words.

        Raises:
            HarnessError: a text has fewer words than the index of its target word.
        """
        texts = tuple(Text.from_string(t) for t in self.texts)
        if not self.at:
            return Example(self.id, texts, self.label, self.tags)
        for text, index in zip(texts, self.at, strict=True):
            if index >= len(text):
                raise HarnessError(
                    f"example {self.id!r}: the target is word {index} (task.target, counted from 0), but "
                    f"{text.text!r:.60} has {len(text)} words; punctuation marks count as words"
                )
        return TargetExample(self.id, texts, self.label, self.tags, self.at)


@dataclass(frozen=True, slots=True)
class RowReader:
    """Reads the labelled rows of a task.

    Attributes:
        source: files or hub data set. The hub's ``label`` may be a mapping from label level to column.
        columns: column names as configured.
        labels: how a raw label becomes a class.
        allow_empty: keep rows whose text is empty.
    """

    source: DataSource
    columns: Columns
    labels: Labels
    allow_empty: bool

    def rows(self, log: ReadLog) -> dict[str, list[LabelledRow]]:
        """Rows of every split that the data contain.

        Raises:
            HarnessError: no data, or a row that cannot be used.
        """
        files = self.source.locate()
        read = replace(self.source.read, has_header=self.columns.is_header)
        if files:
            tables = {role: [read_table(p, read, log=log) for p in ps] for role, ps in files.items()}
        else:
            tables = {role: [table] for role, table in self.source.load_hub(log).items()}
        if "train" not in tables:
            raise HarnessError("task.train: no training data; give its file")
        return {role: self._split(role, parts, log, local=bool(files)) for role, parts in tables.items()}

    def _columns(self, table: DataTable, *, local: bool) -> dict[str, str]:
        """The table's columns. The hub's names apply to a local file only where it has them: it may be a copy
        of the hub's file."""
        text, label = (_names(self._hub_column(key)) for key in ("text", "label"))
        if local:
            text, label = ([c for c in names if c in table.columns] for names in (text, label))
        own = self.columns
        resolved = replace(own, text=own.text or text or None, label=own.label or label or None)
        return resolved.find(table.columns, table.source)

    def _hub_column(self, key: str) -> object:
        value = self.source.hub.columns.get(key) if self.source.hub else None
        return value.get(self.labels.level or "fine") if isinstance(value, Mapping) else value

    def _split(
        self, role: str, tables: Sequence[DataTable], log: ReadLog, *, local: bool
    ) -> list[LabelledRow]:
        rows: list[LabelledRow] = []
        for table in tables:
            at = self._columns(table, local=local)
            for key, column in at.items():
                given = key.startswith("target") or bool(getattr(self.columns, key))
                log.fact(table.source, key, column, given=given)
            sides = [at[side] for side in ("text", "text_b") if side in at]
            targets = [at[key] for key in ("target_0", "target_1") if key in at]
            for i in range(len(table)):
                texts = tuple(read_text(table, i, c, allow_empty=self.allow_empty) for c in sides)
                name = str(table.data[at["id"]][i]) if "id" in at else f"{role}-{len(rows)}"
                tags = read_tags(table, i, at["tags"]) if "tags" in at else ()
                indices = tuple(read_word_index(table, i, c) for c in targets)
                rows.append(LabelledRow(name, texts, self.labels.read(table, i, at["label"]), tags, indices))
        if not rows:
            raise HarnessError(f"{tables[0].source}: no rows below the header")
        _check_ids(rows, tables)
        return rows


def _names(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    return [str(name) for name in value] if isinstance(value, Sequence) else []


def _check_ids(rows: Sequence[LabelledRow], tables: Sequence[DataTable]) -> None:
    seen: set[str] = set()
    for row in rows:
        if row.id in seen:
            raise HarnessError(
                f"{tables[0].source}: two rows have the id {row.id!r}; ids must be unique within a split; "
                "without task.id the rows are numbered"
            )
        seen.add(row.id)
