"""Examples of mini_ner (names and their types) and mini_pos (parts of speech)."""

from __future__ import annotations

from dataclasses import dataclass

from harness_tasks.mini.world.draw import Draw
from harness_tasks.mini.world.facts import Cast, EntityFact, FactWriter
from harness_tasks.mini.world.frames import gathering
from harness_tasks.mini.world.grammar import Grammar, Phrase, TaggedToken, TaggedTokens, name_tokens
from harness_tasks.mini.world.lexicon import TITLES, Names, lexicon
from harness_tasks.mini.world.stems import PERSON, Name

TRAIN, CORPUS, NEW = "train", "corpus", "new"
TRAIN_NAMES = 5
"""Train uses every fifth of the names in the corpus."""


@dataclass(frozen=True, slots=True)
class Tagged:
    """A sentence with its slices."""

    tokens: tuple[TaggedToken, ...]
    tags: tuple[str, ...]


def pools(split: str) -> list[tuple[str, Names, float]]:
    """The names that a split draws from, with weights: those of train, others of the corpus, and names that
    occur nowhere else."""
    world = lexicon()
    train = (TRAIN, world.known.part((0,), of=TRAIN_NAMES), 1.0)
    if split.startswith("train"):
        return [train]
    corpus = world.known.part(tuple(range(1, TRAIN_NAMES)), of=TRAIN_NAMES)
    return [train, (CORPUS, corpus, 1.2), (NEW, world.new, 2.2)]


class NameSentences:
    """Generates the sentences of mini_ner. All names of a sentence are from one pool."""

    def __init__(self, split: str) -> None:
        self._draw = Draw(f"mini_ner/{split}")
        self._grammar = Grammar(self._draw, lexicon())
        self._casts = []
        for origin, names, weight in pools(split):
            # without an informative context a neutral name has no type
            telling = Cast(self._draw, [(origin, names, 1.0)], neutral=0.0)
            facts = FactWriter(self._grammar, Cast(self._draw, [(origin, names, 1.0)], neutral=0.35))
            self._casts.append(((origin, telling, facts), weight))
        self._topics = list(lexicon().topics.values())

    def make(self) -> Tagged:
        """One sentence."""
        draw, grammar = self._draw, self._grammar
        grammar.marks.clear()
        origin, telling, facts = draw.weighted(self._casts)
        kind = draw.weighted((("fact", 0.52), ("list", 0.33), ("person", 0.1), ("none", 0.05)))
        if kind == "fact":
            tokens, names, marks = self._fact(facts)
            tags = [f"name:{origin}", "context:telling", *marks]
            tags.append("shape:telling" if all(n.telling for n in names) else "shape:neutral")
        elif kind == "list":
            tokens, _ = gathering(grammar, telling)
            tags = [f"name:{origin}", "context:none", "shape:telling"]
        elif kind == "person":
            name = telling.name(PERSON)
            title = [TaggedToken(draw.zipf(TITLES), "PROPN")] if draw.chance(0.5) else []
            subject = Phrase([*title, *name_tokens(name.words, PERSON)], False)
            tokens = grammar.sentence(draw.one(self._topics), subject=subject)
            tags = [f"name:{origin}", "context:telling", "shape:telling"]
        else:
            tokens, tags = grammar.sentence(draw.one(self._topics)), ["name:none"]
        if origin != TRAIN and kind != "none":
            tags.append("unseen_name")
        return Tagged(tuple(tokens), tuple(tags))

    def _fact(self, facts: FactWriter) -> tuple[TaggedTokens, list[Name], tuple[str, ...]]:
        draw = self._draw
        relation = draw.one(facts.relations)
        owner = facts.cast.name(relation.owner)
        value = facts.value(relation, taken=[owner])
        fact = EntityFact(owner, relation, value)
        wrong = list(facts.value(relation, taken=[owner])) if draw.chance(0.3) else None
        statement = facts.state(fact, draw.one(relation.verbs), wrong=wrong)
        forms = [token.form for token in statement.tokens]
        names = [n for n in facts.cast.origin if all(word in forms for word in n.words)]
        return statement.tokens, names, statement.marks


class PosSentences:
    """Generates the sentences of mini_pos."""

    def __init__(self, split: str) -> None:
        world = lexicon()
        self._draw = Draw(f"mini_pos/{split}")
        self._grammar = Grammar(self._draw, world)
        self._facts = FactWriter(self._grammar, Cast(self._draw, [("corpus", world.known, 1.0)]))
        self._topics = list(world.topics.values())
        self._homographs = world.homographs

    def make(self) -> Tagged:
        """One sentence, of the grammar or a fact."""
        draw = self._draw
        self._grammar.marks.clear()
        if draw.chance(0.15):
            relation = draw.one(self._facts.relations)
            owner = self._facts.cast.name(relation.owner)
            fact = EntityFact(owner, relation, self._facts.value(relation, taken=[owner]))
            statement = self._facts.state(fact, draw.one(relation.verbs))
            tokens, marks = statement.tokens, list(statement.marks)
        else:
            tokens = self._grammar.sentence(draw.one(self._topics))
            marks = list(dict.fromkeys(self._grammar.marks))
        both = [t.pos for t in tokens if t.form.lower() in self._homographs]
        for pos in ("NOUN", "VERB"):
            marks += [f"ambiguous_form:{pos.lower()}"] if pos in both else []
        return Tagged(tuple(tokens), (*marks, *(["ambiguous_form"] if both else [])))
