"""The unlabelled corpus: documents of sentences, one sentence per line, a blank line between documents.

A story keeps to one topic. A report states facts about a few entities, some of them twice in other words, and
some reports contain questions with answers. A fact holds only within its document, so facts cannot be
memorised.
"""

from __future__ import annotations

from collections.abc import Iterator

from harness_tasks.mini.world.draw import Draw
from harness_tasks.mini.world.facts import Cast, EntityFact, FactWriter
from harness_tasks.mini.world.frames import contrast, gathering
from harness_tasks.mini.world.grammar import (
    Grammar,
    Phrase,
    TaggedToken,
    TaggedTokens,
    finish,
    name_tokens,
    text_of,
    words,
)
from harness_tasks.mini.world.lexicon import TITLES, Lexicon, Topic
from harness_tasks.mini.world.stems import FIRM, PERSON, PLACE, Name

STORIES = 0.7
"""Share of documents that are stories."""


class MiniCorpus:
    """Generates documents from a stream of choices."""

    def __init__(self, lexicon: Lexicon, *, seed: str = "corpus") -> None:
        self.draw = Draw(seed)
        self.grammar = Grammar(self.draw, lexicon)
        self.cast = Cast(self.draw, [("corpus", lexicon.known, 1.0)])
        self.facts = FactWriter(self.grammar, self.cast)
        self.lexicon = lexicon
        self._topics = list(lexicon.topics.values())

    def documents(self, n_words: int, *, held_out: frozenset[str]) -> Iterator[list[str]]:
        """Documents until there are ``n_words`` words; sentences in ``held_out`` are left out."""
        count = 0
        while count < n_words:
            made = self.story() if self.draw.chance(STORIES) else self.report()
            lines = [line for line in map(text_of, made) if line not in held_out]
            count += sum(len(line.split()) for line in lines)
            yield lines

    def story(self) -> list[TaggedTokens]:
        """Sentences of one topic about two persons."""
        draw, topic = self.draw, self.draw.one(self._topics)
        people: list[Name] = []
        for _ in range(2):
            people.append(self.cast.other(PERSON, people))
        out: list[TaggedTokens] = []
        named = False
        for _ in range(draw.between(8, 16)):
            if draw.chance(0.3):
                subject = self._person(people, named)
                named = True
                out.append(self.grammar.sentence(topic, subject=subject))
            else:
                named = False
                out.append(self._of_topic(topic))
        return out

    def _person(self, people: list[Name], named: bool) -> Phrase:
        if named and self.draw.chance(0.6):
            return self.grammar.pronoun()
        name = self.draw.one(people)
        title = [TaggedToken(self.draw.zipf(TITLES), "PROPN")] if self.draw.chance(0.15) else []
        return Phrase([*title, *name_tokens(name.words, PERSON)], False)

    def _of_topic(self, topic: Topic) -> TaggedTokens:
        """A sentence of the topic; sometimes it is contrasted or coordinated with another topic."""
        draw, grammar = self.draw, self.grammar
        if draw.chance(0.1):
            return contrast(grammar, right=topic, wrong=self._other(topic))[0]
        if draw.chance(0.08):
            link = [TaggedToken(draw.one(("while", "and", "but")), "SCONJ")]
            both = [grammar.clause(topic), grammar.clause(self._other(topic))]
            first, second = draw.shuffled(both)
            return finish([*first, *link, *second])
        return grammar.sentence(topic)

    def _other(self, topic: Topic) -> Topic:
        return self.draw.one([t for t in self._topics if t.name != topic.name])

    def report(self) -> list[TaggedTokens]:
        """Facts about two or three entities, some stated twice, sometimes followed by questions with their
        answers."""
        draw = self.draw
        facts = self._facts()
        out = [self._state(fact, facts) for fact in facts]
        out += [self._state(fact, facts) for fact in draw.shuffled(facts) if draw.chance(0.6)]
        if draw.chance(0.3):
            out.insert(draw.below(len(out)), gathering(self.grammar, self.cast)[0])
        if draw.chance(0.3):
            out.insert(draw.below(len(out)), self._of_topic(draw.one(self._topics)))
        if draw.chance(0.45):
            for fact in draw.some(facts, 3):
                out += self._question(fact)
        return out

    def _facts(self) -> list[EntityFact]:
        draw = self.draw
        kind = draw.weighted(((PERSON, 5), (FIRM, 4), (PLACE, 1)))
        relations = [r for r in self.facts.relations if r.owner == kind]
        owners: list[Name] = []
        for _ in range(draw.between(2, 3)):
            owners.append(self.cast.other(kind, owners))
        return [
            EntityFact(owner, relation, self.facts.value(relation, taken=owners))
            for owner in owners
            for relation in draw.some(relations, 2)
        ]

    def _state(self, fact: EntityFact, facts: list[EntityFact]) -> TaggedTokens:
        draw = self.draw
        wrong = list(draw.one(facts).value) if draw.chance(0.3) else None
        same = [list(f.value) for f in facts if f.relation == fact.relation and f.value != fact.value]
        if wrong is not None:
            wrong = draw.one(same) if same else list(self.facts.value(fact.relation, taken=[fact.owner]))
        return self.facts.state(fact, draw.one(fact.relation.verbs), wrong=wrong).tokens

    def _question(self, fact: EntityFact) -> list[TaggedTokens]:
        draw, verbs = self.draw, fact.relation.verbs
        if draw.chance(0.25):
            short = name_tokens(fact.owner.words, fact.owner.type)
            question = self.facts.ask_owner(fact, draw.one(verbs))
        else:
            preposition = fact.relation.preposition
            short = [*(words(preposition, "ADP") if preposition else []), *fact.value]
            question = self.facts.ask(fact, draw.one(verbs))
        full = draw.chance(0.4)
        answer = self.facts.state(fact, draw.one(verbs), frame="plain").tokens if full else finish(short)
        return [question, answer]
