"""Sentences that only their structure disambiguates: contrasted topics, and names without informative
context."""

from __future__ import annotations

from harness_tasks.mini.world.facts import Cast
from harness_tasks.mini.world.grammar import OUTSIDE, Grammar, TaggedToken, TaggedTokens, finish, name_tokens
from harness_tasks.mini.world.lexicon import Topic
from harness_tasks.mini.world.stems import TYPES, Name

NEGATED = (
    "this/DET is/AUX not/PART about/ADP W but/CCONJ about/ADP R",
    "they/PRON spoke/VERB of/ADP R and/CCONJ not/PART of/ADP W",
    "they/PRON did/AUX not/PART speak/VERB of/ADP W but/CCONJ of/ADP R",
    "nobody/PRON asked/VERB for/ADP W ,/PUNCT everybody/PRON asked/VERB for/ADP R",
    "everybody/PRON asked/VERB for/ADP R ,/PUNCT nobody/PRON asked/VERB for/ADP W",
)
ORDERED = (
    "W gave/VERB way/NOUN to/ADP R",
    "R took/VERB the/DET place/NOUN of/ADP W",
    "instead/ADV of/ADP W we/PRON saw/VERB R",
    "we/PRON saw/VERB R instead/ADV of/ADP W",
    "after/ADP W came/VERB R",
    "R came/VERB after/ADP W",
)
GATHERINGS = (
    "the/DET letter/NOUN named/VERB N",
    "we/PRON heard/VERB of/ADP N",
    "everyone/PRON spoke/VERB about/ADP N",
    "N was/AUX in/ADP the/DET news/NOUN again/ADV",
    "nobody/PRON remembered/VERB N",
    "what/PRON about/ADP N",
    "the/DET list/NOUN began/VERB with/ADP N",
)


def contrast(grammar: Grammar, *, right: Topic, wrong: Topic) -> tuple[TaggedTokens, str]:
    """Write a sentence about ``right`` with as many words of ``wrong``; only negation or word order differs.

    Returns:
        The sentence, and ``negation`` or ``order``.
    """
    kind = grammar.draw.one(("negation", "order"))
    frame = grammar.draw.one(NEGATED if kind == "negation" else ORDERED)
    out: TaggedTokens = []
    for part in frame.split():
        if part in ("W", "R"):
            out += _bare_phrase(grammar, wrong if part == "W" else right)
        else:
            form, _, pos = part.rpartition("/")
            out.append(TaggedToken(form, pos))
    return finish(out), kind


def _bare_phrase(grammar: Grammar, topic: Topic) -> TaggedTokens:
    """*The*, an adjective and a noun of the topic."""
    draw = grammar.draw
    noun = draw.zipf(draw.one((topic.agents, topic.things))).form(draw.chance(0.4))
    return [
        TaggedToken("the", "DET"),
        TaggedToken(draw.zipf(topic.adjectives), "ADJ"),
        TaggedToken(noun, "NOUN"),
    ]


def gathering(grammar: Grammar, cast: Cast) -> tuple[TaggedTokens, list[Name]]:
    """A sentence that names one to three entities of any types without indicating the types."""
    draw = grammar.draw
    names: list[Name] = []
    for _ in range(draw.between(1, 3)):
        names.append(cast.other(draw.one(TYPES), names))
    listed: TaggedTokens = []
    for i, name in enumerate(names):
        last = i == len(names) - 1
        listed += [] if i == 0 else [TaggedToken("and", "CCONJ") if last else TaggedToken(",", "PUNCT")]
        listed += name_tokens(name.words, name.type)
    out: TaggedTokens = []
    for part in draw.one(GATHERINGS).split():
        form, _, pos = part.rpartition("/")
        out += listed if part == "N" else [TaggedToken(form, pos, OUTSIDE)]
    return finish(out), names
