"""Reading questions from SQuAD's JSON (v1.1, v2.0 and its dialects) and from flat rows.

Nested files have articles of paragraphs of questions. Flat rows (jsonl, JSON lists, csv, Parquet, hub data
sets) have ``id``, ``context``, ``question`` and ``answers``; an optional ``title`` names the article. Other
names of fields and the forms of values are described in :mod:`harness_tasks.span_qa.fields`. In both formats
a question may have ``tags``, a list of its slices. Contexts are kept unchanged, since offsets count leading
blanks and line ends. ``plausible_answers`` of v2.0 are ignored.

A question that cannot be read is an error, or is listed and left out with ``task.on_error=skip``. This module
does not import torch.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness.data.reading.files import decode, read_bytes
from harness.data.reading.log import ReadLog
from harness.data.reading.tables import DataTable, ReadOptions, read_table
from harness.data.text import split_words
from harness.errors import HarnessError, did_you_mean
from harness_tasks.span_qa.fields import Fields, RawAnswer, flag, identifier, raw_answers, tags_of, text_of
from harness_tasks.span_qa.offsets import EXACT, locate_answer
from harness_tasks.span_qa.questions import Question, unlabelled

Entry = Mapping[str, object]


@dataclass(slots=True)
class QuestionReader:
    """Reads the files of a data set.

    Attributes:
        log: receives all decisions, and the questions that cannot be read.
        options: how files are read.
        names: names of fields, see :class:`.Fields`.
        contexts: contexts by id, for rows that refer to them.
        repaired: number of answers whose span is not what the data say, by reason.
    """

    log: ReadLog = field(default_factory=ReadLog)
    options: ReadOptions = field(default_factory=ReadOptions)
    names: Mapping[str, str] = field(default_factory=dict)
    contexts: Mapping[str, str] = field(default_factory=dict)
    repaired: Counter[str] = field(default_factory=Counter)
    fields: Fields = field(init=False)

    def __post_init__(self) -> None:
        self.fields = Fields(self.log, self.names)

    def read(self, paths: Sequence[Path], role: str = "") -> list[Question]:
        """Read the questions of the files of one split, in order.

        Raises:
            HarnessError: a file has no known format, or a question cannot be read; see :meth:`finish`.
        """
        questions: list[Question] = []
        for path in paths:
            content = self._json(path)
            articles, rows = _articles(content), _rows(content)
            if articles is not None:
                self.log.recognised(path, "format", "SQuAD's JSON (articles, paragraphs, questions)")
                questions += self._of_articles(articles, str(path))
            elif rows is not None:
                self.log.recognised(path, "format", "JSON, rows under data")
                questions += self.rows(_table(rows, str(path)))
            else:
                questions += self.rows(read_table(path, self.options, log=self.log))
        return self.finish(questions, role, ", ".join(map(str, paths)))

    def rows(self, table: DataTable) -> Iterator[Question]:
        """Questions of flat rows; a row may also be a context with its questions (``qas``).

        Raises:
            HarnessError: a column is missing; names those that there are.
        """
        columns = dict.fromkeys(table.columns)
        nested = self.fields.find(columns, "qas", table.source) is not None
        for name in ("context",) if nested else ("question", "context"):
            self._check_column(columns, name, table.source)
        for i in range(len(table)):
            row, where = table.row(i), table.where(i)
            if nested:
                yield from self._of_paragraph(row, "", where=where, source=table.source)
            else:
                yield from self._guarded(row, None, "", where=where, source=table.source)

    def finish(self, questions: Sequence[Question], role: str, source: str) -> list[Question]:
        """Number the questions without an id, and check ids and labels of a split.

        Raises:
            HarnessError: no questions, a split other than test without labels, or (see
                :meth:`.ReadLog.skip`) an id that occurs twice or a question without a label.
        """
        if not questions:
            raise HarnessError(f"{source}: contains no questions")
        without_labels = not any(q.labelled for q in questions)
        if without_labels and role != "test":
            raise unlabelled(source, role, len(questions))
        numbered = sum(not q.id for q in questions)
        if numbered:
            self.log.note(f"{role or source}: {numbered} questions have no id and are numbered (#1, #2, ...)")
        out: list[Question] = []
        seen: dict[str, Question] = {}
        for number, question in enumerate(questions, start=1):
            question = question if question.id else replace(question, id=f"#{number}")
            first = seen.setdefault(question.id, question)
            if not question.labelled and not without_labels:
                self._skip(question, "no 'answers'; a question without an answer has an empty list")
            elif first is not question:
                self._skip(
                    question,
                    f"question id {question.id!r} was already used ({first.where}); ids are unique within a "
                    "split: give one file for each split, or rename one of the two",
                )
            else:
                out.append(question)
        return out

    def _skip(self, question: Question, reason: str) -> None:
        self.log.skip(question.where, HarnessError(f"{question.where}: {reason}"))

    def _check_column(self, columns: Entry, name: str, source: str) -> None:
        if self.fields.find(columns, name, source) is not None:
            return
        hint = f"{did_you_mean(name, columns)}; or set task.fields.{name}=COLUMN"
        if name == "context" and (by := self.fields.find(columns, "context_id", source)) is not None:
            if self.contexts:
                return
            hint = f"but {by!r}: give the table of the contexts with task.contexts=FILE"
        raise HarnessError(
            f"{source}: no column {name!r}, {hint}; question answering reads id, question, context, answers, "
            "or SQuAD's JSON (data, paragraphs, qas)"
        )

    def _json(self, path: Path) -> object:
        """The content of a JSON file; None for other formats."""
        suffixes = [s.lower() for s in path.suffixes]
        if self.options.format not in (None, "json") or (".json" not in suffixes and not self.options.format):
            return None
        text = decode(read_bytes(path), path=path, encoding=self.options.encoding, log=self.log)
        try:
            content: object = json.loads(text)
        except RecursionError:
            raise HarnessError(f"{path}: nested too deeply for a data file") from None
        except ValueError:
            return None  # JSON lines, or an error that the table reader reports with its line
        return content

    def _of_articles(self, articles: Sequence[object], source: str) -> Iterator[Question]:
        for a, article in enumerate(articles, start=1):
            where = f"{source}, article {a}"
            try:
                title = self.fields.value(_entry(article, where), "title", source)
                paragraphs = _list(article, "paragraphs", where)
            except HarnessError as e:
                self.log.skip(where, e)
                continue
            for p, paragraph in enumerate(paragraphs, start=1):
                place = f"{source}, article {a} ({title or f'article {a}'}), paragraph {p}"
                named = {"title": title} if title else {}
                yield from self._of_paragraph(paragraph, f"article {a}", named, where=place, source=source)

    def _of_paragraph(
        self, paragraph: object, article: str, named: Entry | None = None, *, where: str, source: str
    ) -> Iterator[Question]:
        try:
            entry = {**_entry(paragraph, where), **(named or {})}
            context = self._context(entry, where, source)
            qas = _list(entry, self.fields.find(entry, "qas", source) or "qas", where)
        except HarnessError as e:
            self.log.skip(where, e)
            return
        for qa in qas:
            yield from self._guarded(qa, context, article, entry, where=where, source=source)

    def _guarded(
        self,
        entry: object,
        context: str | None,
        article: str,
        paragraph: Entry | None = None,
        *,
        where: str,
        source: str,
    ) -> Iterator[Question]:
        """The question of an entry, or nothing when it is skipped."""
        try:
            fields = _entry(entry, where)
            of = self._context(fields, where, source) if context is None else context
            title = self.fields.value({**fields} if paragraph is None else paragraph, "title", source)
            question = self._question(fields, of, where=where, source=source)
        except HarnessError as e:
            self.log.skip(where, e)
            return
        yield replace(question, article=str(title) if title else article or of, titled=bool(title))

    def _context(self, entry: Entry, where: str, source: str) -> str:
        key = self.fields.find(entry, "context", source)
        if key is not None:
            context = text_of(entry[key], key, where)
        else:
            by = self.fields.find(entry, "context_id", source) if self.contexts else None
            if by is None:
                raise HarnessError(f"{where}: no 'context', {did_you_mean('context', map(str, entry))}")
            if str(entry[by]) not in self.contexts:
                raise HarnessError(f"{where}: {by}={entry[by]!r:.60} is not in task.contexts")
            context = self.contexts[str(entry[by])]
        if not split_words(context):
            raise HarnessError(f"{where}: there are no words in the context ({context!r:.40})")
        return context

    def _question(self, entry: Entry, context: str, *, where: str, source: str) -> Question:
        key = identifier(self.fields.value(entry, "id", source), where)
        where_id = f"{where}, question {key!r}" if key else where
        asked = self.fields.find(entry, "question", source)
        if asked is None:
            raise HarnessError(f"{where_id}: no 'question', {did_you_mean('question', map(str, entry))}")
        text = text_of(entry[asked], asked, where_id)
        raw = self._raw(entry, source=source, where=where_id)
        answers = tuple(self._located(context, *answer, where=where_id) for answer in raw or ())
        stated = self.fields.find(entry, "is_impossible", source) is not None
        tags = tags_of(entry, where_id)
        return Question(key, "", context, text, answers, where, tags, labelled=raw is not None, stated=stated)

    def _raw(self, entry: Entry, *, source: str, where: str) -> list[RawAnswer] | None:
        """The answers; none when the question has no answer, None when the data do not say."""
        key = self.fields.find(entry, "is_impossible", source)
        impossible = None if key is None else flag(entry[key], key, where)
        given = self.fields.value(entry, "answers", source)
        if given is None:
            return [] if impossible else None
        starts = self.fields.value(entry, "answer_start", source)
        raw = raw_answers(given, starts, self.fields, source=source, where=where)
        blank = [start for text, start in raw if not text.strip()]
        if blank and len(blank) == len(raw) and (impossible or all(s is None or s < 0 for s in blank)):
            self.log.recognised(source, "no answer", "an empty text")
            raw = []
        elif blank:
            raise HarnessError(f"{where}: an answer is empty; a question without an answer has an empty list")
        if impossible is not None and impossible != (not raw):
            raise HarnessError(
                f"{where}: {key} is {impossible} but it has {len(raw)} answer(s); a question without an "
                "answer needs is_impossible: true and no answers, any other at least one"
            )
        return raw

    def _located(self, context: str, text: str, start: int | None, *, where: str) -> tuple[str, int]:
        found = locate_answer(context, text, start)
        if found is not None:
            if found.how != EXACT:
                self.repaired[found.how] += 1
            return context[found.start : found.end], found.start
        times = context.count(text)
        if start is None:
            how = (
                f"occurs {times} times and has no answer_start" if times else "does not occur in the context"
            )
            fix = "give answer_start, or remove the question" if times else "correct or remove the question"
            raise HarnessError(f"{where}: answer {text!r:.80} {how}: {fix}")
        actual = context[max(start, 0) : max(start, 0) + len(text)]
        reason = f"occurs {times} times, none of them near" if times else "does not occur in the context"
        raise HarnessError(
            f"{where}: answer {text!r:.80} is not at answer_start={start}, where the context has "
            f"{actual!r:.80}; it {reason}. Correct answer_start or remove the question"
        )


def read_questions(
    paths: Sequence[Path], *, log: ReadLog | None = None, reader: QuestionReader | None = None
) -> list[Question]:
    """Read the questions of the files of one split; see :meth:`QuestionReader.read`."""
    return (reader or QuestionReader(log or ReadLog())).read(paths)


def read_contexts(path: Path, log: ReadLog, options: ReadOptions) -> dict[str, str]:
    """Contexts by id, from a table of two columns.

    Raises:
        HarnessError: a column is missing, or an id has two texts.
    """
    table, fields = read_table(path, options, log=log), Fields(log)
    columns, source = dict.fromkeys(table.columns), str(path)
    by = fields.find(columns, "context_id", source) or fields.find(columns, "id", source)
    key = fields.find(columns, "context", source) or fields.find(columns, "text", source)
    if by is None or key is None:
        missing = "context_id" if by is None else "context"
        raise HarnessError(f"{path}: no column {missing!r}, {did_you_mean(missing, columns)} (task.contexts)")
    contexts: dict[str, str] = {}
    for i in range(len(table)):
        row = table.row(i)
        text = text_of(row[key], key, table.where(i))
        if contexts.setdefault(str(row[by]), text) != text:
            raise HarnessError(f"{table.where(i)}: {by}={row[by]!r:.60} was already used for another context")
    return contexts


def _articles(content: object) -> list[object] | None:
    """The articles of a JSON document in SQuAD's format: under ``data``, a bare list, or a single one."""
    if isinstance(content, dict):
        content = [content] if "paragraphs" in content else content.get("data")
    if not isinstance(content, list) or not any(isinstance(a, dict) and "paragraphs" in a for a in content):
        return None
    return content


def _rows(content: object) -> list[object] | None:
    """The flat rows of ``{"version": ..., "data": [...]}``; None for other JSON."""
    rows = content.get("data") if isinstance(content, dict) else None
    return rows if isinstance(rows, list) and any(isinstance(row, dict) for row in rows) else None


def _table(rows: Sequence[object], source: str) -> DataTable:
    at = range(1, len(rows) + 1)
    columns: dict[str, None] = {}
    for number, row in zip(at, rows, strict=True):
        if not isinstance(row, dict):
            raise HarnessError(f"{source}, row {number}: {row!r:.40} is not an object with named values")
        columns.update(dict.fromkeys(row))
    entries = [row for row in rows if isinstance(row, dict)]
    return DataTable.of_rows(source, list(columns), entries, at, unit="row")


def _entry(value: object, where: str) -> Entry:
    if not isinstance(value, Mapping):
        raise HarnessError(f"{where}: {value!r:.40} is not an object with named values")
    return value


def _list(entry: object, key: str, where: str) -> list[object]:
    fields = _entry(entry, where)
    if key not in fields:
        raise HarnessError(f"{where}: no {key!r}, {did_you_mean(key, map(str, fields))}")
    value = fields[key]
    if not isinstance(value, list):
        raise HarnessError(f"{where}: {key}={value!r:.60}: expected a list")
    return value
