"""The files of the mini world, as ``python -m harness_tasks.mini.world FOLDER`` writes them.

    corpus.txt.gz          one sentence per line, a blank line between documents
    topic/, sense/         csv with a header; ner/, pos/: one word and its label per line; qa/: SQuAD's JSON
    manifest.json          SHA-256 of every file (of the text, not of its compression) and some counts

No sentence of dev or test is in the corpus, and no example is in two splits. The examples in MORE were added
later and do not change the corpus: more test pairs of senses, and train_more files for learning curves.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TypeVar

from harness_tasks.mini.world.classify import Labelled, Pair, SensePairs, TopicTexts
from harness_tasks.mini.world.corpus import MiniCorpus
from harness_tasks.mini.world.grammar import text_of
from harness_tasks.mini.world.lexicon import lexicon
from harness_tasks.mini.world.questions import Asked, Questions
from harness_tasks.mini.world.tagged import NameSentences, PosSentences, Tagged

CORPUS_WORDS = 300_000
CORPUS = "corpus.txt.gz"
SPLITS = ("test", "dev", "train")
"""In the order of generation; an example of an earlier split is not generated again."""
SIZES = {
    "topic": {"train": 300, "dev": 200, "test": 500},
    "ner": {"train": 300, "dev": 200, "test": 500},
    "qa": {"train": 400, "dev": 200, "test": 500},
    "sense": {"train": 1536, "dev": 192, "test": 480},
    "pos": {"train": 200, "dev": 200, "test": 500},
}
MORE = {"topic": {"train": 700}, "ner": {"train": 700}, "sense": {"test": 1440}}
"""Numbers of examples that were added after the corpus was generated."""
T = TypeVar("T")
Splits = dict[str, list[T]]


def _splits(task: str, maker: Callable[[str], Callable[[], T]], key: Callable[[T], str]) -> Splits[T]:
    """Examples by split, all different by ``key``."""
    seen: set[str] = set()
    return {split: _fresh(SIZES[task][split], maker(split), key, seen) for split in SPLITS}


def _fresh(n: int, make: Callable[[], T], key: Callable[[T], str], seen: set[str]) -> list[T]:
    """``n`` examples whose keys are not in ``seen``; adds their keys to it."""
    out: list[T] = []
    while len(out) < n:
        example = make()
        if key(example) not in seen:
            seen.add(key(example))
            out.append(example)
    return out


@cache
def topic_examples() -> Splits[Labelled]:
    """mini_topic; tags of dev and test tell whether train has a word of the text's topic."""
    makers = {split: TopicTexts(split) for split in SPLITS}
    out = _splits("topic", lambda split: makers[split].make, lambda e: e.text)
    known = {word for e in out["train"] for word in e.text.lower().split()}
    for split in ("dev", "test"):
        cues = makers[split].cues
        out[split] = [
            replace(e, tags=(*e.tags, "cue:seen" if any(w in known for w in cues(e)) else "cue:unseen"))
            for e in out[split]
        ]
    return out


@cache
def _first_senses() -> Splits[Pair]:
    """mini_sense without later additions. A repeated pair is generated again, so that every word keeps its
    number of pairs."""
    seen: set[tuple[str, ...]] = set()
    return {split: _pairs(split, range(SIZES["sense"][split]), seen) for split in SPLITS}


def _pairs(
    split: str, numbers: range, seen: set[tuple[str, ...]], *, without: frozenset[str] = frozenset()
) -> list[Pair]:
    """The pairs with these numbers, each generated until it is new and has no sentence of ``without``."""
    pairs, out = SensePairs(split), list[Pair]()
    while len(out) < len(numbers):
        pair = pairs.make(numbers[len(out)])
        key = tuple(sorted(pair.texts))
        parts = {sentence for text in pair.texts for sentence in sentences(text)}
        if key not in seen and key[0] != key[1] and not parts & without:
            seen.add(key)
            out.append(pair)
    return out


def _words(example: Tagged) -> str:
    return text_of(list(example.tokens))


@cache
def ner_examples() -> Splits[Tagged]:
    """mini_ner."""
    return _splits("ner", lambda split: NameSentences(split).make, _words)


@cache
def pos_examples() -> Splits[Tagged]:
    """mini_pos; tags of dev and test tell how many of their words train lacks."""
    out = _splits("pos", lambda split: PosSentences(split).make, _words)
    known = {t.form.lower() for e in out["train"] for t in e.tokens}
    for split in ("dev", "test"):
        out[split] = [replace(e, tags=(*e.tags, _unknown(e, known))) for e in out[split]]
    return out


def _unknown(example: Tagged, known: set[str]) -> str:
    n = sum(t.form.lower() not in known for t in example.tokens)
    return f"unseen_words:{n if n < 2 else '2+'}"


def _more(task: str, make: Callable[[], T], key: Callable[[T], str], splits: Splits[T]) -> list[T]:
    """Further training examples, none of them in a split."""
    return _fresh(MORE[task]["train"], make, key, {key(e) for part in splits.values() for e in part})


@cache
def more_topics() -> list[Labelled]:
    """With the words of train."""
    return _more("topic", TopicTexts("train_more").make, lambda e: e.text, topic_examples())


@cache
def more_names() -> list[Tagged]:
    """With the names of train."""
    return _more("ner", NameSentences("train_more").make, _words, ner_examples())


@cache
def sense_examples() -> Splits[Pair]:
    """mini_sense. Later test pairs continue the numbering; those with a sentence of the corpus are generated
    again."""
    out, first = _first_senses(), SIZES["sense"]["test"]
    seen = {tuple(sorted(e.texts)) for part in out.values() for e in part}
    corpus = frozenset(corpus_text().split("\n"))
    more = _pairs("test_more", range(first, first + MORE["sense"]["test"]), seen, without=corpus)
    return {**out, "test": out["test"] + more}


@cache
def qa_examples() -> Splits[Asked]:
    """mini_qa."""
    return _splits("qa", lambda split: Questions(split).make, lambda e: e.context)


def held_out() -> frozenset[str]:
    """Every sentence of dev and test that was there before the corpus."""
    texts: list[str] = []
    for split in ("dev", "test"):
        texts += [e.text for e in topic_examples()[split]]
        texts += [text for e in _first_senses()[split] for text in e.texts]
        texts += [_words(e) for part in (ner_examples(), pos_examples()) for e in part[split]]
        texts += [text for e in qa_examples()[split] for text in (e.question, e.context)]
    return frozenset(sentence for text in texts for sentence in sentences(text))


def sentences(text: str) -> list[str]:
    """The sentences of a text of the world."""
    out: list[list[str]] = [[]]
    for word in text.split():
        out[-1].append(word)
        if word in (".", "?"):
            out.append([])
    return [" ".join(words) for words in out if words]


@cache
def corpus_text(n_words: int = CORPUS_WORDS) -> str:
    """The corpus, or its beginning."""
    documents = MiniCorpus(lexicon()).documents(n_words, held_out=held_out())
    return "\n".join("".join(f"{line}\n" for line in lines) for lines in documents)


def task_files() -> Iterator[tuple[str, str]]:
    """Path and text of every file of the tasks."""
    for split in ("train", "dev", "test"):
        yield f"topic/{split}.csv", _topic_csv(topic_examples()[split])
        yield f"sense/{split}.csv", _sense_csv(sense_examples()[split])
        yield f"ner/{split}.txt", _columns(ner_examples()[split], entity=True)
        yield f"pos/{split}.txt", _columns(pos_examples()[split], entity=False)
        yield f"qa/{split}.json", _squad(split, qa_examples()[split])
    yield "topic/train_more.csv", _topic_csv(more_topics())
    yield "ner/train_more.txt", _columns(more_names(), entity=True)


def write(folder: Path, *, n_words: int = CORPUS_WORDS) -> None:
    """Write all files and the manifest."""
    corpus = corpus_text(n_words)
    files = {CORPUS: corpus, **dict(task_files())}
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        data = text.encode()
        path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
    (folder / "manifest.json").write_bytes(_manifest(files).encode())


def _manifest(files: dict[str, str]) -> str:
    words = files[CORPUS].split()
    content = {
        "command": "python -m harness_tasks.mini.world FOLDER",
        "corpus": {
            "words": len(words),
            "types": len(set(words)),
            "documents": files[CORPUS].count("\n\n") + 1,
            "sentences": sum(bool(line) for line in files[CORPUS].split("\n")),
        },
        "examples": SIZES,
        "more": MORE,
        "sha256": {name: hashlib.sha256(text.encode()).hexdigest() for name, text in files.items()},
    }
    return json.dumps(content, indent=1) + "\n"


def _topic_csv(examples: Sequence[Labelled]) -> str:
    return _csv([("text", "label", "tags"), *((e.text, e.label, " ".join(e.tags)) for e in examples)])


def _sense_csv(examples: Sequence[Pair]) -> str:
    header = ("text", "text_b", "label", "word", "at", "at_b", "tags")
    rows = [(*e.texts, e.label, e.word, *map(str, e.at), " ".join(e.tags)) for e in examples]
    return _csv([header, *rows])


def _csv(rows: Sequence[Sequence[str]]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue()


def _columns(examples: Sequence[Tagged], *, entity: bool) -> str:
    def one(example: Tagged) -> str:
        rows = "".join(f"{t.form} {t.entity if entity else t.pos}\n" for t in example.tokens)
        return f"# tags = {' '.join(example.tags)}\n{rows}"

    return "\n".join(map(one, examples))


def _squad(split: str, examples: Sequence[Asked]) -> str:
    paragraphs = [
        {
            "context": e.context,
            "qas": [
                {
                    "id": f"{split}-{i}",
                    "question": e.question,
                    "answers": [{"text": e.answer, "answer_start": e.start}],
                    "tags": e.tags,
                }
            ],
        }
        for i, e in enumerate(examples)
    ]
    lines = ",\n".join(json.dumps(p) for p in paragraphs)
    return f'{{"version": "1.1", "data": [{{"title": "{split}", "paragraphs": [\n{lines}\n]}}]}}\n'
