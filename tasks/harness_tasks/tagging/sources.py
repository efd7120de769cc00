"""Reading tagged sentences from column files, tables, and hub data sets.

A table (Parquet, JSON, csv or a hub data set) has one sentence per row: a list of words and a list of labels,
as names or numbers. Numbers become the names that are given, else those in the data. Or it has one word per
row and a column that tells its sentence, as ``Sentence #,Word,POS,Tag``. What looks wrong (sentences that are
not divided, splits without entities) is reported. This module imports neither torch nor datasets.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.data.reading.log import ReadLog
from harness.data.reading.overlap import text_key
from harness.data.reading.source import DataSource
from harness.data.reading.tables import DataTable, read_table
from harness.errors import HarnessError, did_you_mean
from harness_tasks.tagging.columns import Sentence, read_columns
from harness_tasks.tagging.forms import ColumnLayout
from harness_tasks.tagging.schemes import OUTSIDE

TABLES = {".parquet", ".arrow", ".json", ".jsonl", ".ndjson", ".csv"}
WORDS = ("tokens", "words")
HUB_COLUMNS = ("words", "labels", "label_names")
LABELS = ("ner_tags", "tags", "labels", "pos_tags", "upos")
ONE_WORD = ("word", "token", "form")
ONE_LABEL = ("tag", "label", "ner", "ner_tag", "pos")
LONG_SENTENCE = 1000
"""Words (or characters, where the data label those) from which a sentence is suspicious."""
_MANY_LABELS = 50
SENTENCE = ("sentence #", "sentence_id", "sent_id", "sentence", "sentence_idx", "sentence id")


@dataclass(slots=True)
class TaggedData:
    """Sentences of every split that the data contain; ``plain`` says that the labels are no entities."""

    splits: dict[str, list[Sentence]] = field(default_factory=dict)
    plain: bool = False


@dataclass(frozen=True, slots=True)
class TaggedSentenceReader:
    """Reads the tagged sentences of a task.

    Attributes:
        source: files or hub data set.
        layout: of column files.
        words, labels: columns of tables; None = those of the hub data set, else the first of :data:`WORDS`
            and :data:`LABELS` (of tables with one word per row :data:`ONE_WORD` and :data:`ONE_LABEL`).
        label_names: names of numbered labels; None = those in the data.
        sentence: column of the sentence in tables with one word per row; None = the first of
            :data:`SENTENCE`.
    """

    source: DataSource
    layout: ColumnLayout = field(default_factory=ColumnLayout)
    words: str | None = None
    labels: str | None = None
    label_names: Sequence[str] | None = None
    sentence: str | None = None

    def read(self, log: ReadLog) -> TaggedData:
        """Sentences of every split that the data contain.

        Raises:
            HarnessError: no data, or a line or row that cannot be used.
        """
        located = self.source.locate()
        data = TaggedData()
        if located:
            for role, paths in located.items():
                data.splits[role] = [s for p in paths for s in self._file(p, log, data)]
            return data
        data.splits = {role: self._table(table, log) for role, table in self.source.load_hub(log).items()}
        return data

    def _file(self, path: Path, log: ReadLog, data: TaggedData) -> list[Sentence]:
        suffixes = {suffix.lower() for suffix in path.suffixes}
        if self.source.read.format is not None or suffixes & TABLES:
            return self._table(read_table(path, self.source.read, log=log), log)
        parsed = read_columns(path, layout=self.layout, encoding=self.source.read.encoding, log=log)
        log.add("documents", parsed.documents)
        data.plain |= parsed.plain
        return parsed.sentences

    def _table(self, table: DataTable, log: ReadLog) -> list[Sentence]:
        hub = self.source.hub.columns if self.source.hub else {}
        names = [c for c in (self.words, hub.get("words")) if c]
        words = _column(table, names[0] if names else None, (*WORDS, *ONE_WORD), key="words_column")
        first = table.data[words][0] if len(table) else None
        one_word = isinstance(first, str) and (self.sentence is not None or " " not in first)
        given = self.labels or hub.get("labels")
        usual = (*ONE_LABEL, *LABELS) if one_word else LABELS
        labels = _column(table, given, usual, key="labels_column")
        log.fact(table.source, "words", words, given=bool(names))
        log.fact(table.source, "labels", labels, given=bool(given))
        class_names = self._class_names(table, labels, hub.get("label_names"), log)
        reader = _TableReader(table, words, labels, class_names, log)
        if one_word:
            sentences = reader.grouped(_sentence_column(table, self.sentence, words, log))
        else:
            sentences = reader.rows()
        if not sentences:
            raise HarnessError(f"{table.source}: no sentences; every list of words is empty")
        return sentences

    def _class_names(self, table: DataTable, labels: str, of_hub: object, log: ReadLog) -> Sequence[str]:
        own = table.names.get(labels)
        names = self.label_names or own or of_hub or ()
        if not isinstance(names, Sequence) or isinstance(names, str):
            raise HarnessError(f"task.label_names={names!r:.60}: expected a list of names")
        if len(set(names)) < len(names):
            double = next(n for i, n in enumerate(names) if n in names[:i])
            raise HarnessError(f"{table.source}: the label name {double!r} stands for two numbers")
        if self.label_names and own and list(own) != list(names):
            log.warn(f"{table.source}: task.label_names differ from the names in the data ({', '.join(own)})")
        return names


@dataclass(frozen=True, slots=True)
class _TableReader:
    """Makes sentences of a table's rows."""

    table: DataTable
    words: str
    labels: str
    names: Sequence[str]
    log: ReadLog

    def rows(self) -> list[Sentence]:
        """Read one sentence per row; empty ones are counted."""
        values = zip(self.table.data[self.words], self.table.data[self.labels], strict=True)
        sentences, empty = [], 0
        for i, (words, labels) in enumerate(values):
            where = self.table.where(i)
            try:
                sentence = self._sentence(words, labels, i, where)
            except HarnessError as e:
                self.log.skip(where, e)
                continue
            empty += not sentence.words
            if sentence.words:
                sentences.append(sentence)
        self.log.add("empty_sentences", empty)
        return sentences

    def grouped(self, column: str) -> list[Sentence]:
        """Read one word per row; a sentence ends where its column changes, and lasts while that is empty."""
        sentences: list[Sentence] = []
        data = self.table.data
        before: object = None
        bad: set[int] = set()
        for i, (words, labels, key) in enumerate(
            zip(data[self.words], data[self.labels], data[column], strict=True)
        ):
            if not sentences or (key not in (None, "") and key != before):
                sentences.append(
                    Sentence(line=self.table.at[i], source=self.table.source, unit=self.table.unit)
                )
                before = key
            where = self.table.where(i)
            try:
                if not isinstance(words, str) or not words:
                    raise HarnessError(f"{where}: no word in column {self.words}; correct the row")
                label = self._name(labels, where)
            except HarnessError as e:
                self.log.skip(where, e)
                bad.add(len(sentences) - 1)
                continue
            sentences[-1].words.append(words.strip(" ") or words)
            sentences[-1].labels.append(label)
        if len(self.table) and data[column][0] in (None, ""):
            raise HarnessError(
                f"{self.table.where(0)}: {column} is empty in the first row; give task.sentence_column"
            )
        return [s for i, s in enumerate(sentences) if i not in bad and s.words]

    def _sentence(self, words: object, labels: object, row: int, where: str) -> Sentence:
        if labels is None or (isinstance(labels, list) and labels and all(x is None for x in labels)):
            raise HarnessError(
                f"{where}: no labels in {self.labels}; leave such a split out to have it cut from train"
            )
        w, x = self._list(words, where, self.words), self._list(labels, where, self.labels)
        if len(w) != len(x):
            raise HarnessError(f"{where}: {len(w)} words but {len(x)} labels; correct the row")
        names = [self._name(label, f"{where}, word {i}") for i, label in enumerate(x, start=1)]
        if None in w:
            raise HarnessError(f"{where}: word {w.index(None) + 1} is missing; correct the row")
        sentence = self._empty(row)
        sentence.words, sentence.labels = [str(word) for word in w], names
        return sentence

    def _empty(self, row: int) -> Sentence:
        return Sentence(line=self.table.at[row], source=self.table.source, unit=self.table.unit)

    def _list(self, value: object, where: str, column: str) -> list[object]:
        if isinstance(value, list):
            return value
        raise HarnessError(
            f"{where}: {column} is {value!r:.60}, not a list with one value per word; write lists as JSON "
            "lines or Parquet"
        )

    def _name(self, label: object, where: str) -> str:
        if isinstance(label, str) and label.strip():
            return label
        if isinstance(label, float) and label.is_integer():
            label = int(label)
        if isinstance(label, int) and not isinstance(label, bool) and 0 <= label < len(self.names):
            return str(self.names[label])
        if label is None or label == "":
            raise HarnessError(f"{where}: the label is missing; correct the row")
        known = len(self.names)
        reason = f"only {known} names are known" if known else "give the names as task.label_names=[...]"
        raise HarnessError(f"{where}: label {label!r:.40} has no name; {reason}")


def _column(table: DataTable, given: object, usual: Sequence[str], *, key: str) -> str:
    lower = {name.lower(): name for name in reversed(table.columns)}
    for column in [str(given)] if given else usual:
        if column in table.columns:
            return column
        if not given and column in lower:
            return lower[column]
    missing = repr(given) if given else f"of the usual names ({', '.join(usual)})"
    near = did_you_mean(str(given or usual[0]), table.columns)
    raise HarnessError(f"{table.source}: no column {missing}; {near} Set task.{key}")


def _sentence_column(table: DataTable, given: str | None, words: str, log: ReadLog) -> str:
    """The column that tells the sentence of a word.

    Raises:
        HarnessError: there is none.
    """
    lower = {name.lower().strip(): name for name in reversed(table.columns)}
    found = given if given in table.columns else None
    if not given:
        found = next((lower[name] for name in SENTENCE if name in lower), None)
    if found is None:
        which = f"no column {given!r}" if given else "no column tells where a sentence begins"
        raise HarnessError(
            f"{table.source}: one word per row ({words}), and {which}; set task.sentence_column (columns: "
            f"{', '.join(table.columns)}), or give a column file with a blank line after each sentence"
        )
    log.fact(table.source, "sentences", found, given=bool(given))
    return found


def check_sentences(splits: Mapping[str, Sequence[Sentence]], log: ReadLog) -> None:
    """Warn of splits of one sentence, and of very long sentences."""
    for role, part in splits.items():
        longest = max(part, key=lambda s: len(s.words), default=None)
        if longest is None:
            continue
        n = len(longest.words)
        if len(part) == 1 and n > 1:
            log.warn(f"{role} is 1 sentence of {n} words: blank lines missing?")
        elif n >= LONG_SENTENCE:
            log.warn(f"{role}: a sentence of {n} words ({longest.where(0)}): blank lines missing?")


def check_entities(splits: Mapping[str, Sequence[Sentence]], log: ReadLog) -> None:
    """Refuse a train split without entities; warn of others.

    Args:
        splits: sentences whose labels are spelled ``B-TYPE`` and ``O``.
        log: receives warnings.

    Raises:
        HarnessError: all labels of train are ``O``.
    """
    for role, part in splits.items():
        if not part or any(label != OUTSIDE for s in part for label in s.labels):
            continue
        n = sum(len(s.labels) for s in part)
        if role == "train":
            raise HarnessError(
                f"{part[0].where(0)}: train has no entities: all {n} labels are O; set task.label_column, or "
                "task.scheme=none to score words"
            )
        log.warn(f"{role} has no entities: all {n} labels are O; its span_f1 means nothing")


def check_plain(splits: Mapping[str, Sequence[Sentence]], log: ReadLog) -> None:
    """Warn of plain labels that are more than a tenth of the words."""
    labels = [label for s in splits.get("train", ()) for label in s.labels]
    n = len(set(labels))
    if n > _MANY_LABELS and 10 * n > len(labels):
        log.warn(
            f"{n} labels for {len(labels)} words of train: is task.label_column the column of the labels?"
        )


def text_and_labels(named: tuple[str, Sentence]) -> tuple[Hashable, Hashable]:
    """Return the key by which copies of a sentence are found, and its labels."""
    sentence = named[1]
    return text_key(" ".join(sentence.words)), tuple(sentence.labels)
