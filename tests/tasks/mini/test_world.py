"""The mini world: its files are what the generator makes, and its tasks are what they claim to be."""

from __future__ import annotations

import csv
import gzip
import hashlib
import json
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from harness.core.paths import mini_dir
from harness.data.text import Text
from harness.errors import HarnessError
from harness.records.parts import TaskConfig
from harness.records.predictions import read_predictions, write_predictions
from harness.task import Prediction, Splits
from harness_tasks.classification.task import TextClassification
from harness_tasks.mini.world import generate
from harness_tasks.mini.world.draw import Draw
from harness_tasks.mini.world.grammar import Grammar, finish, words
from harness_tasks.mini.world.lexicon import Lexicon, lexicon
from harness_tasks.span_qa.reader import read_questions
from harness_tasks.tagging.columns import parse_lines
from harness_tasks.tagging.forms import ColumnLayout
from tests.helpers.cells import composed
from tests.helpers.data_files import copied

DATA = mini_dir() / "world" / "data"


@pytest.fixture(scope="module")
def corpus() -> str:
    return gzip.decompress((DATA / generate.CORPUS).read_bytes()).decode()


@pytest.fixture(scope="module")
def world() -> Lexicon:
    return lexicon()


@cache
def read(task: str) -> Splits:
    """The splits as the task's own configuration reads them."""
    config = composed(f"task=mini_{task}", "encoder=mini_static", "strategy=frozen")["task"]
    splits: Splits = TaskConfig.parse(config).build().splits()
    return splits


def test_tasks_come_out_the_same_byte_for_byte() -> None:
    made = dict(generate.task_files())
    assert len(made) == 17
    for name, text in made.items():
        assert (DATA / name).read_bytes() == text.encode(), name


def test_the_corpus_begins_as_it_is_generated(corpus: str) -> None:
    beginning = generate.corpus_text(5000)
    assert len(beginning.split()) >= 5000
    assert corpus.startswith(beginning)


def test_the_manifest_says_what_the_files_hold(corpus: str) -> None:
    manifest = json.loads((DATA / "manifest.json").read_text())
    for name, digest in manifest["sha256"].items():
        data = (DATA / name).read_bytes()
        assert hashlib.sha256(gzip.decompress(data) if name.endswith(".gz") else data).hexdigest() == digest
    there = {str(p.relative_to(DATA)) for p in DATA.rglob("*") if p.is_file()}
    assert there == {*manifest["sha256"], "manifest.json"}
    assert manifest["corpus"]["words"] == len(corpus.split())


def test_the_corpus_is_of_the_size_and_kind_it_should_be(corpus: str) -> None:
    counts = Counter(corpus.split())
    assert 290_000 < counts.total() < 310_000
    assert 2000 < len(counts) < 4000
    frequent = [n for _, n in counts.most_common(2000)]
    # Zipf: the product of rank and frequency stays within a narrow band
    assert all(0.15 < rank * n / 30_000 < 2.5 for rank, n in enumerate(frequent, start=1))
    assert max(len(line.split()) for line in corpus.split("\n")) < 60


def test_no_sentence_of_dev_or_test_is_in_the_corpus(corpus: str) -> None:
    later = {
        s for e in generate.sense_examples()["test"] for text in e.texts for s in generate.sentences(text)
    }
    assert not set(corpus.split("\n")) & (generate.held_out() | later)


def test_new_names_are_nowhere_in_the_corpus(corpus: str, world: Lexicon) -> None:
    new = {*world.new.first, *world.new.last, *world.new.neutral}
    new |= {name.words[0] for names in world.new.telling.values() for name in names}
    assert not new & set(corpus.split())


def test_words_of_two_senses_occur_in_both(corpus: str, world: Lexicon) -> None:
    assert len(world.two_senses) >= 40
    assert len({w.key for w in world.two_senses}) == len(world.two_senses)
    forms = Counter(corpus.lower().split())
    for word in world.two_senses:
        used = word.word.singular if hasattr(word.word, "singular") else word.word.past
        assert forms[used] > 15, word.key
        assert all(word.word in (*world.topics[t].things, *world.topics[t].acts) for t in word.topics)


def test_no_form_belongs_to_two_topics_but_by_two_senses(world: Lexicon) -> None:
    both = {w.key for w in world.two_senses}
    owners: dict[str, set[str]] = {}
    for topic in (*world.topics.values(), world.general):
        for form in topic.part((0,), of=1, without=frozenset(both)).words():
            owners.setdefault(form, set()).add(topic.name)
    assert not {form for form, names in owners.items() if len(names) > 1}


def test_the_shared_splitter_sees_the_words_of_the_world(corpus: str) -> None:
    for line in corpus.split("\n")[:3000]:
        assert Text.from_string(line).words == line.split()


@pytest.mark.parametrize("task", sorted(generate.SIZES))
def test_splits_have_their_size_and_share_nothing_and_are_tagged(task: str) -> None:
    splits = read(task)
    sizes = {name: len(examples) for name, examples in splits.items()}
    more = generate.MORE[task] if task == "sense" else {}
    assert sizes == {name: n + more.get(name, 0) for name, n in generate.SIZES[task].items()}
    texts = [tuple(t.text for t in e.texts) for _, examples in splits.items() for e in examples]
    assert len(set(texts)) == len(texts)
    assert all(e.tags for e in (*splits.dev, *splits.test))


@pytest.mark.parametrize(
    ("task", "tags"),
    [
        ("topic", ["cue:unseen", "cue:seen", "negation", "word_order", "mixed", "plain"]),
        ("ner", ["name:new", "name:corpus", "unseen_name", "context:none", "shape:neutral", "long_distance"]),
        ("qa", ["distractor:relation", "distractor:entity", "verb:other", "verb:unseen", "pronoun"]),
        ("sense", ["word:unseen", "sense:rare", "cue:left", "cue:right", "distractor:other_sense"]),
        ("pos", ["ambiguous_form", "long_distance", "coordination", "negation", "unseen_words:2+"]),
    ],
)  # fmt: skip
def test_each_phenomenon_is_often_enough_in_test(task: str, tags: list[str]) -> None:
    counts = Counter(tag for e in read(task).test for tag in e.tags)
    assert {tag: counts[tag] for tag in tags if counts[tag] < 25} == {}


def test_labels_are_spread_and_no_majority_helps() -> None:
    for task, most in (("topic", 0.22), ("sense", 0.5)):
        labels = Counter(e.gold for e in read(task).test)
        assert max(labels.values()) / labels.total() <= most


def test_the_word_of_a_sense_pair_is_where_the_file_says_and_tells_nothing() -> None:
    """What a table knows of the word is the same in both sentences, and each form has both labels alike."""
    for split in ("train", "dev", "test"):
        with (DATA / f"sense/{split}.csv").open(newline="") as f:
            rows = list(csv.DictReader(f))
        labels: dict[str, Counter[str]] = {}
        for row in rows:
            for text, at in (("text", "at"), ("text_b", "at_b")):
                assert Text.from_string(row[text]).words[int(row[at])].lower() == row["word"]
            labels.setdefault(row["word"], Counter())[row["label"]] += 1
        assert all(counts["same"] == counts["different"] for counts in labels.values())


def test_most_telling_words_of_topic_are_new_in_test() -> None:
    tags = Counter(tag for e in read("topic").test for tag in e.tags)
    assert tags["cue:unseen"] > 2 * tags["cue:seen"]


def test_answers_are_where_the_file_says_and_asked_of_one_fact() -> None:
    splits = read("qa")
    assert splits.report["answers_repaired"] == 0
    for _, examples in splits.items():
        for e in examples:
            (answer,) = e.gold["answers"]
            assert e.texts[1].text[answer["start"] : answer["end"]] == answer["text"]
            assert " ".join(e.texts[1].words) == e.texts[1].text


def test_tags_reach_the_predictions_file(tmp_path: Path) -> None:
    for task in sorted(generate.SIZES):
        examples = read(task).test[:20]
        said = {e.id: Prediction(e.gold) for e in examples}
        write_predictions(tmp_path, {"test": (examples, said)})
        rows = read_predictions(tmp_path)
        assert [row["tags"] for row in rows] == [list(e.tags) for e in examples]
        assert any(":" in tag for row in rows for tag in row["tags"])


def test_tags_of_a_table_are_a_text_or_a_list(tmp_path: Path) -> None:
    rows = [{"text": "a", "label": "x", "tags": "one two"}, {"text": "b", "label": "y", "tags": ["three"]},
            {"text": "c", "label": "x", "tags": None}]  # fmt: skip
    path = tmp_path / "train.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = TextClassification(train=str(path), test=copied(path), dev="none", tags="tags")
    assert [e.tags for e in task.splits().train] == [("one", "two"), ("three",), ()]
    path.write_text('{"text": "a", "label": "x", "tags": 3}\n')
    with pytest.raises(HarnessError, match=r"line 1.*column tags holds 3"):
        task.splits()


def test_tags_of_a_column_file_stand_in_a_comment_and_a_hash_stays_a_token() -> None:
    lines = ["# tags = one two\n", "we O\n", "won O\n", "\n", "# O\n", "tags O\n"]
    first, second = parse_lines(lines, source="x", layout=ColumnLayout()).sentences
    assert (first.words, first.tags) == (["we", "won"], ("one", "two"))
    assert (second.words, second.tags) == (["#", "tags"], ())


def test_tags_of_a_question_are_a_list_of_texts(tmp_path: Path) -> None:
    answer = {"text": ["b"], "answer_start": [2]}
    row = {"id": "1", "context": "a b", "question": "What ?", "answers": answer, "tags": ["one"]}
    path = tmp_path / "x.jsonl"
    path.write_text(json.dumps(row) + "\n")
    assert read_questions([path])[0].tags == ("one",)
    path.write_text(json.dumps({**row, "tags": "one"}) + "\n")
    with pytest.raises(HarnessError, match="tags='one': expected list"):
        read_questions([path])


def test_articles_agree_with_what_follows() -> None:
    assert [t.form for t in finish(words("a eel saw a owl", "DET", "NOUN", "VERB", "DET", "NOUN"))] == [
        "An", "eel", "saw", "an", "owl", "."
    ]  # fmt: skip


def test_subject_and_verb_agree(world: Lexicon) -> None:
    grammar = Grammar(Draw("agreement"), world)
    verb = world.general.acts[0]
    for plural, form in ((True, verb.base), (False, verb.third)):
        forms = {t.form for _ in range(50) for t in grammar.verb(verb, plural, tense="present")}
        assert form in forms
        assert not forms & ({verb.third} if plural else {"do", "are", "were"})


def test_draws_do_not_depend_on_the_machine() -> None:
    """Known values: they change only when the sequence of choices does, and then every file does."""
    draw = Draw("test")
    assert [draw.below(100) for _ in range(5)] == [5, 83, 66, 6, 46]
    assert sorted(Draw("test").shuffled(range(5))) == list(range(5))


def test_the_command_writes_everything(tmp_path: Path) -> None:
    generate.write(tmp_path, n_words=2000)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert set(manifest["sha256"]) == {generate.CORPUS, *dict(generate.task_files())}
    assert all((tmp_path / name).is_file() for name in manifest["sha256"])
