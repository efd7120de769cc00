"""Questions over contexts out of SQuAD's JSON (v1.1, v2.0, and what follows them) and out of flat rows.

Flat rows (jsonl, JSON lists, Parquet, hub data sets) hold ``id``, ``context``, ``question`` and ``answers``,
either ``{"text": [...], "answer_start": [...]}`` or a list of ``{"text", "answer_start"}``; an optional
``title`` names the article. In both formats a question may have ``tags``, a list of the slices it belongs to.
Contexts are kept to the character: leading blanks and line ends are part of what offsets count.
``plausible_answers`` of v2.0 are never read.

This module imports no torch.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.data.files import decode, read_bytes
from harness.data.tables import DataTable, read_table
from harness.data.text import Example, Text
from harness.errors import HarnessError, did_you_mean
from harness_tasks.span_qa.offsets import EXACT, locate_answer

COLUMNS = ("id", "question", "context", "answers")
QUESTION_WORDS = ("who", "whom", "whose", "what", "when", "where", "why", "which", "how")


@dataclass(frozen=True, slots=True)
class Question:
    """A question as its file has it; answers are (text, first character), not yet verified.

    ``article`` groups the questions that must stay on one side of a cut; ``where`` is for messages.
    """

    id: str
    article: str
    context: str
    question: str
    answers: tuple[tuple[str, int], ...]
    where: str
    tags: tuple[str, ...] = ()

    @property
    def impossible(self) -> bool:
        return not self.answers


def read_questions(paths: Sequence[Path], *, notes: list[str] | None = None) -> list[Question]:
    """All questions of the files of one split, in their order.

    Raises:
        HarnessError: a file is of neither format, a question lacks a part, or an id comes twice.
    """
    questions: list[Question] = []
    for path in paths:
        nested = _nested(path, notes)
        if nested is not None:
            questions += _from_articles(nested, str(path))
        else:
            questions += from_table(read_table(path, notes=notes))
    if not questions:
        raise HarnessError(f"{', '.join(map(str, paths))}: no question in it")
    return unique(questions)


def from_table(table: DataTable) -> Iterator[Question]:
    """Questions of flat rows; a row with an empty ``answers`` has no answer."""
    missing = [c for c in COLUMNS if c not in table.columns]
    if missing:
        raise HarnessError(
            f"{table.source}: no column {missing[0]!r}, {did_you_mean(missing[0], table.columns)}; question "
            f"answering reads {', '.join(COLUMNS)}, or SQuAD's JSON (data, paragraphs, qas)"
        )
    for i, row in enumerate(table.rows):
        where = table.where(i)
        context = _need(row, "context", str, where)
        title = row.get("title")
        yield _question(row, context, str(title) if title else context, where=where, flat=True)


def unique(questions: Sequence[Question]) -> list[Question]:
    """The questions, unless an id comes twice."""
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
    """For each question id its group: articles that share a context are one group."""
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
        repaired: counts answers that had to be moved, by reason.
        texts: contexts already split into words, extended by this call.

    Returns:
        Examples of texts (question, context) and gold ``{"answers": [{"text", "start", "end"}, ...]}``,
        character offsets in the context, empty when the question has no answer.

    Raises:
        HarnessError: an answer is not in its context, or its place cannot be told; names the question.
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


def _verified(q: Question, text: str, start: int, repaired: Counter[str]) -> dict[str, Any]:
    found = locate_answer(q.context, text, start)
    if found is None:
        there = q.context[max(start, 0) : max(start, 0) + len(text)]
        times = q.context.count(text)
        what = f"stands there {times} times, none within reach" if times else "is nowhere in the context"
        raise HarnessError(
            f"{q.where}: question {q.id!r}: answer {text!r:.80} should begin at character {start}, where the "
            f"context reads {there!r:.80}; it {what}. Correct answer_start or remove the question"
        )
    at, how = found
    if how != EXACT:
        repaired[how] += 1
    return {"text": text, "start": at, "end": at + len(text)}


def _tags(q: Question) -> tuple[str, ...]:
    """Slices: how long the (first) answer is, and the English question word."""
    if q.impossible:
        tags = ["answer=none"]
    else:
        words = len(q.answers[0][0].split())
        tags = ["answer=1 word" if words <= 1 else "answer=2-3 words" if words <= 3 else "answer=4+ words"]
    asked = next((w for w in q.question.lower().split() if w in QUESTION_WORDS), None)
    return (*tags, *([f"question={asked}"] if asked else []), *q.tags)


def _nested(path: Path, notes: list[str] | None) -> list[Any] | None:
    """The articles of a file in SQuAD's format; None when it is something else."""
    if ".json" not in (s.lower() for s in path.suffixes):
        return None
    try:
        content = json.loads(decode(read_bytes(path), path=path, notes=notes))
    except ValueError:
        return None  # one object a line, or an error which the reader of rows words better
    articles = content.get("data") if isinstance(content, dict) else None
    if not isinstance(articles, list) or not all(isinstance(a, dict) for a in articles):
        return None
    return articles if any("paragraphs" in a for a in articles) else None


def _from_articles(articles: list[Any], source: str) -> Iterator[Question]:
    for a, article in enumerate(articles, start=1):
        title = str(article.get("title") or f"article {a}")
        for p, paragraph in enumerate(_need(article, "paragraphs", list, f"{source}, article {a}"), start=1):
            where = f"{source}, article {a} ({title}), paragraph {p}"
            context = _need(paragraph, "context", str, where)
            for qa in _need(paragraph, "qas", list, where):
                yield _question(qa, context, title, where=where, flat=False)


def _question(entry: Any, context: str, article: str, *, where: str, flat: bool) -> Question:
    key = _need(entry, "id", (str, int), where)
    where_id = f"{where}, question {key!r}"
    answers = _answers(_need(entry, "answers", (list, Mapping), where_id), where_id)
    impossible = entry.get("is_impossible", not answers if flat else False)
    if bool(impossible) != (not answers):
        raise HarnessError(
            f"{where_id}: is_impossible is {bool(impossible)} but it has {len(answers)} answer(s); a "
            "question without an answer needs is_impossible: true and no answers, any other at least one"
        )
    text = _need(entry, "question", str, where_id)
    tags = _need(entry, "tags", list, where_id) if entry.get("tags") else []
    if not all(isinstance(tag, str) for tag in tags):
        raise HarnessError(f"{where_id}: tags is {tags!r:.60}; it should be a list of texts")
    return Question(str(key), article, context, text, answers, where, tuple(tags))


def _answers(given: Any, where: str) -> tuple[tuple[str, int], ...]:
    if isinstance(given, Mapping):
        texts = list(_need(given, "text", list, where))
        starts = list(_need(given, "answer_start", list, where))
        if len(texts) != len(starts):
            raise HarnessError(f"{where}: {len(texts)} answer texts but {len(starts)} answer_start")
        given = [{"text": t, "answer_start": s} for t, s in zip(texts, starts, strict=True)]
    answers = tuple((_need(a, "text", str, where), _need(a, "answer_start", int, where)) for a in given)
    if any(not text.strip() for text, _ in answers):
        raise HarnessError(f"{where}: an answer is empty; a question without an answer has no answers at all")
    return answers


def _need(entry: Any, key: str, kind: type | tuple[type, ...], where: str) -> Any:
    if not isinstance(entry, Mapping) or key not in entry:
        keys = list(entry) if isinstance(entry, Mapping) else []
        raise HarnessError(f"{where}: no {key!r}, {did_you_mean(key, keys)}")
    if not isinstance(entry[key], kind) or isinstance(entry[key], bool):
        raise HarnessError(f"{where}: {key} is {entry[key]!r:.60}, which is not of the type it should be")
    return entry[key]
