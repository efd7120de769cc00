"""Reading questions from SQuAD's JSON (v1.1, v2.0 and compatible formats) and from flat rows.

Flat rows (jsonl, JSON lists, Parquet, hub data sets) have ``id``, ``context``, ``question`` and ``answers``,
either ``{"text": [...], "answer_start": [...]}`` or a list of ``{"text", "answer_start"}``; an optional
``title`` names the article. In both formats a question may have ``tags``, a list of its slices. Contexts are
kept unchanged, since offsets count leading blanks and line ends. ``plausible_answers`` of v2.0 are ignored.

This module does not import torch.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from harness.data.reading.card import CardExample
from harness.data.reading.files import decode, read_bytes
from harness.data.reading.log import ReadLog
from harness.data.reading.tables import DataTable, read_table
from harness.data.text import Example, Text
from harness.errors import HarnessError, did_you_mean
from harness_tasks.span_qa.offsets import EXACT, locate_answer

T = TypeVar("T")
COLUMNS = ("id", "question", "context", "answers")
QUESTION_WORDS = ("who", "whom", "whose", "what", "when", "where", "why", "which", "how")


@dataclass(frozen=True, slots=True)
class Question:
    """A question as in its file; answers are (text, offset), not yet verified.

    ``article`` groups the questions that must stay in the same split; ``where`` is for messages.
    """

    id: str
    article: str
    context: str
    question: str
    answers: tuple[tuple[str, int], ...]
    where: str
    tags: tuple[str, ...] = ()

    def card_example(self) -> CardExample:
        """What the data card shows and compares."""
        texts = (self.question, self.context)
        return CardExample(texts, tuple(dict.fromkeys(text for text, _ in self.answers)))

    @property
    def impossible(self) -> bool:
        return not self.answers


def read_questions(paths: Sequence[Path], *, log: ReadLog | None = None) -> list[Question]:
    """Read the questions of the files of one split, in order.

    Raises:
        HarnessError: a file has neither format, a question lacks a field, or an id occurs twice.
    """
    questions: list[Question] = []
    for path in paths:
        nested = _nested(path, log)
        if nested is not None:
            questions += _from_articles(nested, str(path))
        else:
            questions += from_table(read_table(path, log=log))
    if not questions:
        raise HarnessError(f"{', '.join(map(str, paths))}: contains no questions")
    return unique(questions)


def from_table(table: DataTable) -> Iterator[Question]:
    """Questions of flat rows; a row with empty ``answers`` is unanswerable."""
    missing = [c for c in COLUMNS if c not in table.columns]
    if missing:
        raise HarnessError(
            f"{table.source}: no column {missing[0]!r}, {did_you_mean(missing[0], table.columns)}; question "
            f"answering reads {', '.join(COLUMNS)}, or SQuAD's JSON (data, paragraphs, qas)"
        )
    for i in range(len(table)):
        row, where = table.row(i), table.where(i)
        context = _need(row, "context", str, where)
        title = row.get("title")
        yield _question(row, context, str(title) if title else context, where=where, flat=True)


def unique(questions: Sequence[Question]) -> list[Question]:
    """Return the questions; raise HarnessError if an id occurs twice."""
    seen: dict[str, Question] = {}
    for question in questions:
        first = seen.setdefault(question.id, question)
        if first is not question:
            raise HarnessError(
                f"{question.where}: question id {question.id!r} was already used ({first.where}); ids are "
                "unique within a split: give one file for each split, or rename one of the two"
            )
    return list(questions)


def whole_articles(questions: Sequence[Question]) -> dict[str, str]:
    """The group of each question id: articles that share a context form one group.

    Example: articles A and B with a common context and B and C with another one are all in one group.
    """
    leader: dict[str, str] = {}
    by_context: dict[str, str] = {}

    def root(article: str) -> str:
        while leader.setdefault(article, article) != article:
            article = leader[article]
        return article

    for question in questions:
        other = by_context.setdefault(question.context, question.article)
        leader[root(question.article)] = root(other)
    return {q.id: root(q.article) for q in questions}


def build(
    questions: Sequence[Question], repaired: Counter[str], *, texts: dict[str, Text] | None = None
) -> list[Example]:
    """Examples with verified offsets; questions over one context share one :class:`Text`.

    Args:
        questions: as read.
        repaired: counts the answers whose offset was corrected, by reason.
        texts: contexts that are already split into words; extended by this call.

    Returns:
        Examples of texts (question, context) and gold ``{"answers": [{"text", "start", "end"}, ...]}``,
        with character offsets in the context; empty when the question has no answer.

    Raises:
        HarnessError: an answer is not in its context, or its position is ambiguous; names the question.
    """
    texts = {} if texts is None else texts
    examples = []
    for q in questions:
        if q.context not in texts:
            texts[q.context] = Text.from_string(q.context)
        context = texts[q.context]
        if not context.spans:
            raise HarnessError(
                f"{q.where}: question {q.id!r} has no words in its context ({q.context!r:.40})"
            )
        answers = [_verified(q, text, start, repaired) for text, start in q.answers]
        pair = (Text.from_string(q.question), context)
        examples.append(Example(q.id, pair, {"answers": answers}, _tags(q)))
    return examples


def _verified(q: Question, text: str, start: int, repaired: Counter[str]) -> dict[str, object]:
    found = locate_answer(q.context, text, start)
    if found is None:
        actual = q.context[max(start, 0) : max(start, 0) + len(text)]
        times = q.context.count(text)
        reason = f"occurs {times} times, none of them near" if times else "does not occur in the context"
        raise HarnessError(
            f"{q.where}: question {q.id!r}: answer {text!r:.80} is not at answer_start={start}, where the "
            f"context has {actual!r:.80}; it {reason}. Correct answer_start or remove the question"
        )
    at, how = found
    if how != EXACT:
        repaired[how] += 1
    return {"text": text, "start": at, "end": at + len(text)}


def _tags(q: Question) -> tuple[str, ...]:
    """Slices: length of the first answer, and the English question word."""
    if q.impossible:
        tags = ["answer=none"]
    else:
        words = len(q.answers[0][0].split())
        tags = ["answer=1 word" if words <= 1 else "answer=2-3 words" if words <= 3 else "answer=4+ words"]
    asked = next((w for w in q.question.lower().split() if w in QUESTION_WORDS), None)
    return (*tags, *([f"question={asked}"] if asked else []), *q.tags)


def _nested(path: Path, log: ReadLog | None) -> list[object] | None:
    """The articles of a file in SQuAD's format; None for other formats."""
    if ".json" not in (s.lower() for s in path.suffixes):
        return None
    try:
        content = json.loads(decode(read_bytes(path), path=path, log=log))
    except ValueError:
        return None  # JSON lines, or an error that the table reader reports with its line
    articles = content.get("data") if isinstance(content, dict) else None
    if not isinstance(articles, list) or not all(isinstance(a, dict) for a in articles):
        return None
    return articles if any("paragraphs" in a for a in articles) else None


def _from_articles(articles: Sequence[object], source: str) -> Iterator[Question]:
    for a, article in enumerate(articles, start=1):
        paragraphs = _need(article, "paragraphs", list, f"{source}, article {a}")
        title = str((article.get("title") if isinstance(article, Mapping) else None) or f"article {a}")
        for p, paragraph in enumerate(paragraphs, start=1):
            where = f"{source}, article {a} ({title}), paragraph {p}"
            context = _need(paragraph, "context", str, where)
            for qa in _need(paragraph, "qas", list, where):
                yield _question(qa, context, title, where=where, flat=False)


def _question(entry: object, context: str, article: str, *, where: str, flat: bool) -> Question:
    key = _field(entry, "id", (str, int), where)
    where_id = f"{where}, question {key!r}"
    answers = _answers(_field(entry, "answers", (list, Mapping), where_id), where_id)
    fields = entry if isinstance(entry, Mapping) else {}
    impossible = fields.get("is_impossible", not answers if flat else False)
    if bool(impossible) != (not answers):
        raise HarnessError(
            f"{where_id}: is_impossible is {bool(impossible)} but it has {len(answers)} answer(s); a "
            "question without an answer needs is_impossible: true and no answers, any other at least one"
        )
    text = _need(entry, "question", str, where_id)
    tags = _need(entry, "tags", list, where_id) if fields.get("tags") else []
    if not all(isinstance(tag, str) for tag in tags):
        raise HarnessError(f"{where_id}: tags={tags!r:.60}: expected a list of strings")
    return Question(str(key), article, context, text, answers, where, tuple(tags))


def _answers(given: object, where: str) -> tuple[tuple[str, int], ...]:
    """(text, start) of each answer, from the columns of flat rows or the objects of SQuAD's format."""
    if isinstance(given, Mapping):
        texts, starts = (_need(given, key, list, where) for key in ("text", "answer_start"))
        if len(texts) != len(starts):
            raise HarnessError(f"{where}: {len(texts)} answer texts but {len(starts)} answer_start")
        given = [{"text": t, "answer_start": s} for t, s in zip(texts, starts, strict=True)]
    entries = given if isinstance(given, Sequence) else []
    answers = tuple((_need(a, "text", str, where), _need(a, "answer_start", int, where)) for a in entries)
    if any(not text.strip() for text, _ in answers):
        raise HarnessError(f"{where}: an answer is empty; a question without an answer has an empty list")
    return answers


def _need(entry: object, key: str, kind: type[T], where: str) -> T:
    """The value of a key, of one type."""
    value = _field(entry, key, (kind,), where)
    assert isinstance(value, kind)
    return value


def _field(entry: object, key: str, kinds: tuple[type, ...], where: str) -> object:
    if not isinstance(entry, Mapping) or key not in entry:
        keys = [str(k) for k in entry] if isinstance(entry, Mapping) else []
        raise HarnessError(f"{where}: no {key!r}, {did_you_mean(key, keys)}")
    value: object = entry[key]
    if not isinstance(value, kinds) or isinstance(value, bool):
        expected = " or ".join(kind.__name__ for kind in kinds)
        raise HarnessError(f"{where}: {key}={value!r:.60}: expected {expected}")
    return value
