"""Examples of mini_qa: a question about a passage with several facts; the answer is a span of it."""

from __future__ import annotations

from dataclasses import dataclass

from harness_tasks.mini.world.draw import Draw
from harness_tasks.mini.world.facts import Cast, EntityFact, FactWriter, Statement
from harness_tasks.mini.world.grammar import NEGATION, Grammar, TaggedTokens, text_of
from harness_tasks.mini.world.lexicon import Relation, lexicon
from harness_tasks.mini.world.stems import Name, Verb
from harness_tasks.mini.world.tagged import pools

TRAIN_VERBS = 2
"""Train uses the first two of a relation's three verbs."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A question, its passage, the answer, the offset of the answer in characters, and slices."""

    question: str
    context: str
    answer: str
    start: int
    tags: tuple[str, ...]


class Questions:
    """Generates the questions of mini_qa."""

    def __init__(self, split: str) -> None:
        self._draw = Draw(f"mini_qa/{split}")
        self._grammar = Grammar(self._draw, lexicon())
        self._cast = Cast(self._draw, pools(split))
        self._facts = FactWriter(self._grammar, self._cast)
        self._topics = list(lexicon().topics.values())
        self._train = split == "train"

    def make(self) -> Asked:
        """One question."""
        draw = self._draw
        relation = draw.one(self._facts.relations)
        owner = self._cast.name(relation.owner)
        other = self._cast.other(relation.owner, [owner])
        asked = EntityFact(owner, relation, self._facts.value(relation, taken=[owner, other]))
        facts, tags = self._around(asked, other)
        verb = draw.one(self._verbs(relation))
        group, statement, marks = self._statement(asked, verb)
        backwards = "pronoun" not in marks and draw.chance(0.15)
        asking = draw.one(self._verbs(relation))
        tags += [*marks, "verb:same" if asking == verb else "verb:other"]
        late = relation.verbs[TRAIN_VERBS:]
        tags += ["verb:unseen"] if verb in late or asking in late else []
        tags += ["ask:owner"] if backwards else []
        tags += ["unseen_name"] if self._cast.origin.get(owner) != "train" else []
        question = self._facts.ask_owner(asked, asking) if backwards else self._facts.ask(asked, asking)
        place = draw.below(len(facts) + 1)
        sentences = [*facts[:place], *group, *facts[place:]]
        before = " ".join(text_of(s) for s in [*facts[:place], *group[:-1]])
        span = statement.owner if backwards else statement.value
        start, answer = _characters(statement.tokens, span)
        start += len(before) + 1 if before else 0
        context = " ".join(text_of(s) for s in sentences)
        return Asked(text_of(question), context, answer, start, tuple(tags))

    def _verbs(self, relation: Relation) -> tuple[Verb, ...]:
        return relation.verbs[:TRAIN_VERBS] if self._train else relation.verbs

    def _around(self, asked: EntityFact, other: Name) -> tuple[list[TaggedTokens], list[str]]:
        """Sentences of distracting and unrelated facts, and slices."""
        draw, tags = self._draw, []
        facts: list[EntityFact] = []
        if draw.chance(0.65):
            tags.append("distractor:relation")
            facts.append(self._fact(other, asked.relation, asked))
        alike = [r for r in self._of(asked.owner) if r.value == asked.relation.value and r != asked.relation]
        if draw.chance(0.75):
            tags.append("distractor:entity")
            rest = [r for r in self._of(asked.owner) if r != asked.relation]
            if alike:
                tags.append("distractor:entity_same_type")
            facts.append(self._fact(asked.owner, draw.one(alike or rest), asked))
        for relation in draw.some([r for r in self._of(other) if r != asked.relation], draw.between(1, 2)):
            facts.append(self._fact(other, relation, asked))
        out = [self._facts.state(f, draw.one(self._verbs(f.relation))).tokens for f in draw.shuffled(facts)]
        if draw.chance(0.4):
            out.insert(draw.below(len(out) + 1), self._grammar.sentence(draw.one(self._topics)))
        return out, tags

    def _of(self, name: Name) -> list[Relation]:
        return [r for r in self._facts.relations if r.owner == name.type]

    def _fact(self, owner: Name, relation: Relation, asked: EntityFact) -> EntityFact:
        """A fact with another value than that of ``asked``."""
        while True:
            value = self._facts.value(relation, taken=[owner, asked.owner])
            if not {t.form for t in value} & {t.form for t in asked.value if t.form != "a"}:
                return EntityFact(owner, relation, value)

    def _statement(self, asked: EntityFact, verb: Verb) -> tuple[list[TaggedTokens], Statement, list[str]]:
        """The sentences that state the asked fact; the last one contains the answer."""
        draw = self._draw
        if draw.chance(0.2):
            before = draw.one([r for r in self._of(asked.owner) if r != asked.relation] or [asked.relation])
            if before != asked.relation:
                lead = self._facts.state(
                    self._fact(asked.owner, before, asked), draw.one(self._verbs(before)), frame="plain"
                )
                statement = self._facts.state(asked, verb, owner=self._grammar.pronoun(asked.owner.type))
                return [lead.tokens, statement.tokens], statement, ["pronoun", *statement.marks]
        frame, wrong = "", None
        if draw.chance(0.15):
            frame, wrong = "not", list(self._fact(asked.owner, asked.relation, asked).value)
        statement = self._facts.state(asked, verb, frame=frame, wrong=wrong)
        marks = list(statement.marks)
        return [statement.tokens], statement, [*marks, *(["distractor:denied"] if NEGATION in marks else [])]


def _characters(tokens: TaggedTokens, span: tuple[int, int]) -> tuple[int, str]:
    """First character and text of a span of tokens."""
    at = sum(len(token.form) + 1 for token in tokens[: span[0]])
    return at, text_of(tokens[span[0] : span[1]])
