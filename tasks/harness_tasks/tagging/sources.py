"""Reading tagged sentences from column files, tables of word and label lists, and hub data sets.

A table (Parquet, JSON lines or a hub data set) has one sentence per row: a list of words and a list of
labels, as names or numbers. Numbers become the names in the data, else those of ``label_names``. This module
imports neither torch nor datasets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.data.reading.log import ReadLog
from harness.data.reading.source import DataSource
from harness.data.reading.tables import DataTable, read_table
from harness.errors import HarnessError, did_you_mean
from harness_tasks.tagging.columns import ColumnLayout, Sentence, read_columns

TABLES = {".parquet", ".json", ".jsonl", ".ndjson"}
WORDS = ("tokens", "words")
HUB_COLUMNS = ("words", "labels", "label_names")
LABELS = ("ner_tags", "tags", "labels", "pos_tags", "upos")


@dataclass(frozen=True, slots=True)
class TaggedSentenceReader:
    """Reads the tagged sentences of a task.

    Attributes:
        source: files or hub data set.
        layout: of column files.
        words, labels: columns of tables that hold the lists; None = those of the hub data set, else the first
            of :data:`WORDS` and :data:`LABELS` that exists.
        label_names: names of numbered labels where the data have none.
    """

    source: DataSource
    layout: ColumnLayout = field(default_factory=ColumnLayout)
    words: str | None = None
    labels: str | None = None
    label_names: Sequence[str] | None = None

    def read(self, log: ReadLog) -> dict[str, list[Sentence]]:
        """Sentences of every split that the data contain.

        Raises:
            HarnessError: no data, or a line or row that cannot be used.
        """
        located = self.source.locate()
        if located:
            return {role: [s for p in paths for s in self._file(p, log)] for role, paths in located.items()}
        tables = self.source.load_hub(log)
        return {role: self._table(table, log) for role, table in tables.items()}

    def _file(self, path: Path, log: ReadLog) -> list[Sentence]:
        if {suffix.lower() for suffix in path.suffixes} & TABLES:
            return self._table(read_table(path, log=log), log)
        encoding = self.source.read.encoding
        parsed = read_columns(path, layout=self.layout, encoding=encoding, log=log)
        log.add("documents", parsed.documents)
        return parsed.sentences

    def _table(self, table: DataTable, log: ReadLog) -> list[Sentence]:
        hub = self.source.hub.columns if self.source.hub else {}
        words = _column(table, self.words or hub.get("words"), WORDS, key="words_column")
        labels = _column(table, self.labels or hub.get("labels"), LABELS, key="labels_column")
        names = table.names.get(labels) or self.label_names or hub.get("label_names") or ()
        if not isinstance(names, Sequence):
            raise HarnessError(f"task.hub.label_names={names!r:.60}: expected a list of names")
        values = zip(table.data[words], table.data[labels], strict=True)
        rows = [_sentence(pair, table.where(i), (words, labels), names) for i, pair in enumerate(values)]
        sentences = [s for s in rows if s.words]
        if not sentences:
            raise HarnessError(f"{table.source}: no sentences; every list of words is empty")
        log.add("empty_sentences", len(rows) - len(sentences))
        return sentences


def _column(table: DataTable, given: object, usual: Sequence[str], *, key: str) -> str:
    for column in [str(given)] if given else usual:
        if column in table.columns:
            return column
    missing = repr(given) if given else f"of the usual names ({', '.join(usual)})"
    near = did_you_mean(str(given or usual[0]), table.columns)
    raise HarnessError(f"{table.source}: no column {missing}; {near} Set task.{key}")


def _sentence(
    values: tuple[object, object], where: str, columns: tuple[str, str], names: Sequence[str]
) -> Sentence:
    words, labels = (_list(v, where, column) for v, column in zip(values, columns, strict=True))
    if len(words) != len(labels):
        raise HarnessError(f"{where}: {len(words)} words but {len(labels)} labels; correct the row")
    return Sentence([str(w) for w in words], [_name(label, names, where) for label in labels])


def _list(value: object, where: str, column: str) -> list[object]:
    if not isinstance(value, list):
        raise HarnessError(f"{where}: {column} is {value!r:.60}, not a list with one value per word")
    return value


def _name(label: object, names: Sequence[str], where: str) -> str:
    if isinstance(label, str):
        return label
    if isinstance(label, int) and 0 <= label < len(names):
        return names[label]
    reason = f"only {len(names)} names are known" if names else "give the names as task.label_names=[...]"
    raise HarnessError(f"{where}: label {label!r} has no name; {reason}")
