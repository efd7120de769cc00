"""Questions as read, and the examples made from them. This module does not import torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.data.reading.card import CardExample
from harness.data.text import Example, Text
from harness.errors import HarnessError

QUESTION_WORDS = ("who", "whom", "whose", "what", "when", "where", "why", "which", "how")


@dataclass(frozen=True, slots=True)
class Question:
    """A question with the spans of its answers.

    Attributes:
        id: empty until a question without an id gets a number.
        article: groups the questions that must stay in the same split.
        context, question: unchanged texts.
        answers: text and start of each answer, exactly as in the context.
        where: place in the data, for messages.
        tags: slices.
        titled: whether ``article`` is a title of the data.
        labelled: False = the data do not say whether there is an answer.
        stated: whether the data have a truth value for "no answer", such as ``is_impossible``.
    """

    id: str
    article: str
    context: str
    question: str
    answers: tuple[tuple[str, int], ...]
    where: str
    tags: tuple[str, ...] = ()
    titled: bool = False
    labelled: bool = True
    stated: bool = False

    def card_example(self) -> CardExample:
        """What the data card shows and compares."""
        texts = (self.question, self.context)
        answers = tuple(dict.fromkeys(text for text, _ in self.answers))
        return CardExample(texts, answers, gold=tuple(sorted(answers)))

    @property
    def impossible(self) -> bool:
        """Whether the question has no answer, according to the data."""
        return self.labelled and not self.answers


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


def build(questions: Sequence[Question], *, texts: dict[str, Text] | None = None) -> list[Example]:
    """Examples; questions over one context share one :class:`Text`.

    Args:
        questions: as read.
        texts: contexts that are already split into words; extended by this call.

    Returns:
        Examples of texts (question, context) and gold ``{"answers": [{"text", "start", "end"}, ...]}``,
        with character offsets in the context; empty when the question has no answer. The gold of an
        unlabelled question is None.
    """
    texts = {} if texts is None else texts
    examples = []
    for q in questions:
        if q.context not in texts:
            texts[q.context] = Text.from_string(q.context)
        answers = [{"text": text, "start": at, "end": at + len(text)} for text, at in q.answers]
        pair = (Text.from_string(q.question), texts[q.context])
        examples.append(Example(q.id, pair, {"answers": answers} if q.labelled else None, _tags(q)))
    return examples


def _tags(q: Question) -> tuple[str, ...]:
    """Slices: length of the first answer, and the English question word."""
    if not q.labelled:
        tags = []
    elif q.impossible:
        tags = ["answer=none"]
    else:
        words = len(q.answers[0][0].split())
        tags = ["answer=1 word" if words <= 1 else "answer=2-3 words" if words <= 3 else "answer=4+ words"]
    asked = next((w for w in q.question.lower().split() if w in QUESTION_WORDS), None)
    return (*tags, *([f"question={asked}"] if asked else []), *q.tags)


def unlabelled(source: str, role: str, number: int) -> HarnessError:
    """The error for a split other than test in which no question has an answer."""
    split = role or "split"
    return HarnessError(
        f"{source}: none of its {number} questions has an answer (an unlabelled {split}?), so that nothing "
        f"can be learned or chosen; give a file with answers as task.{role or 'train'}; if the answers have "
        "another name, set task.fields.answers=NAME"
    )
