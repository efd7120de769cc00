"""Baselines of the mini tasks, and statistics of their corpus: ``python -m benchmarks.mini_baselines``.

Prints the tables of docs/mini.md as Markdown, in about two minutes on one core. Skip-gram vectors (Mikolov et
al. 2013, by gensim) are trained on the bundled corpus; classifiers are softmax regressions,

    minimise  sum_i -log softmax(x_i W)[y_i] + l2 / 2 |W|^2

where ``l2`` is selected on dev by accuracy. Scores are on test. The last table has shortcut baselines: the
length of a text, the position of a word, the order of sentences.
"""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.sparse import csr_matrix, hstack
from scipy.special import log_softmax

from harness_tasks.mini.world import generate
from harness_tasks.mini.world.classify import Labelled, Pair
from harness_tasks.mini.world.draw import Draw
from harness_tasks.mini.world.grammar import Grammar
from harness_tasks.mini.world.lexicon import GENERAL, Relation, lexicon
from harness_tasks.mini.world.questions import Asked
from harness_tasks.mini.world.stems import Verb, listed
from harness_tasks.mini.world.tagged import Tagged
from harness_tasks.tagging.scoring import score_spans, score_tokens

Floats = NDArray[np.float64]
Vectors = dict[str, Floats]
Splits = dict[str, list[csr_matrix]]
SPLITS = ("train", "dev", "test")
WIDTH, PASSES = 100, 10
STRENGTHS = (0.1, 1.0, 10.0, 100.0)
AROUND = 4
"""Number of context words on either side of the target word of mini_sense."""


@dataclass(frozen=True)
class BaselineRow:
    """A line of a table: the score on all examples, and on the slices shown beside it."""

    task: str
    read: str
    score: float
    slices: dict[str, float]

    def markdown(self, *, task: str) -> str:
        beside = ", ".join(f"`{tag}` {value:.3f}" for tag, value in self.slices.items())
        cells = (task, self.read, f"{self.score:.3f}", beside)
        return "".join(f"| {cell} " if cell else "| " for cell in cells) + "|"


# ---- softmax regression


def fit(x: csr_matrix, y: NDArray[np.int64], *, classes: int, l2: float) -> Floats:
    """Weights (features, classes) for rows ``x`` (rows, features) and classes ``y`` (rows,)."""
    shape = (x.shape[1], classes)
    gold = np.eye(classes)[y]

    def loss(flat: Floats) -> tuple[float, Floats]:
        w = flat.reshape(shape)
        log_p = log_softmax(x @ w, axis=1)
        slope = x.T @ (np.exp(log_p) - gold) + l2 * w
        return float(-(gold * log_p).sum() + l2 / 2 * (w * w).sum()), slope.ravel()

    found = minimize(loss, np.zeros(shape).ravel(), jac=True, method="L-BFGS-B", options={"maxiter": 150})
    return np.asarray(found.x).reshape(shape)


def classify(x: Sequence[csr_matrix], gold: Sequence[Sequence[str]]) -> list[str]:
    """Predicted labels of test. ``x`` and ``gold`` are those of train, dev and test; a bias is added."""
    train, dev, test = (csr_matrix(hstack([part, np.ones((part.shape[0], 1))])) for part in x)
    labels = sorted(set(gold[0]))
    y = np.array([labels.index(label) for label in gold[0]])
    best, chosen = -1.0, np.zeros(0)
    for l2 in STRENGTHS:
        w = fit(train, y, classes=len(labels), l2=l2)
        predicted = [labels[i] for i in (dev @ w).argmax(axis=1)]
        if (score := accuracy(predicted, gold[1])) > best:
            best, chosen = score, w
    return [labels[i] for i in (test @ chosen).argmax(axis=1)]


def marks(parts: Sequence[Sequence[Iterable[str]]]) -> list[csr_matrix]:
    """Counts of the features (such as words) of each row of train, dev and test; unseen ones are ignored."""
    index = {mark: i for i, mark in enumerate(sorted({m for row in parts[0] for m in row}))}
    return [_counts(rows, index) for rows in parts]


def _counts(rows: Sequence[Iterable[str]], index: dict[str, int]) -> csr_matrix:
    at = [(i, index[mark]) for i, row in enumerate(rows) for mark in row if mark in index]
    places = (np.array([i for i, _ in at], dtype=int), np.array([j for _, j in at], dtype=int))
    return csr_matrix((np.ones(len(at)), places), shape=(len(rows), len(index)))


def numbers(parts: Sequence[Sequence[Floats]]) -> list[csr_matrix]:
    """Rows of numbers, scaled by one factor so that their mean square in train is 1."""
    dense = [np.stack(list(rows)) for rows in parts]
    scale = float(np.sqrt((dense[0] ** 2).mean()))
    return [csr_matrix(rows / scale) for rows in dense]


def accuracy(predicted: Sequence[str], gold: Sequence[str]) -> float:
    return sum(a == b for a, b in zip(predicted, gold, strict=True)) / len(gold)


def row(
    task: str,
    read: str,
    *,
    score: Callable[[list[int]], float],
    tags: Sequence[Sequence[str]],
    show: Sequence[str] = (),
) -> BaselineRow:
    """A line of a table; ``score`` gets the indices of the test examples to score."""
    chosen = {tag: [i for i, own in enumerate(tags) if tag in own] for tag in show}
    slices = {tag: score(rows) for tag, rows in chosen.items()}
    return BaselineRow(task, read, score(list(range(len(tags)))), slices)


def _right(predicted: Sequence[str], gold: Sequence[str], rows: list[int]) -> float:
    return accuracy([predicted[i] for i in rows], [gold[i] for i in rows])


# ---- corpus and vectors


@cache
def documents() -> list[list[list[str]]]:
    """Words of the sentences of the documents of the bundled corpus."""
    path = Path(generate.__file__).parent / "data" / generate.CORPUS
    text = gzip.decompress(path.read_bytes()).decode()
    return [[line.split() for line in part.splitlines()] for part in text.strip("\n").split("\n\n")]


@cache
def vectors() -> Vectors:
    """Skip-gram vectors of unit length by lower-cased word."""
    from gensim.models import Word2Vec

    lines = [[word.lower() for word in line] for part in documents() for line in part]
    model = Word2Vec(lines, vector_size=WIDTH, sg=1, min_count=1, epochs=PASSES, workers=1, seed=1)
    table = model.wv.get_normed_vectors().astype(np.float64)
    return dict(zip(model.wv.index_to_key, table, strict=True))


def vector(word: str) -> Floats:
    """(100,); zeros for a word that is not in the corpus."""
    return vectors().get(word.lower(), np.zeros(WIDTH))


def mean_vector(words: Sequence[str]) -> Floats:
    mean: Floats = np.mean([vector(word) for word in words] or [np.zeros(WIDTH)], axis=0)
    return mean


def corpus_table() -> list[tuple[str, str]]:
    """Statistics of the corpus: descriptions and values."""
    lines = [line for part in documents() for line in part]
    words = Counter(word for line in lines for word in line)
    lower: Counter[str] = Counter()
    for word, n in words.items():
        lower[word.lower()] += n
    share = np.array(list(lower.values())) / lower.total()
    nats = float(-(share * np.log(share)).sum())
    rare = [sum(n < most for n in words.values()) for most in (2, 5)]
    return [
        (
            "words, sentences, documents",
            ", ".join(map(_spaced, (words.total(), len(lines), len(documents())))),
        ),
        ("types, cased (lower-cased)", f"{_spaced(len(words))} ({_spaced(len(lower))})"),
        (
            "slope of log frequency over log rank, ranks 1 to 2000",
            f"{_slope(words, 2000):.2f} (ranks 1 to 1000: {_slope(words, 1000):.2f})",
        ),
        ("types seen once, fewer than five times", f"{rare[0]}, {rare[1]}"),
        ("words per sentence: mean, 95 %, longest", _lengths([len(line) for line in lines])),
        ("words per document: mean, 95 %, longest", _lengths([sum(map(len, p)) for p in documents()])),
        ("entropy of lower-cased words: nats per word (perplexity)", f"{nats:.2f} ({np.exp(nats):.0f})"),
        ("content words of a clause: its topic, general, another topic", _sources()),
    ]


def _spaced(n: int) -> str:
    return f"{n:,}".replace(",", " ")


def _lengths(sizes: Sequence[int]) -> str:
    mean = np.mean(sizes)
    return f"{mean:.{1 if mean < 100 else 0}f}, {np.quantile(sizes, 0.95):.0f}, {max(sizes)}"


def _slope(counts: Counter[str], most: int) -> float:
    """Slope of the least-squares line through log frequency over log rank."""
    frequent = [n for _, n in counts.most_common(most)]
    return float(np.polyfit(np.log(np.arange(1, len(frequent) + 1)), np.log(frequent), 1)[0])


def _sources(n: int = 20_000) -> str:
    """Shares of the words of n clauses by topic; ambiguous words are not counted."""
    world = lexicon()
    owners = topic_words()
    grammar = Grammar(Draw("baselines"), world)
    counts: Counter[str] = Counter()
    for _ in range(n):
        topic = grammar.draw.one(list(world.topics.values()))
        for token in grammar.clause(topic):
            owner = owners.get(token.form.lower())
            if owner:
                counts["own" if owner == topic.name else owner if owner == GENERAL else "other"] += 1
    return ", ".join(f"{counts[kind] / counts.total():.3f}" for kind in ("own", GENERAL, "other"))


@cache
def topic_words() -> dict[str, str]:
    """The topic of every form that has just one, ``general`` among them."""
    world = lexicon()
    two = frozenset(word.key for word in world.two_senses)
    parts = (t.part((0,), of=1, without=two) for t in (*world.topics.values(), world.general))
    return {form: topic.name for topic in parts for form in topic.words()}


# ---- mini_topic


def topic_rows() -> list[BaselineRow]:
    splits = generate.topic_examples()
    parts = [splits[split] for split in SPLITS]
    words = [[e.text.lower().split() for e in part] for part in parts]
    line = partial(_topic_row, parts)
    means = numbers([[mean_vector(w) for w in rows] for rows in words])
    cues = ["cue:unseen", "cue:seen"]
    return [
        line("majority", marks([[()] * len(rows) for rows in words]), show=[]),
        line("words", marks(words), show=cues),
        line("mean vector", means, show=[*cues, "plain", "mixed", "negation", "word_order"]),
    ]


def _topic_row(
    parts: Sequence[list[Labelled]], read: str, x: list[csr_matrix], *, show: Sequence[str]
) -> BaselineRow:
    gold = [[e.label for e in part] for part in parts]
    score = partial(_right, classify(x, gold), gold[2])
    return row("`mini_topic` accuracy", read, score=score, tags=[e.tags for e in parts[2]], show=show)


def topic_shortcuts() -> list[BaselineRow]:
    splits = generate.topic_examples()
    parts = [splits[split] for split in SPLITS]
    line = partial(_topic_row, parts)
    words = [[e.text.lower().split() for e in part] for part in parts]
    sizes = [[(f"words {len(w)}", f"sentences {w.count('.')}") for w in rows] for rows in words]
    other = [[[x for x in w if topic_words().get(x) is None] for w in rows] for rows in words]
    tags, gold = [e.tags for e in parts[2]], [e.label for e in parts[2]]
    out = [line("number of words and of sentences", marks(sizes), show=[])]
    out.append(line("the words that have no topic, and their number", marks(other), show=[]))
    for read, at in (("first", 0), ("last", -1)):
        topics = [[t for x in w if (t := topic_words().get(x, GENERAL)) != GENERAL] for w in words[2]]
        predicted = [found[at] if found else "" for found in topics]
        out.append(
            row(
                "`mini_topic` accuracy",
                f"the {read} word that has a topic, all topics known",
                score=partial(_right, predicted, gold),
                tags=tags,
                show=["negation", "word_order"],
            )
        )
    return out


# ---- mini_sense


def sense_rows() -> list[BaselineRow]:
    splits = generate.sense_examples()
    parts = [splits[split] for split in SPLITS]
    line = partial(_sense_row, parts)
    whole = [[_pair_of(pair, around=None) for pair in part] for part in parts]
    near = [[_pair_of(pair, around=AROUND) for pair in part] for part in parts]
    cosines = [numbers([[np.array([_cosine(*uv)]) for uv in rows] for rows in x]) for x in (whole, near)]
    merged = numbers([[np.concatenate([abs(u - v), u * v * WIDTH**0.5]) for u, v in rows] for rows in near])
    show = ["word:seen", "word:unseen", "distractor:other_sense"]
    near_text = "mean vectors of four words on either side, without the word"
    return [
        line(
            "majority; the word's vector",
            numbers([[vector(p.word) for p in part] for part in parts]),
            show=[],
        ),
        line("cosine of the mean vectors of the whole sentences", cosines[0], show=show),
        line(f"cosine of the {near_text}", cosines[1], show=show),
        line(f"[\\|u-v\\|; u*v] of the {near_text}", merged, show=show),
    ]


def _sense_row(
    parts: Sequence[list[Pair]], read: str, x: list[csr_matrix], *, show: Sequence[str]
) -> BaselineRow:
    gold = [[e.label for e in part] for part in parts]
    score = partial(_right, classify(x, gold), gold[2])
    return row("`mini_sense` accuracy", read, score=score, tags=[e.tags for e in parts[2]], show=show)


def _pair_of(pair: Pair, *, around: int | None) -> tuple[Floats, Floats]:
    """A mean vector for each text: of all words, or of those within ``around`` of the word, without it."""
    out = []
    for text, at in zip(pair.texts, pair.at, strict=True):
        words = text.split()
        if around is not None:
            words = [*words[max(0, at - around) : at], *words[at + 1 : at + 1 + around]]
        out.append(mean_vector(words))
    return out[0], out[1]


def _cosine(u: Floats, v: Floats) -> float:
    return float(u @ v / max(float(np.linalg.norm(u) * np.linalg.norm(v)), 1e-12))


def sense_shortcuts() -> list[BaselineRow]:
    splits = generate.sense_examples()
    parts = [splits[split] for split in SPLITS]
    line = partial(_sense_row, parts)
    kinds: list[tuple[str, Callable[[Pair], Iterable[str]]]] = [
        ("which word it is, and its form", lambda p: [p.word]),
        ("lengths of the sentences, their difference", lambda p: _both(*(len(t.split()) for t in p.texts))),
        ("places of the word, their difference", lambda p: _both(*p.at)),
        ("the words of the first sentence", lambda p: p.texts[0].lower().split()),
        ("the words of the second sentence", lambda p: p.texts[1].lower().split()),
        ("each word of the second sentence together with the word", _beside_second),
        ("number of words that both sentences have", lambda p: [f"shared {_shared(p)}"]),
    ]
    out = [line(read, marks([[read_(p) for p in part] for part in parts]), show=[]) for read, read_ in kinds]
    return [*out, _second_sense(parts[2])]


def _beside_second(pair: Pair) -> list[str]:
    return [f"{pair.word} by {word}" for word in pair.texts[1].lower().split()]


def _both(a: int, b: int) -> list[str]:
    return [f"first {a}", f"second {b}", f"further {b - a}", f"apart {abs(a - b)}"]


def _shared(pair: Pair) -> int:
    first, second = (set(text.lower().split()) for text in pair.texts)
    return len(first & second)


def _second_sense(test: Sequence[Pair]) -> BaselineRow:
    """Predict ``same`` if the second sentence has the frequent sense (known from its construction)."""
    rare = [("sense:rare" in p.tags) == (p.label == "same") for p in test]
    predicted = ["different" if second else "same" for second in rare]
    read = "whether the second sentence has the word's rarer sense (known)"
    score = partial(_right, predicted, [p.label for p in test])
    return row("`mini_sense` accuracy", read, score=score, tags=[p.tags for p in test])


# ---- mini_ner and mini_pos


def tagging_rows() -> list[BaselineRow]:
    ner, pos = generate.ner_examples(), generate.pos_examples()
    names = partial(_tagging_row, "`mini_ner` F1", [ner[split] for split in SPLITS])
    parts = partial(_tagging_row, "`mini_pos` accuracy", [pos[split] for split in SPLITS])
    kinds = ["name:train", "name:corpus", "name:new", "context:none"]
    both = ["unseen_words:2+", "ambiguous_form:verb"]
    return [
        names("words", show=kinds),
        names("words capitals", show=kinds),
        names("words capitals endings", show=[*kinds, "shape:neutral"]),
        names("vectors", show=kinds),
        names("vectors capitals endings", show=[*kinds, "shape:neutral"]),
        parts("", show=[]),
        parts("words", show=both),
        parts("vectors", show=both),
        parts("vectors capitals endings", show=both),
    ]


def _tagging_row(task: str, parts: Sequence[list[Tagged]], read: str, *, show: Sequence[str]) -> BaselineRow:
    names = "ner" in task
    gold = [[[t.entity if names else t.pos for t in e.tokens] for e in part] for part in parts]
    forms = [[[t.form for t in e.tokens] for e in part] for part in parts]
    what = read.split()
    flat = [[m for words in part for m in _word_marks(words, what)] for part in forms]
    x = marks(flat)
    if "vectors" in what:
        dense = numbers([[v for words in part for v in _window_vectors(words)] for part in forms])
        x = [csr_matrix(hstack(two)) for two in zip(x, dense, strict=True)]
    labelled = iter(classify(x, [[label for labels in part for label in labels] for part in gold]))
    predicted = [[next(labelled) for _ in labels] for labels in gold[2]]

    def score(rows: list[int]) -> float:
        of, to = [gold[2][i] for i in rows], [predicted[i] for i in rows]
        return score_spans(of, to)["span_f1"] if names else score_tokens(of, to)["token_accuracy"]

    text = ", ".join(what).replace("words", "words in a window of five") or "majority"
    return row(task, text, score=score, tags=[e.tags for e in parts[2]], show=show)


def _word_marks(words: list[str], what: Sequence[str]) -> list[list[str]]:
    """Features of each word: words and capitals around it, its last two to four letters."""
    out = []
    for i, word in enumerate(words):
        near = {j: words[i + j] for j in range(-2, 3) if 0 <= i + j < len(words)}
        own = [f"{j} is {w.lower()}" for j, w in near.items()] if "words" in what else []
        if "capitals" in what:
            own += [f"{j} capital {w[0].isupper()}" for j, w in near.items()] + [f"begins {i == 0}"]
        if "endings" in what:
            own += [f"ends {word[-n:].lower()}" for n in (2, 3, 4)]
        out.append(own)
    return out


def _window_vectors(words: list[str]) -> list[Floats]:
    """For each word the concatenated vectors of a window of five words."""
    none = [np.zeros(WIDTH)] * 2
    padded = [*none, *map(vector, words), *none]
    return [np.concatenate(padded[i : i + 5]) for i in range(len(words))]


# ---- mini_qa


def qa_rows() -> list[BaselineRow]:
    test = generate.qa_examples()["test"]
    show = ["pronoun", "distractor:denied", "verb:other", "verb:same"]
    plain = [_end(_sharing(e, alike=False)) for e in test]
    alike = [_end(_sharing(e, alike=True)) for e in test]
    return [
        _qa_row("the end of the sentence that shares most words with the question", test, plain, show=show),
        _qa_row("the same, verbs of a relation taken for one word", test, alike, show=show),
    ]


def _qa_row(
    read: str, test: Sequence[Asked], predicted: Sequence[str], *, show: Sequence[str] = ()
) -> BaselineRow:
    score = partial(_right, predicted, [e.answer for e in test])
    return row("`mini_qa` exact match", read, score=score, tags=[e.tags for e in test], show=show)


@cache
def relation_of() -> dict[str, Relation]:
    """The relation of every form of its verbs."""

    def forms(verb: Verb) -> tuple[str, ...]:
        return verb.base, verb.third, verb.past, verb.ing

    return {form: r for r in lexicon().relations for verb in r.verbs for form in forms(verb)}


@cache
def function_words() -> frozenset[str]:
    """Words of questions that are neither names nor verbs of a relation nor part of a value."""
    words = list(listed("a an did does firm has is it person place that town which who will , . ?"))
    for relation in lexicon().relations:
        words += [relation.preposition, *" ".join(relation.ask).lower().split()]
    return frozenset(words)


def _sharing(asked: Asked, *, alike: bool) -> str:
    """The first of the sentences that share most words with the question; ``alike``: forms of the verbs of a
    relation are one word."""

    def words(text: str) -> set[str]:
        found = {w.lower() for w in text.split()} - function_words()
        return {relation_of()[w].name if alike and w in relation_of() else w for w in found}

    wanted = words(asked.question)
    return max(generate.sentences(asked.context), key=lambda s: len(words(s) & wanted))


def _end(sentence: str) -> str:
    """The name at the end of a sentence; without one, its end from an article on, or its last word."""
    words = sentence.split()[:-1]
    start = len(words) - 1
    if words[start][0].isupper():
        while start > 0 and words[start - 1][0].isupper():
            start -= 1
    else:
        article = [i for i in range(max(0, start - 2), start) if words[i] in ("a", "an")]
        start = article[-1] if article else start
    return " ".join(words[start:])


def qa_shortcuts() -> list[BaselineRow]:
    splits = generate.qa_examples()
    test, train = splits["test"], splits["train"]
    usual = _usual_places(train)
    out: list[BaselineRow] = []
    for read, at in (("first", 0), ("last", -1)):
        predicted = [_end(generate.sentences(e.context)[at]) for e in test]
        out.append(_qa_row(f"the end of the {read} sentence", test, predicted))
    predicted = [_end(s[usual.get(len(s), 0)]) for e in test if (s := generate.sentences(e.context))]
    out.append(_qa_row("the end of the sentence whose place is right most often in train", test, predicted))
    kinds: list[tuple[str, Callable[[Asked, str], bool]]] = [
        ("all sentences", lambda e, s: True),
        ("those of the type that is asked for, types known", _same_type),
        ("those with a name of the question", _same_name),
        ("those of the relation that is asked for, relations known", _same_relation),
    ]
    for read, fits in kinds:
        chances = [_chance(e, fits) for e in test]
        out.append(BaselineRow("`mini_qa` right sentence", f"drawn from {read}", float(np.mean(chances)), {}))
    return out


def _place(asked: Asked) -> int:
    """The number of the sentence that holds the answer."""
    return len(generate.sentences(asked.context[: asked.start] + "x")) - 1


def _usual_places(train: Sequence[Asked]) -> dict[int, int]:
    """The most frequent place of the answer's sentence by number of sentences."""
    counts: dict[int, Counter[int]] = {}
    for e in train:
        counts.setdefault(len(generate.sentences(e.context)), Counter())[_place(e)] += 1
    return {n: places.most_common(1)[0][0] for n, places in counts.items()}


def _relations(text: str) -> list[Relation]:
    return [relation_of()[w] for w in text.split() if w in relation_of()]


def _same_type(asked: Asked, sentence: str) -> bool:
    (wanted,) = _relations(asked.question)
    if "ask:owner" in asked.tags:
        return any(r.owner == wanted.owner for r in _relations(sentence))
    return any(r.value == wanted.value for r in _relations(sentence))


def _same_relation(asked: Asked, sentence: str) -> bool:
    return bool(set(_relations(asked.question)) & set(_relations(sentence)))


def _same_name(asked: Asked, sentence: str) -> bool:
    """Whether sentence and question share a word with a capital that is not their first."""
    wanted = {w for w in asked.question.split()[1:] if w[0].isupper()}
    return bool(wanted & set(sentence.split()))


def _chance(asked: Asked, fits: Callable[[Asked, str], bool]) -> float:
    """The chance that a sentence drawn among those that fit holds the answer."""
    places = [i for i, s in enumerate(generate.sentences(asked.context)) if fits(asked, s)]
    return 1 / len(places) if _place(asked) in places else 0.0


def _print_rows(makers: Sequence[Callable[[], list[BaselineRow]]]) -> None:
    """A table; a task that stands above already is left out."""
    print("\n| task | what is read | all | slices |\n| --- | --- | --- | --- |")
    above = ""
    for make in makers:
        for line in make():
            print(line.markdown(task="" if line.task == above else line.task), flush=True)
            above = line.task


def main() -> int:
    print("| | |\n| --- | --- |")
    for what, value in corpus_table():
        print(f"| {what} | {value} |")
    _print_rows([topic_rows, sense_rows, tagging_rows, qa_rows])
    _print_rows([topic_shortcuts, sense_shortcuts, qa_shortcuts])
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
