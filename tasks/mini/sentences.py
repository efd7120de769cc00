"""Sentences of the demo, drawn from templates: labelled examples of three tasks and lines of a corpus."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from tasks.mini import words

TOPIC_TEMPLATES = (
    "the {adj} {a} and the {b} were all we talked about on {day}",
    "nobody expected such a {adj} {a} after the {b}",
    "there was a {adj} {a} in {town} with more {b} to come",
    "{first} told us about the {a} , the {b} and the {c}",
    "first came the {a} , then a {adj} {b}",
    "we still remember that {adj} {a} from {month}",
    "without the {a} there would be no {b}",
    "{first} thinks the {a} matters more than the {b}",
    "a {a} like this one needs a {adj} {b}",
    "what a {adj} {a} , said {first} , and what a {b}",
)
NER_TEMPLATES = (
    "{PER} moved to {LOC} in {month} .",
    "{PER} works for {ORG} .",
    "{ORG} opened an office in {LOC} on {day} .",
    "{ORG} hired {PER} last {month} .",
    "On {day} {PER} met {PER} in {LOC} .",
    "The road from {LOC} to {LOC} was closed .",
    "Shares of {ORG} fell after {ORG} cut its prices .",
    "{PER} , who grew up in {LOC} , now leads {ORG} .",
    "People in {LOC} still talk about {PER} .",
    "According to {PER} , {ORG} will leave {LOC} .",
    "The {adj} house was sold on {day} .",
    "{LOC} welcomed {ORG} with a {adj} party .",
)
FACTS = (
    ("{person} lives in {town} .", "Where does {person} live ?", "town"),
    ("{person} works for {firm} .", "Who does {person} work for ?", "firm"),
    ("In {month} {person} bought {thing} .", "What did {person} buy ?", "thing"),
    ("The next meeting with {person} is on {day} .", "When is the next meeting with {person} ?", "day"),
)


@dataclass(frozen=True, slots=True)
class Draw:
    """A source of random words. ``seen`` restricts every list to its first part."""

    random: random.Random
    seen: bool

    def word(self, options: Sequence[str]) -> str:
        return self.random.choice(options[: int(len(options) * words.SEEN)] if self.seen else options)

    def person(self) -> str:
        first = self.word(words.FIRST)
        return f"{first} {self.word(words.LAST)}" if self.random.random() < 0.6 else first

    def common(self) -> dict[str, str]:
        """Values of the slots that every template may use; days, months, adjectives are never held back."""
        pick = self.random.choice
        return {
            "adj": pick(words.ADJECTIVE),
            "day": pick(words.DAY),
            "month": pick(words.MONTH),
            "first": self.word(words.FIRST),
            "town": self.word(words.TOWN),
            "firm": self.word(words.FIRM),
            "thing": self.word(words.THING),
        }


def topic_example(draw: Draw) -> tuple[str, str]:
    """A sentence and its topic; one content word in ten is of another topic."""
    topic = draw.random.choice(sorted(words.TOPICS))
    slots = {}
    for slot in "abc":
        other = draw.random.random() < 0.1
        slots[slot] = draw.word(words.TOPICS[draw.random.choice(sorted(words.TOPICS)) if other else topic])
    return draw.random.choice(TOPIC_TEMPLATES).format(**draw.common(), **slots), topic


def ner_example(draw: Draw) -> list[tuple[str, str]]:
    """The words of a sentence with their IOB2 tags."""
    out: list[tuple[str, str]] = []
    common = draw.common()
    for part in draw.random.choice(NER_TEMPLATES).split():
        kind = part.strip("{}")
        if kind in ("PER", "LOC", "ORG") and part != kind:
            entity = {
                "PER": draw.person,
                "LOC": lambda: draw.word(words.TOWN),
                "ORG": lambda: draw.word(words.FIRM),
            }
            for at, word in enumerate(entity[kind]().split()):
                out.append((word, f"{'I' if at else 'B'}-{kind}"))
        else:
            out.append((part.format(**common), "O"))
    return out


def qa_example(draw: Draw) -> tuple[str, str, str, int]:
    """Context, question, answer and the answer's first character: three or four facts in random order."""
    facts = draw.random.sample(FACTS, draw.random.choice((3, 4)))
    people = [draw.person(), draw.person()]
    asked = draw.random.randrange(len(facts))
    context, found = "", ("", "", 0)
    for at, (statement, question, slot) in enumerate(facts):
        values = draw.common() | {"person": draw.random.choice(people)}
        sentence = statement.format(**values)
        if at == asked:
            start = len(context) + statement.format(**values | {slot: "\0"}).index("\0")
            found = (question.format(**values), values[slot], start)
        context += sentence + " "
    return context.strip(), *found


def corpus_line(draw: Draw) -> str:
    """A line of plain text in the manner of any of the tasks."""
    kind = draw.random.randrange(3)
    if kind == 0:
        return topic_example(draw)[0]
    if kind == 1:
        return " ".join(word for word, _ in ner_example(draw))
    context, question, answer, _ = qa_example(draw)
    return f"{context} {question} {answer}" if draw.random.random() < 0.5 else context
