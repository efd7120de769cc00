"""Where tagged sentences come from: column files, tables of token and label lists, hub data sets.

A table (Parquet, JSON lines or a hub data set) holds one sentence a row: a list of words and a list of
labels, names or numbers. Numbers become the names that the data bring, else those of ``label_names``. Neither
torch nor datasets is imported here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from harness.data.files import NONE, locate
from harness.data.tables import Table, read_table
from harness.errors import HarnessError, did_you_mean
from harness_tasks.tagging.columns import Layout, Sentence, read_columns

TABLES = {".parquet", ".json", ".jsonl", ".ndjson"}
WORDS = ("tokens", "words")
LABELS = ("ner_tags", "tags", "labels", "pos_tags", "upos")


@dataclass(slots=True)
class Sink:
    """What reading has to say: sentences and counts for the record."""

    notes: list[str] = field(default_factory=list)
    report: dict[str, float] = field(default_factory=dict)

    def add(self, key: str, count: float) -> None:
        """Add to a count; one that stays 0 is left out."""
        if count:
            self.report[key] = self.report.get(key, 0) + count


@dataclass(frozen=True, slots=True)
class Hub:
    """A hub data set: ``splits`` by role (None = the usual names), the columns of its words and labels, names
    of its label numbers should it bring none, what to note."""

    id: str
    config: str | None = None
    revision: str | None = None
    splits: Mapping[str, str] | None = None
    words: str | None = None
    labels: str | None = None
    label_names: Sequence[str] | None = None
    note: str | None = None

    @classmethod
    def of(cls, value: str | Mapping[str, Any] | None) -> Hub | None:
        """From the configuration: an id or a mapping.

        Raises:
            HarnessError: an unknown key, or no id.
        """
        if not value:
            return None
        if isinstance(value, str):
            return cls(value)
        known = [f.name for f in fields(cls)]
        for key in value:
            if key not in known:
                raise HarnessError(f"task.hub.{key}: unknown key, {did_you_mean(str(key), known)}")
        if not value.get("id"):
            raise HarnessError("task.hub.id is missing: give OWNER/NAME")
        return cls(**dict(value))


@dataclass(frozen=True, slots=True)
class Reader:
    """How a task's data become sentences.

    Attributes:
        where: ``path``, ``train``, ``dev``, ``test``, ``files``, see :func:`harness.data.files.locate`.
        hub: used when no local file is named.
        layout: of column files.
        encoding: of text files, see :func:`harness.data.files.decode`.
        words, labels: columns of tables that hold the lists; None = as the hub entry says, else the first of
            :data:`WORDS` and :data:`LABELS` that is there.
        label_names: names of numbered labels where the data bring none.
    """

    where: Mapping[str, Any]
    hub: Hub | None = None
    layout: Layout = field(default_factory=Layout)
    encoding: str = "auto"
    words: str | None = None
    labels: str | None = None
    label_names: Sequence[str] | None = None

    def read(self, sink: Sink) -> dict[str, list[Sentence]]:
        """Sentences of every split the data bring.

        Raises:
            HarnessError: no data, or a line or row that cannot be used.
        """
        located = locate_files(self.where, self.hub)
        if located:
            return {role: [s for p in paths for s in self._file(p, sink)] for role, paths in located.items()}
        assert self.hub is not None
        tables = load_hub_tables(self.hub)
        sink.notes.append(f"data: hub data set {self.hub.id}{self._at()}")
        sink.notes += [self.hub.note] if self.hub.note else []
        asked = {role: t for role, t in tables.items() if not is_none(self.where.get(role))}
        return {role: self._table(table, sink) for role, table in asked.items()}

    def _at(self) -> str:
        return f" at {self.hub.revision}" if self.hub and self.hub.revision else ""

    def _file(self, path: Path, sink: Sink) -> list[Sentence]:
        if {suffix.lower() for suffix in path.suffixes} & TABLES:
            return self._table(read_table(path, notes=sink.notes), sink)
        parsed = read_columns(path, layout=self.layout, encoding=self.encoding, notes=sink.notes)
        sink.add("documents", parsed.documents)
        return parsed.sentences

    def _table(self, table: Table, sink: Sink) -> list[Sentence]:
        hub = self.hub or Hub("")
        words = _column(table, self.words or hub.words, WORDS, key="words_column")
        labels = _column(table, self.labels or hub.labels, LABELS, key="labels_column")
        names = table.names.get(labels) or self.label_names or hub.label_names or ()
        found = [_sentence(row, table.where(i), (words, labels), names) for i, row in enumerate(table.rows)]
        sentences = [s for s in found if s.words]
        if not sentences:
            raise HarnessError(f"{table.source}: no sentences; every list of words is empty")
        sink.add("empty_sentences", len(found) - len(sentences))
        return sentences


def load_hub_tables(hub: Hub) -> dict[str, Table]:
    """The hub data set's tables by role."""
    from harness.data.hub import load_hub

    return load_hub(hub.id, hub.splits, config=hub.config, revision=hub.revision)


def is_none(value: Any) -> bool:
    """Whether a split is asked to be left out."""
    return isinstance(value, str) and value.lower() == NONE


def locate_files(where: Mapping[str, Any], hub: Any) -> dict[str, list[Path]]:
    """Local files by role; empty when the hub data set is to be read.

    Raises:
        HarnessError: a file is missing, train or test is ``none``, or there is no data at all.
    """
    for role in ("train", "test"):
        if is_none(where.get(role)):
            raise HarnessError(f"task.{role}=none: a cell needs a {role} split; only dev can be none")
    located = locate(where)
    if not located and not hub:
        raise HarnessError("no data: give task.train=FILE, task.path=FOLDER or task.hub=OWNER/NAME")
    if located and "train" not in located:
        raise HarnessError("task.train: no training data; give its file")
    return located


def _column(table: Table, given: str | None, usual: Sequence[str], *, key: str) -> str:
    for column in [given] if given else usual:
        if column in table.columns:
            return column
    missing = repr(given) if given else f"of the usual names ({', '.join(usual)})"
    near = did_you_mean(given or usual[0], table.columns)
    raise HarnessError(f"{table.source}: no column {missing}; {near} Set task.{key}")


def _sentence(row: Mapping[str, Any], where: str, columns: tuple[str, str], names: Sequence[str]) -> Sentence:
    words, labels = (_list(row.get(column), where, column) for column in columns)
    if len(words) != len(labels):
        raise HarnessError(f"{where}: {len(words)} words but {len(labels)} labels; mend the row")
    return Sentence([str(w) for w in words], [_name(label, names, where) for label in labels])


def _list(value: Any, where: str, column: str) -> list[Any]:
    if not isinstance(value, list):
        raise HarnessError(f"{where}: {column} is {value!r:.60}, not a list with one value a word")
    return value


def _name(label: Any, names: Sequence[str], where: str) -> str:
    if isinstance(label, str):
        return label
    if isinstance(label, int) and 0 <= label < len(names):
        return names[label]
    known = (
        f"the {len(names)} names known"
        if names
        else "no names for numbers; give them as task.label_names=[...]"
    )
    raise HarnessError(f"{where}: label {label!r} has no name, there are {known}")
