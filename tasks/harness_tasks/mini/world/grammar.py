"""The grammar, which generates tagged sentences.

Subject and verb agree in number, and words come mostly from the sentence's topic. A sentence may contain
relative clauses between subject and verb, coordination, negation, the passive, reported speech and pronouns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from harness_tasks.mini.world.draw import Draw
from harness_tasks.mini.world.lexicon import DAYS, MONTHS, NUMBERS, Lexicon, Topic
from harness_tasks.mini.world.stems import PERSON, Noun, Verb

OUTSIDE = "O"
CROSS = 0.03
"""Share of words from another topic."""
LONG_DISTANCE, NEGATION, COORDINATION, RELATIVE = "long_distance", "negation", "coordination", "relative"
PASSIVE, PRONOUN = "passive", "pronoun"
_SINGULAR = (("a", 9), ("this", 2), ("that", 1), ("every", 2), ("his", 1), ("her", 1), ("no", 0.5))
_PLURAL = (("some", 3), ("these", 1), ("many", 2), ("all", 1), ("their", 1), ("few", 1))
_TIMES = (("yesterday", "ADV"), ("today", "ADV"), ("again", "ADV"), ("often", "ADV"), ("there", "ADV"))


class TaggedToken(NamedTuple):
    """A word, its part of speech, and its IOB2 label as part of a name."""

    form: str
    pos: str
    entity: str = OUTSIDE


TaggedTokens = list[TaggedToken]


@dataclass(frozen=True, slots=True)
class Phrase:
    """A noun phrase: its tokens and its number."""

    tokens: TaggedTokens
    plural: bool


def words(text: str, *tags: str) -> TaggedTokens:
    """Tokens of fixed words and their parts of speech."""
    return [TaggedToken(form, pos) for form, pos in zip(text.split(), tags, strict=True)]


def name_tokens(parts: Sequence[str], kind: str) -> TaggedTokens:
    """Tokens of a name. Names of substances are common nouns by their part of speech."""
    pos = "NOUN" if kind == "SUB" else "PROPN"
    return [TaggedToken(part, pos, f"{'I' if i else 'B'}-{kind}") for i, part in enumerate(parts)]


def finish(tokens: TaggedTokens, mark: str = ".") -> TaggedTokens:
    """Finish a sentence: capital letter, full stop, *an* for *a* before a vowel."""
    out = []
    for i, token in enumerate(tokens):
        form = token.form
        if form == "a" and i + 1 < len(tokens) and tokens[i + 1].form[0] in "aeiou":
            form = "an"
        out.append(token._replace(form=form))
    first = out[0]
    out[0] = first._replace(form=first.form[0].upper() + first.form[1:])
    return [*out, TaggedToken(mark, "PUNCT")]


def text_of(tokens: TaggedTokens) -> str:
    """The words, separated by blanks."""
    return " ".join(token.form for token in tokens)


class Grammar:
    """Generates sentences from a stream of choices. ``marks`` collects the constructions used; callers clear
    it."""

    def __init__(self, draw: Draw, lexicon: Lexicon) -> None:
        self.draw = draw
        self.lexicon = lexicon
        self.marks: list[str] = []
        self._topics = list(lexicon.topics.values())

    def source(self, topic: Topic) -> Topic:
        """Usually the topic itself, sometimes the general vocabulary, rarely another topic."""
        if self.draw.chance(CROSS):
            return self.draw.one(self._topics)
        return self.lexicon.general if self.draw.chance(0.12) else topic

    def noun_phrase(self, topic: Topic, kind: str, *, deep: bool = True, noun: Noun | None = None) -> Phrase:
        """A phrase around a noun of ``kind`` (agents, things or places), or around ``noun``."""
        draw = self.draw
        plural = draw.chance(0.35)
        head = noun or draw.zipf(getattr(self.source(topic), kind))
        tokens = self._determiner(plural)
        if draw.chance(0.45):
            tokens.append(TaggedToken(draw.zipf(self.source(topic).adjectives), "ADJ"))
        tokens.append(TaggedToken(head.form(plural), "NOUN"))
        if deep and draw.chance(0.07):
            tokens += [TaggedToken("of", "ADP"), *self.noun_phrase(topic, "things", deep=False).tokens]
        return Phrase(tokens, plural)

    def subject(self, topic: Topic, kind: str = "agents", *, noun: Noun | None = None) -> Phrase:
        """A noun phrase, sometimes with an insertion between it and its verb."""
        phrase = self.noun_phrase(topic, kind, noun=noun)
        if not self.draw.chance(0.14):
            return phrase
        return Phrase([*phrase.tokens, *self.insertion(topic, phrase.plural, kind=kind)], phrase.plural)

    def insertion(self, topic: Topic, plural: bool, *, kind: str = "agents") -> TaggedTokens:
        """An insertion between subject and verb: a relative clause or a phrase of place."""
        self.marks.append(LONG_DISTANCE)
        which = TaggedToken("who" if kind == "agents" else "that", "PRON")
        choice = self.draw.below(3)
        if choice == 0:
            return [TaggedToken("near", "ADP"), *self.noun_phrase(topic, "places", deep=False).tokens]
        self.marks.append(RELATIVE)
        if choice == 1:
            verb = self.verb(self.act(topic), plural, tense="past")
            return [which, *verb, *self.noun_phrase(topic, "things", deep=False).tokens]
        other = self.noun_phrase(topic, "agents", deep=False)
        return [TaggedToken("that", "PRON"), *other.tokens, *self.verb(self.act(topic), other.plural)]

    def act(self, topic: Topic) -> Verb:
        return self.draw.zipf(self.source(topic).acts)

    def verb(self, verb: Verb, plural: bool, *, tense: str | None = None) -> TaggedTokens:
        """The verb with its auxiliaries, agreeing with a subject of this number, sometimes negated."""
        draw = self.draw
        tense = tense or draw.weighted(
            (("past", 0.5), ("present", 0.28), ("future", 0.08), ("perfect", 0.07), ("going", 0.07))
        )
        negated = draw.chance(0.07)
        if negated:
            self.marks.append(NEGATION)
        never = negated and draw.chance(0.3)
        no = [] if never or not negated else [TaggedToken("not", "PART")]
        adverb = [TaggedToken("never", "ADV")] if never else []
        if tense == "past" and not no:
            return [*adverb, TaggedToken(verb.past, "VERB")]
        if tense == "present" and not no:
            return [*adverb, TaggedToken(verb.present(plural), "VERB")]
        helper, form = {
            "past": ("did", verb.base),
            "present": ("do" if plural else "does", verb.base),
            "future": ("will", verb.base),
            "perfect": ("have" if plural else "has", verb.past),
            "going": (draw.one(("are", "were") if plural else ("is", "was")), verb.ing),
        }[tense]
        return [TaggedToken(helper, "AUX"), *no, *adverb, TaggedToken(form, "VERB")]

    def clause(self, topic: Topic, *, subject: Phrase | None = None) -> TaggedTokens:
        """A clause without its full stop. ``subject`` replaces the drawn one."""
        draw = self.draw
        kind = draw.weighted((("act", 0.52), ("happen", 0.26), ("be", 0.12), ("passive", 0.1)))
        if kind == "act":
            out = self._act(topic, subject or self.subject(topic))
        elif kind == "happen":
            subject = subject or self.subject(topic, draw.one(("agents", "things")))
            out = [*subject.tokens, *self.verb(draw.zipf(self.source(topic).happenings), subject.plural)]
        elif kind == "be":
            subject = subject or self.subject(topic, draw.one(("agents", "things", "places")))
            out = [*subject.tokens, self.be(subject.plural), TaggedToken(self._adjective(topic), "ADJ")]
        else:
            out = self._passive(topic)
        return [*out, *self._place_and_time(topic)]

    def sentence(self, topic: Topic, *, subject: Phrase | None = None) -> TaggedTokens:
        """A sentence of one or two clauses."""
        draw = self.draw
        first = self.clause(topic, subject=subject)
        kind = draw.weighted((("one", 0.55), ("and", 0.16), ("when", 0.16), ("said", 0.07), ("is", 0.06)))
        if kind == "and":
            self.marks.append(COORDINATION)
            return finish([*first, TaggedToken(draw.one(("and", "but", "or")), "CCONJ"), *self.clause(topic)])
        if kind == "when":
            link = [TaggedToken(draw.one(("when", "while", "because", "before", "after", "if")), "SCONJ")]
            if draw.chance(0.3):
                return finish([*link, *self.clause(topic), TaggedToken(",", "PUNCT"), *first])
            return finish([*first, *link, *self.clause(topic)])
        if kind == "said":
            speaker = self.subject(self.lexicon.general)
            return finish([*speaker.tokens, TaggedToken(draw.one(("said", "thought", "knew")), "VERB"),
                           TaggedToken("that", "SCONJ"), *first])  # fmt: skip
        if kind == "is":
            thing = self.noun_phrase(topic, "things")
            return finish(
                [TaggedToken("there", "PRON"), self.be(thing.plural), *thing.tokens, *self._place(topic)]
            )
        return finish(first)

    def be(self, plural: bool) -> TaggedToken:
        """A form of *be* that agrees in number."""
        return TaggedToken(self.draw.one(("are", "were") if plural else ("is", "was")), "AUX")

    def pronoun(self, kind: str = PERSON) -> Phrase:
        """A pronoun for a name of this type."""
        self.marks.append(PRONOUN)
        return Phrase([TaggedToken(self.draw.one(("she", "he")) if kind == PERSON else "it", "PRON")], False)

    def _act(self, topic: Topic, subject: Phrase) -> TaggedTokens:
        """Subject, verb and object; sometimes a second verb and object."""
        draw = self.draw
        out = [*subject.tokens]
        if draw.chance(0.08):
            out.append(TaggedToken(draw.zipf(self.source(topic).adverbs), "ADV"))
        out += [*self.verb(self.act(topic), subject.plural), *self._object(topic)]
        if draw.chance(0.1):
            self.marks.append(COORDINATION)
            out += [
                TaggedToken("and", "CCONJ"),
                TaggedToken(self.act(topic).past, "VERB"),
                *self._object(topic),
            ]
        return out

    def _object(self, topic: Topic) -> TaggedTokens:
        if self.draw.chance(0.07):
            return [TaggedToken(self.draw.one(("it", "them")), "PRON")]
        return self.noun_phrase(topic, "things").tokens

    def _passive(self, topic: Topic) -> TaggedTokens:
        self.marks.append(PASSIVE)
        thing = self.subject(topic, "things")
        by = [TaggedToken("by", "ADP"), *self.noun_phrase(topic, "agents", deep=False).tokens]
        verb = TaggedToken(self.act(topic).past, "VERB")
        return [*thing.tokens, self.be(thing.plural), verb, *(by if self.draw.chance(0.7) else [])]

    def _adjective(self, topic: Topic) -> str:
        return self.draw.zipf(self.source(topic).adjectives)

    def _determiner(self, plural: bool) -> TaggedTokens:
        draw = self.draw
        if draw.chance(0.52):
            return [TaggedToken("the", "DET")]
        if not plural:
            return [TaggedToken(draw.weighted(_SINGULAR), "DET")]
        if draw.chance(0.25):
            return [TaggedToken(draw.zipf(NUMBERS), "NUM")]
        return [] if draw.chance(0.3) else [TaggedToken(draw.weighted(_PLURAL), "DET")]

    def _place(self, topic: Topic) -> TaggedTokens:
        at = self.draw.weighted((("in", 5), ("at", 2), ("near", 1), ("from", 1), ("behind", 1)))
        return [TaggedToken(at, "ADP"), *self.noun_phrase(topic, "places", deep=False).tokens]

    def _place_and_time(self, topic: Topic) -> TaggedTokens:
        draw = self.draw
        out = self._place(topic) if draw.chance(0.2) else []
        if draw.chance(0.05):
            out.append(TaggedToken(draw.zipf(self.source(topic).adverbs), "ADV"))
        if draw.chance(0.12):
            out += when(draw)
        return out


def when(draw: Draw) -> TaggedTokens:
    """A phrase of time."""
    choice = draw.below(3)
    if choice == 0:
        return words(f"on {draw.zipf(DAYS)}", "ADP", "PROPN")
    if choice == 1:
        return words(f"in {draw.zipf(MONTHS)}", "ADP", "PROPN")
    return [TaggedToken(*draw.zipf(_TIMES))]
