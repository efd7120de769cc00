"""The vocabulary of the world, the same in every call: topics, ambiguous words, names and relations."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations
from typing import TypeVar

from harness_tasks.mini.world.draw import Draw
from harness_tasks.mini.world.stems import FIRM, PERSON, PLACE, SUBSTANCE, Name, Noun, Stems, Verb, listed

TOPICS = ("farming", "sailing", "healing", "music", "trade", "weather")
GENERAL = "general"
W = TypeVar("W", bound=Noun | Verb | str)
N = TypeVar("N", str, Name)
DAYS = listed("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
MONTHS = listed("January February March April May June July August September October November December")
NUMBERS = listed("two three four five six seven")
TITLES = listed("Doctor Captain Judge Lady")
DAY, MONTH, THING = "DAY", "MONTH", "THING"
_TAKEN = (
    "a an and are as at be but by did do for had has have he her his if in is it its no not of on or our "
)
_TAKEN += (
    "she so some than that the their them then they this to was we were what when where who will with men rap"
)


@dataclass(frozen=True, slots=True)
class Topic:
    """The words of a topic, the most frequent of each kind first.

    Attributes:
        name: of the topic.
        acts: transitive verbs with persons as subjects and things as objects.
        happenings: intransitive verbs of persons and things.
        agents: persons; most are a verb and -or.
        things: most are bare stems, some a verb and -ment; some share their form with a verb.
        places: most are a verb and -ery.
        adjectives: some are a noun and -ous, some un- and an adjective.
        adverbs: an adjective and -ly.
    """

    name: str
    acts: tuple[Verb, ...]
    happenings: tuple[Verb, ...]
    agents: tuple[Noun, ...]
    things: tuple[Noun, ...]
    places: tuple[Noun, ...]
    adjectives: tuple[str, ...]
    adverbs: tuple[str, ...]

    def words(self) -> list[str]:
        """Every form."""
        verbs = [form for v in (*self.acts, *self.happenings) for form in (v.base, v.third, v.past, v.ing)]
        nouns = [form for n in (*self.agents, *self.things, *self.places) for form in (n.singular, n.plural)]
        return [*verbs, *nouns, *self.adjectives, *self.adverbs]

    def part(self, kept: tuple[int, ...], *, of: int, without: frozenset[str] = frozenset()) -> Topic:
        """The topic with the words of each list whose index modulo ``of`` is in ``kept``, except the words
        (first forms) in ``without``."""

        def chosen(words: tuple[W, ...]) -> tuple[W, ...]:
            left = [w for w in words if first_form(w) not in without]
            return tuple(w for i, w in enumerate(left) if i % of in kept)

        return Topic(
            self.name,
            chosen(self.acts),
            chosen(self.happenings),
            chosen(self.agents),
            chosen(self.things),
            chosen(self.places),
            chosen(self.adjectives),
            chosen(self.adverbs),
        )


@dataclass(frozen=True, slots=True)
class TwoSenses:
    """An ambiguous word with a sense in each of two topics; the first is the frequent one."""

    word: Noun | Verb
    topics: tuple[str, str]

    @property
    def key(self) -> str:
        return first_form(self.word)


@dataclass(frozen=True, slots=True)
class Relation:
    """A relation of an entity to a value: ``verbs`` are synonyms, ``ask`` begins questions about the value.

    ``owner`` and ``value`` are types of names, or DAY, MONTH or THING (a common noun with its article).
    """

    name: str
    owner: str
    value: str
    preposition: str
    ask: tuple[str, ...]
    verbs: tuple[Verb, ...]


@dataclass(frozen=True, slots=True)
class Names:
    """Names by type. The form of ``telling`` names indicates the type; ``neutral`` stems are names of
    persons, places or firms."""

    first: tuple[str, ...]
    last: tuple[str, ...]
    telling: dict[str, tuple[Name, ...]]
    neutral: tuple[str, ...]

    def part(self, kept: tuple[int, ...], *, of: int) -> Names:
        """The names of each list whose index modulo ``of`` is in ``kept``."""

        def chosen(names: tuple[N, ...]) -> tuple[N, ...]:
            return tuple(n for i, n in enumerate(names) if i % of in kept)

        telling = {kind: chosen(names) for kind, names in self.telling.items()}
        return Names(chosen(self.first), chosen(self.last), telling, chosen(self.neutral))


@dataclass(frozen=True, slots=True)
class Lexicon:
    """The whole vocabulary. ``known`` names occur in the corpus, ``new`` ones do not."""

    topics: dict[str, Topic]
    general: Topic
    two_senses: tuple[TwoSenses, ...]
    homographs: frozenset[str]
    relations: tuple[Relation, ...]
    known: Names
    new: Names


def first_form(word: Noun | Verb | str) -> str:
    """The form that stands for a word."""
    return word if isinstance(word, str) else word.singular if isinstance(word, Noun) else word.base


@cache
def lexicon() -> Lexicon:
    """The lexicon of the world."""
    stems = Stems(Draw("lexicon"), taken=_TAKEN.split())
    draw = Draw("lexicon order")
    topics = {name: _topic(name, stems, draw, size=1) for name in TOPICS}
    general = _topic(GENERAL, stems, draw, size=2)
    words = _two_senses(stems)
    for word in words:
        for topic, place in zip(word.topics, (3, 12), strict=True):
            topics[topic] = _with_word(topics[topic], word.word, place)
    shared = [form for t in (*topics.values(), general) for form in _shared_forms(t)]
    relations = _relations(stems)
    known = _names(stems, first=130, last=90, each=110, neutral=60)
    new = _names(stems, first=130, last=90, each=110, neutral=60)
    return Lexicon(topics, general, words, frozenset(shared), relations, known, new)


def _topic(name: str, stems: Stems, draw: Draw, *, size: int) -> Topic:
    """A topic of ``size`` times the usual number of words."""
    acts = [stems.new() for _ in range(9 * size)]
    happenings = [stems.new() for _ in range(7 * size)]
    things = [stems.new() for _ in range(14 * size)]
    plain = [f"{stems.new()}{'al' if i % 2 else 'ic'}" for i in range(6 * size)]
    adjectives = [*plain, *(f"{n}ous" for n in things[: 4 * size]), *(f"un{a}" for a in plain[: 2 * size])]
    agents = [*(f"{v}or" for v in acts[: 5 * size]), *(stems.new() for _ in range(3 * size))]
    places = [*(f"{v}ery" for v in happenings[: 3 * size]), *(stems.new() for _ in range(2 * size))]
    results = [f"{v}ment" for v in acts[5 * size : 9 * size]]
    same_as_verb = [*acts[1 * size : 4 * size], *happenings[1 * size : 4 * size]]
    adverbs = [f"{a}ly" for a in adjectives[: 5 * size]]
    return Topic(
        name,
        tuple(Verb.of(w) for w in draw.shuffled(acts)),
        tuple(Verb.of(w) for w in draw.shuffled(happenings)),
        tuple(Noun.of(w) for w in draw.shuffled(agents)),
        tuple(Noun.of(w) for w in draw.shuffled([*things, *results, *same_as_verb])),
        tuple(Noun.of(w) for w in draw.shuffled(places)),
        tuple(draw.shuffled(adjectives)),
        tuple(draw.shuffled(adverbs)),
    )


def _two_senses(stems: Stems) -> tuple[TwoSenses, ...]:
    """Two nouns and a verb for each pair of topics, and three more nouns: 48."""
    pairs = list(combinations(TOPICS, 2))
    out = []
    for i, pair in enumerate([*pairs, *pairs, *pairs, *pairs[:3]]):
        verb = i // len(pairs) == 2
        word = Verb.of(stems.new()) if verb else Noun.of(stems.new())
        out.append(TwoSenses(word, pair if i % 2 else (pair[1], pair[0])))
    return tuple(out)


def _with_word(topic: Topic, word: Noun | Verb, place: int) -> Topic:
    if isinstance(word, Noun):
        return replace(topic, things=(*topic.things[:place], word, *topic.things[place:]))
    return replace(topic, acts=(*topic.acts[:place], word, *topic.acts[place:]))


def _shared_forms(topic: Topic) -> list[str]:
    """Forms that are both a verb's and a noun's."""
    verbs = {form for v in (*topic.acts, *topic.happenings) for form in (v.base, v.third)}
    nouns = [form for n in topic.things for form in (n.singular, n.plural)]
    return [form for form in nouns if form in verbs]


def _relations(stems: Stems) -> tuple[Relation, ...]:
    rows: tuple[tuple[str, str, str, str, tuple[str, ...]], ...] = (
        ("home", PERSON, PLACE, "in", ("Where", "In which town")),
        ("youth", PERSON, PLACE, "in", ("Where", "In which town")),
        ("work", PERSON, FIRM, "for", ("For whom", "For which firm")),
        ("visit", PERSON, DAY, "on", ("When", "On which day")),
        ("possession", PERSON, THING, "", ("What",)),
        ("seat", FIRM, PLACE, "in", ("Where", "In which town")),
        ("product", FIRM, SUBSTANCE, "", ("What", "Which substance")),
        ("season", FIRM, MONTH, "in", ("When", "In which month")),
        ("leader", FIRM, PERSON, "under", ("Under whom", "Under which person")),
        ("yield", PLACE, SUBSTANCE, "", ("What", "Which substance")),
        ("fair", PLACE, DAY, "on", ("When", "On which day")),
    )
    return tuple(
        Relation(name, owner, value, preposition, ask, tuple(Verb.of(stems.new()) for _ in range(3)))
        for name, owner, value, preposition, ask in rows
    )


def _names(stems: Stems, *, first: int, last: int, each: int, neutral: int) -> Names:
    telling = {
        PLACE: tuple(stems.place() for _ in range(each)),
        FIRM: tuple(stems.firm() for _ in range(each)),
        SUBSTANCE: tuple(stems.substance() for _ in range(each)),
    }
    return Names(
        tuple(stems.first_name() for _ in range(first)),
        tuple(stems.last_name() for _ in range(last)),
        telling,
        tuple(stems.neutral() for _ in range(neutral)),
    )
