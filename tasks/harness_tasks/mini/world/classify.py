"""Examples of mini_topic (the topic of a text) and mini_sense (whether a word has the same sense in two
sentences)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from harness_tasks.mini.world.draw import Draw
from harness_tasks.mini.world.frames import contrast
from harness_tasks.mini.world.grammar import Grammar, TaggedToken, TaggedTokens, finish, text_of
from harness_tasks.mini.world.lexicon import Lexicon, Topic, TwoSenses, lexicon
from harness_tasks.mini.world.stems import Noun, Verb

SEEN, UNSEEN, OF = (0,), (1, 2), 3
"""Train draws from the first third of each topic's words; test and dev mostly from the rest."""
TRAIN_WORDS = 32
"""Number of the 48 ambiguous words that the training pairs of mini_sense use."""
KINDS = (("plain", 0.45), ("mixed", 0.25), ("contrast", 0.3))


@dataclass(frozen=True, slots=True)
class Labelled:
    """A text with its class and slices."""

    text: str
    label: str
    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two texts that share a word; ``at`` is its index among the words of each text."""

    texts: tuple[str, str]
    label: str
    word: str
    at: tuple[int, int]
    tags: tuple[str, ...]


class TopicTexts:
    """Generates the texts of mini_topic."""

    def __init__(self, split: str) -> None:
        world = lexicon()
        two = frozenset(w.key for w in world.two_senses)
        self._draw = Draw(f"mini_topic/{split}")
        self._train = split.startswith("train")
        self._views = {
            kept: {n: t.part(kept, of=OF, without=two) for n, t in world.topics.items()}
            for kept in (SEEN, UNSEEN)
        }
        self._forms = {name: frozenset(topic.words()) for name, topic in world.topics.items()}
        self._worlds = {kept: replace(world, topics=view) for kept, view in self._views.items()}

    def make(self) -> Labelled:
        """One text."""
        draw = self._draw
        kept = SEEN if self._train or draw.chance(0.2) else UNSEEN
        grammar = Grammar(draw, self._worlds[kept])
        while True:
            right, wrong = draw.some(list(self._views[kept].values()), 2)
            kind = draw.weighted(KINDS)
            sentences, tag = self._sentences(grammar, kind, right, wrong)
            text = " ".join(text_of(s) for s in sentences)
            if kind == "contrast" or self._clear(text, right.name):
                return Labelled(text, right.name, (tag,))

    def _sentences(
        self, grammar: Grammar, kind: str, right: Topic, wrong: Topic
    ) -> tuple[list[TaggedTokens], str]:
        draw = self._draw
        if kind == "contrast":
            sentence, how = contrast(grammar, right=right, wrong=wrong)
            return [sentence], "negation" if how == "negation" else "word_order"
        if kind == "mixed":
            three = [finish(grammar.clause(t)) for t in (right, right, wrong)]
            return draw.shuffled(three), "mixed"
        return [grammar.sentence(right)], "plain"

    def _clear(self, text: str, name: str) -> bool:
        """Whether the text has at least two words of its topic, and fewer of any other."""
        words = text.lower().split()
        counts = {topic: sum(w in forms for w in words) for topic, forms in self._forms.items()}
        return counts[name] >= 2 and all(n < counts[name] for t, n in counts.items() if t != name)

    def cues(self, example: Labelled) -> list[str]:
        """The words of the text that belong to its topic."""
        return [w for w in example.text.lower().split() if w in self._forms[example.label]]


class SensePairs:
    """Generates the pairs of mini_sense; every word has as many pairs with equal senses as with different
    ones."""

    def __init__(self, split: str) -> None:
        world = lexicon()
        two = frozenset(w.key for w in world.two_senses)
        self._draw = Draw(f"mini_sense/{split}")
        self._grammar = Grammar(self._draw, world)
        self._topics = {name: t.part((0,), of=1, without=two) for name, t in world.topics.items()}
        self._general = world.general
        self._train = trained_words(world)
        self._words = self._train if split == "train" else world.two_senses

    def make(self, number: int) -> Pair:
        """The pair with this number: words alternate, and so do the labels of each word."""
        draw = self._draw
        word = self._words[number % len(self._words)]
        same = (number // len(self._words)) % 2 == 0
        first = 1 if draw.chance(0.5) else 0
        senses = (first, first if same else 1 - first)
        # each form of a noun has as many pairs of each label, so that the word alone is uninformative
        plural = (number // len(self._words)) // 2 % 2 == 1
        form = word.word.form(plural) if isinstance(word.word, Noun) else word.word.past
        made = [self._sentence(word, sense, form) for sense in senses]
        tags = ["word:seen" if word in self._train else "word:unseen"]
        # of the first text only: with either, all pairs of two frequent senses would have one label
        tags.append("sense:rare" if senses[0] == 1 else "sense:frequent")
        for _, _, marks in made:
            tags += [mark for mark in marks if mark not in tags]
        texts = (text_of(made[0][0]), text_of(made[1][0]))
        return Pair(texts, "same" if same else "different", form, (made[0][1], made[1][1]), tuple(tags))

    def _sentence(self, word: TwoSenses, sense: int, form: str) -> tuple[TaggedTokens, int, list[str]]:
        """A sentence with the word in this sense, the index of the word, and slices."""
        draw = self._draw
        topic, other = (self._topics[word.topics[i]] for i in (sense, 1 - sense))
        cue = draw.weighted((("left", 0.4), ("right", 0.25), ("both", 0.35)))
        plural = isinstance(word.word, Noun) and form == word.word.plural
        target = TaggedToken(form, "NOUN" if isinstance(word.word, Noun) else "VERB")
        build = _around_noun if isinstance(word.word, Noun) else _around_verb
        clause = build(self._grammar, topic, target, cue, plural)
        marks = [f"cue:{cue}"]
        if draw.chance(0.35):
            marks.append("distractor:other_sense")
            clause = self._joined(clause, _plain_clause(self._grammar, other))
        elif draw.chance(0.5):
            clause = self._joined(clause, _plain_clause(self._grammar, self._general))
        tokens = finish(clause)
        at = next(i for i, t in enumerate(tokens) if t.form.lower() == form)
        return tokens, at, marks

    def _joined(self, clause: TaggedTokens, more: TaggedTokens) -> TaggedTokens:
        link = TaggedToken(self._draw.one(("while", "and", "but")), "SCONJ")
        return [*clause, link, *more] if self._draw.chance(0.5) else [*more, link, *clause]


def trained_words(world: Lexicon) -> tuple[TwoSenses, ...]:
    """The ambiguous words that training pairs use: two of every three."""
    return tuple(w for i, w in enumerate(world.two_senses) if i % 3 != 2)[:TRAIN_WORDS]


def _agent(grammar: Grammar, topic: Topic) -> TaggedTokens:
    return [TaggedToken("the", "DET"), TaggedToken(grammar.draw.zipf(topic.agents).singular, "NOUN")]


def _did(grammar: Grammar, verbs: tuple[Verb, ...]) -> TaggedToken:
    return TaggedToken(grammar.draw.zipf(verbs).past, "VERB")


def _plain_clause(grammar: Grammar, topic: Topic) -> TaggedTokens:
    """An agent of the topic does something to a thing of the topic."""
    thing = [TaggedToken("the", "DET"), TaggedToken(grammar.draw.zipf(topic.things).singular, "NOUN")]
    return [*_agent(grammar, topic), _did(grammar, topic.acts), *thing]


def _around_noun(grammar: Grammar, topic: Topic, target: TaggedToken, cue: str, plural: bool) -> TaggedTokens:
    """A clause with words of the topic before the noun, after it, or on both sides."""
    draw, the = grammar.draw, TaggedToken("the", "DET")
    adjective = TaggedToken(draw.zipf(topic.adjectives), "ADJ")
    if cue == "left":
        return [*_agent(grammar, topic), _did(grammar, topic.acts), the, adjective, target]
    if cue == "right" and draw.chance(0.5):
        by = [TaggedToken("by", "ADP"), *_agent(grammar, topic)]
        return [the, target, grammar.be(plural), _did(grammar, topic.acts), *by]
    if cue == "right":
        return [the, target, _did(grammar, topic.happenings)]
    if draw.chance(0.5):
        return [the, adjective, target, _did(grammar, topic.happenings)]
    place = [TaggedToken("in", "ADP"), the, TaggedToken(draw.zipf(topic.places).singular, "NOUN")]
    return [*_agent(grammar, topic), _did(grammar, topic.acts), the, target, *place]


def _around_verb(grammar: Grammar, topic: Topic, target: TaggedToken, cue: str, plural: bool) -> TaggedTokens:
    """A clause with words of the topic before the verb, after it, or on both sides."""
    draw, the = grammar.draw, TaggedToken("the", "DET")
    thing = [
        the,
        TaggedToken(draw.zipf(topic.adjectives), "ADJ"),
        TaggedToken(draw.zipf(topic.things).singular, "NOUN"),
    ]
    if cue == "left":
        return [*_agent(grammar, topic), target, TaggedToken("it", "PRON")]
    if cue == "right":
        return [TaggedToken(draw.one(("she", "he", "they")), "PRON"), target, *thing]
    return [*_agent(grammar, topic), target, the, *thing[2:]]
