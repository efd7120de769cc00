"""From tables to labelled rows by split: local files or a hub data set, and splits that are cut.

Rows hold plain strings; they become examples (with words) only after a limit has chosen among them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.data.files import is_none, locate
from harness.data.tables import Reading, Table, read_table
from harness.data.text import Example, Text
from harness.errors import HarnessError
from harness_tasks.classification.columns import Columns, Labels, read_place, read_tags, read_text


@dataclass(frozen=True, slots=True)
class TargetExample(Example):
    """An example that asks about a word.

    Attributes:
        at: for each text which of its words is meant, counted from 0.
    """

    at: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Row:
    """One labelled row: its id, one or two texts, its class, its slices, the word meant in each text."""

    id: str
    texts: tuple[str, ...]
    label: str
    tags: tuple[str, ...] = ()
    at: tuple[int, ...] = ()

    def example(self) -> Example:
        """Raises HarnessError where a text has no such word as is meant."""
        texts = tuple(Text.from_string(t) for t in self.texts)
        if not self.at:
            return Example(self.id, texts, self.label, self.tags)
        for text, place in zip(texts, self.at, strict=True):
            if place >= len(text):
                raise HarnessError(
                    f"example {self.id!r}: word {place} is meant (task.target), but {text.text!r:.60} has "
                    f"{len(text)} words, counted from 0; punctuation marks are words of their own"
                )
        return TargetExample(self.id, texts, self.label, self.tags, self.at)


@dataclass(frozen=True, slots=True)
class Hub:
    """A hub data set: ``splits`` by role (None = the usual names), its own column names, what to note.

    ``label`` may be a mapping from label level to column (or candidates).
    """

    id: str
    config: str | None = None
    revision: str | None = None
    splits: Mapping[str, str] | None = None
    text: Any = None
    label: Any = None
    note: str | None = None

    @classmethod
    def of(cls, value: str | Mapping[str, Any] | None) -> Hub | None:
        if not value:
            return None
        if isinstance(value, str):
            return cls(value)
        known = set(cls.__dataclass_fields__)
        unknown = [k for k in value if k not in known]
        if unknown or not value.get("id"):
            raise HarnessError(
                f"task.hub: {unknown or 'id'}; it takes {', '.join(sorted(known))}, id required"
            )
        return cls(**dict(value))


@dataclass(frozen=True, slots=True)
class Reader:
    """How a task's data become rows; see :class:`harness_tasks.classification.task.TextClassification`."""

    where: Mapping[str, Any]
    hub: Hub | None
    columns: Columns
    labels: Labels
    how: Reading
    allow_empty: bool

    def rows(self, notes: list[str]) -> dict[str, list[Row]]:
        """Rows of every split the data bring.

        Raises:
            HarnessError: no data, or a row that cannot be used.
        """
        check_roles(self.where)
        files = locate(self.where)
        if files:
            tables = {role: [read_table(p, self.how, notes=notes) for p in ps] for role, ps in files.items()}
        elif self.hub:
            tables = self._from_hub(self.hub, notes)
        else:
            raise HarnessError("no data: give task.train=FILE, task.path=FOLDER or task.hub=OWNER/NAME")
        if "train" not in tables:
            raise HarnessError("task.train: no training data; give its file")
        return {role: self._split(role, parts, local=bool(files)) for role, parts in tables.items()}

    def _from_hub(self, hub: Hub, notes: list[str]) -> dict[str, list[Table]]:
        from harness.data.hub import load_hub

        loaded = load_hub(hub.id, hub.splits, config=hub.config, revision=hub.revision)
        notes.append(f"data: hub data set {hub.id}{f' at {hub.revision}' if hub.revision else ''}")
        if hub.note:
            notes.append(hub.note)
        return {role: [table] for role, table in loaded.items() if not is_none(self.where.get(role))}

    def _columns(self, table: Table, *, local: bool) -> dict[str, str]:
        """The table's columns. A local file may be a copy of the hub's and then has its columns, or not."""
        given, text, label = self.columns, None, None
        if self.hub is not None:
            label = self.hub.label
            label = label.get(self.labels.level or "fine") if isinstance(label, Mapping) else label
            text, label = _list(self.hub.text), _list(label)
            if local:
                text, label = ([c for c in names if c in table.columns] for names in (text, label))
        named = Columns(
            given.text or text or None,
            given.text_b,
            given.label or label or None,
            given.id,
            given.tags,
            given.target,
        )
        return named.find(table.columns, table.source)

    def _split(self, role: str, tables: Sequence[Table], *, local: bool) -> list[Row]:
        rows: list[Row] = []
        for table in tables:
            at = self._columns(table, local=local)
            sides = [at[side] for side in ("text", "text_b") if side in at]
            places = [at[key] for key in ("target_0", "target_1") if key in at]
            for i in range(len(table)):
                texts = tuple(read_text(table, i, c, allow_empty=self.allow_empty) for c in sides)
                name = str(table.rows[i][at["id"]]) if "id" in at else f"{role}-{len(rows)}"
                tags = read_tags(table, i, at["tags"]) if "tags" in at else ()
                meant = tuple(read_place(table, i, c) for c in places)
                rows.append(Row(name, texts, self.labels.read(table, i, at["label"]), tags, meant))
        if not rows:
            raise HarnessError(f"{tables[0].source}: no rows below the header")
        _check_ids(rows, tables)
        return rows


def check_roles(where: Mapping[str, Any]) -> None:
    """Raises HarnessError where a split that must be there is said to be ``none``."""
    for role in ("train", "test"):
        if is_none(where.get(role)):
            raise HarnessError(f"task.{role}=none: a cell needs a {role} split; only dev can be none")


def _list(names: Any) -> list[str]:
    return [names] if isinstance(names, str) else list(names or [])


def _check_ids(rows: Sequence[Row], tables: Sequence[Table]) -> None:
    seen: set[str] = set()
    for row in rows:
        if row.id in seen:
            raise HarnessError(
                f"{tables[0].source}: two rows have the id {row.id!r}; ids must be unique within a split, or "
                "leave task.id out to number the rows"
            )
        seen.add(row.id)
