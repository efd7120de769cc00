"""Facts (an entity, a relation and a value), sentences that state them, and questions about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from harness_tasks.mini.world.draw import Draw
from harness_tasks.mini.world.grammar import (
    LONG_DISTANCE,
    NEGATION,
    Grammar,
    Phrase,
    TaggedToken,
    TaggedTokens,
    finish,
    name_tokens,
)
from harness_tasks.mini.world.lexicon import DAY, DAYS, MONTH, MONTHS, THING, Names, Relation
from harness_tasks.mini.world.stems import FIRM, PERSON, PLACE, Name, Verb

NEUTRAL = 0.2
"""Share of the names of persons, places and firms whose form does not indicate the type."""
_WHO = {PERSON: ("Who", "Which person"), FIRM: ("Which firm",), PLACE: ("Which town", "Which place")}
FRAMES = (("plain", 5.0), ("still", 1.0), ("cleft", 1.0), ("known", 1.0), ("apart", 1.5), ("not", 0.8))


@dataclass(frozen=True, slots=True)
class EntityFact:
    """``owner`` has ``value`` (its words) by ``relation``."""

    owner: Name
    relation: Relation
    value: tuple[TaggedToken, ...]


@dataclass(frozen=True, slots=True)
class Statement:
    """A sentence that states a fact; ``value`` and ``owner`` are spans of its tokens, end excluded."""

    tokens: TaggedTokens
    owner: tuple[int, int]
    value: tuple[int, int]
    marks: tuple[str, ...] = field(default=())


class Cast:
    """Draws names. ``pools`` are sources of names with weights; ``origin`` maps each name to its source;
    ``neutral`` is the share of names whose form does not indicate the type."""

    def __init__(
        self, draw: Draw, pools: Sequence[tuple[str, Names, float]], *, neutral: float = NEUTRAL
    ) -> None:
        self._draw = draw
        self._neutral = neutral
        self._pools = [((origin, names), weight) for origin, names, weight in pools]
        self.origin: dict[Name, str] = {}

    def name(self, kind: str) -> Name:
        """A name of this type."""
        draw = self._draw
        origin, names = draw.weighted(self._pools)
        if kind in (PERSON, PLACE, FIRM) and draw.chance(self._neutral):
            out = Name((draw.zipf(names.neutral),), kind, telling=False)
        elif kind == PERSON:
            first, last = (draw.zipf(names.first),), (draw.zipf(names.last),)
            out = Name(draw.weighted((((*first, *last), 0.5), (first, 0.4), (last, 0.1))), PERSON)
        else:
            out = draw.zipf(names.telling[kind])
        self.origin.setdefault(out, origin)
        return out

    def other(self, kind: str, taken: Sequence[Name]) -> Name:
        """A name that shares no word with those in ``taken``."""
        used = [word for name in taken for word in name.words]
        while True:
            name = self.name(kind)
            if not any(word in used for word in name.words):
                return name


class FactWriter:
    """Makes facts and sentences about them."""

    def __init__(self, grammar: Grammar, cast: Cast) -> None:
        self.grammar = grammar
        self.draw = grammar.draw
        self.cast = cast
        self.relations = grammar.lexicon.relations

    def value(self, relation: Relation, *, taken: Sequence[Name] = ()) -> tuple[TaggedToken, ...]:
        """A possible value of the relation."""
        draw = self.draw
        if relation.value == DAY:
            return (TaggedToken(draw.one(DAYS), "PROPN"),)
        if relation.value == MONTH:
            return (TaggedToken(draw.one(MONTHS), "PROPN"),)
        if relation.value == THING:
            topic = draw.one(list(self.grammar.lexicon.topics.values()))
            adjective = [TaggedToken(draw.zipf(topic.adjectives), "ADJ")] if draw.chance(0.6) else []
            return (
                TaggedToken("a", "DET"),
                *adjective,
                TaggedToken(draw.zipf(topic.things).singular, "NOUN"),
            )
        name = self.cast.other(relation.value, taken)
        return tuple(name_tokens(name.words, name.type))

    def state(
        self,
        fact: EntityFact,
        verb: Verb,
        *,
        frame: str = "",
        owner: Phrase | None = None,
        wrong: TaggedTokens | None = None,
    ) -> Statement:
        """State the fact with this verb.

        Args:
            fact: the fact to state.
            verb: one of the relation's.
            frame: one of :data:`FRAMES`; empty = drawn.
            owner: replaces the owner's name (a pronoun).
            wrong: for frame ``not``: a value that is denied.
        """
        frame = frame or self.draw.weighted(FRAMES)
        if frame == "not" and wrong is None:
            frame = "plain"
        name = owner.tokens if owner else name_tokens(fact.owner.words, fact.owner.type)
        value, at = list(fact.value), self._at(fact)
        marks: list[str] = []
        if frame == "cleft":
            before = [TaggedToken("it", "PRON"), TaggedToken("is", "AUX"), *at]
            after = [TaggedToken("that", "SCONJ"), *name, *self._verb(verb)]
            return self._built(before, value, after, owner=(len(before) + len(value) + 1, len(name)))
        lead = self._lead(frame)
        head, marks = self._apart(fact) if frame == "apart" else ([], marks)
        if frame == "not" and wrong is not None:
            return self._contrast(fact, verb, name, wrong)
        still = [TaggedToken("still", "ADV")] if frame == "still" else []
        before = [*lead, *name, *head, *still, *self._verb(verb), *at]
        return self._built(before, value, [], owner=(len(lead), len(name)), marks=marks)

    def _contrast(self, fact: EntityFact, verb: Verb, name: TaggedTokens, wrong: TaggedTokens) -> Statement:
        """Deny one value and state the right one, in either order."""
        value, at, no = list(fact.value), self._at(fact), TaggedToken("not", "PART")
        if self.draw.chance(0.5):
            before = [*name, TaggedToken("does", "AUX"), no, TaggedToken(verb.base, "VERB"), *at, *wrong]
            before += [TaggedToken("but", "CCONJ"), *at]
            return self._built(before, value, [], owner=(0, len(name)), marks=[NEGATION])
        before = [*name, TaggedToken(verb.third, "VERB"), *at]
        after = [TaggedToken("and", "CCONJ"), no, *at, *wrong]
        return self._built(before, value, after, owner=(0, len(name)), marks=[NEGATION])

    def _lead(self, frame: str) -> TaggedTokens:
        if frame != "known":
            return []
        as_everyone = [
            TaggedToken("as", "SCONJ"),
            TaggedToken("everyone", "PRON"),
            TaggedToken("knew", "VERB"),
        ]
        return [*as_everyone, TaggedToken(",", "PUNCT")]

    def _apart(self, fact: EntityFact) -> tuple[TaggedTokens, list[str]]:
        """An insertion between commas; it does not indicate the owner's type, except for a person's trade."""
        grammar, topic = self.grammar, self.draw.one(list(self.grammar.lexicon.topics.values()))
        agent = grammar.noun_phrase(topic, "agents", deep=False)
        comma = TaggedToken(",", "PUNCT")
        if fact.owner.type == PERSON and self.draw.chance(0.4):
            trade = [TaggedToken("a", "DET"), TaggedToken(self.draw.zipf(topic.agents).singular, "NOUN")]
            return [comma, *trade, comma], [LONG_DISTANCE]
        aside = [
            TaggedToken("as", "SCONJ"),
            *agent.tokens,
            TaggedToken(self.draw.one(("said", "knew")), "VERB"),
        ]
        return [comma, *aside, comma], [LONG_DISTANCE]

    def _verb(self, verb: Verb) -> TaggedTokens:
        draw = self.draw
        helper, form = draw.weighted((
            (("", verb.third), 5), (("", verb.past), 2), (("has", verb.past), 1), (("will", verb.base), 1),
        ))  # fmt: skip
        return [*([TaggedToken(helper, "AUX")] if helper else []), TaggedToken(form, "VERB")]

    @staticmethod
    def _at(fact: EntityFact) -> TaggedTokens:
        preposition = fact.relation.preposition
        return [TaggedToken(preposition, "ADP")] if preposition else []

    @staticmethod
    def _built(
        before: TaggedTokens,
        value: TaggedTokens,
        after: TaggedTokens,
        *,
        owner: tuple[int, int],
        marks: Sequence[str] = (),
    ) -> Statement:
        at, size = owner
        tokens = finish([*before, *value, *after])
        return Statement(tokens, (at, at + size), (len(before), len(before) + len(value)), tuple(marks))

    def ask(self, fact: EntityFact, verb: Verb) -> TaggedTokens:
        """A question for the value."""
        draw = self.draw
        pronouns = [TaggedToken(w, "PRON") for w in draw.one(fact.relation.ask).split()]
        name = name_tokens(fact.owner.words, fact.owner.type)
        if draw.chance(0.2):
            cleft = [TaggedToken("is", "AUX"), TaggedToken("it", "PRON"), TaggedToken("that", "SCONJ")]
            return finish([*pronouns, *cleft, *name, TaggedToken(verb.third, "VERB")], "?")
        helper, form = draw.one((("does", verb.base), ("did", verb.base), ("has", verb.past)))
        return finish([*pronouns, TaggedToken(helper, "AUX"), *name, TaggedToken(form, "VERB")], "?")

    def ask_owner(self, fact: EntityFact, verb: Verb) -> TaggedTokens:
        """A question for the entity that has the value."""
        who = [TaggedToken(w, "PRON") for w in self.draw.one(_WHO[fact.relation.owner]).split()]
        return finish([*who, *self._verb(verb), *self._at(fact), *fact.value], "?")
