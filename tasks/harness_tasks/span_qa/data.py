"""Reading train, dev and test of a question answering data set. This module does not import torch.

A missing split is cut by article with a fixed seed, never by question: questions on the same context are not
independent. SQuAD's test set is not public; where there are train and dev but no test, the published dev set
serves as test and dev is cut from train.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from harness.data.reading.card import make_card
from harness.data.reading.locate import Paths, as_list, by_role
from harness.data.reading.log import ReadLog
from harness.data.reading.source import ROLES, DataOptions, DataSource
from harness.data.splits import Cut, cut, limit, smaller
from harness.data.text import Text
from harness.errors import HarnessError
from harness.task import Splits
from harness_tasks.span_qa.reader import Question, build, from_table, read_questions, unique, whole_articles

TEST_FRACTION = 0.2
"""Share of the data that becomes test when it has to be cut."""
_JSON = ("*.json", "*.json.gz", "*.jsonl", "*.jsonl.gz")


def make_source(options: Mapping[str, object] | DataOptions) -> DataSource:
    """The data source of a question answering task; ``path`` may be a folder, or one file from which all
    splits are cut.

    Raises:
        HarnessError: see :meth:`harness.data.reading.source.DataSource.of`.
    """
    source = DataSource.of({"test_fraction": TEST_FRACTION, **options})
    if source.path and not source.named.get("train"):
        only = _only_file(Path(source.path).expanduser(), source.files)
        if only is not None:
            return replace(source, named={**source.named, "train": only}, path=None)
    return source


def find_files(config: Mapping[str, object], cache_dir: Path) -> dict[str, Path]:
    """Local files of the splits by role; empty for a hub data set.

    Raises:
        HarnessError: a file is missing, or there is no data at all.
    """
    options = {key: value for key, value in config.items() if key in DataOptions.__annotations__}
    return by_role(make_source(options).locate())


def read_splits(source: DataSource, *, max_questions: int | None = None) -> tuple[Splits, bool]:
    """Read all splits.

    Args:
        source: where the data are.
        max_questions: limit per split.

    Returns:
        The splits, and whether the data set has questions without an answer (before the limit is applied).

    Raises:
        HarnessError: see :mod:`harness_tasks.span_qa.reader`.
    """
    log = source.log()
    questions = _arrange(_read(source, log), source, log)
    unanswerable = any(q.impossible for qs in questions.values() for q in qs)
    questions["train"] = smaller(questions["train"], source.train_size, source.split_seed, notes=log.notes)
    card = make_card(log, {role: [q.card_example() for q in questions[role]] for role in ROLES}, counted="")
    texts: dict[str, Text] = {}
    repaired: Counter[str] = Counter()
    examples = {role: build(limit(questions[role], max_questions), repaired, texts=texts) for role in ROLES}
    for how, count in repaired.items():
        log.note(f"{count} answer(s) were not at answer_start: {how}")
    report = {"answers_repaired": float(sum(repaired.values())), "contexts": float(len(texts)), **log.counts}
    splits = Splits(**examples, notes=log.notes, report=report, warnings=log.warnings, card=card)
    return splits, unanswerable


def _read(source: DataSource, log: ReadLog) -> dict[str, list[Question]]:
    located = source.locate()
    if located:
        return {role: read_questions(paths, log=log) for role, paths in located.items()}
    tables = source.load_hub(log)
    if "train" not in tables:
        raise HarnessError("task.hub: no split for train; name it with task.hub.splits.train")
    return {role: unique(list(from_table(table))) for role, table in tables.items()}


def _arrange(
    read: Mapping[str, list[Question]], source: DataSource, log: ReadLog
) -> dict[str, list[Question]]:
    """All three splits, cut where one is missing."""
    train, dev, test = (list(read.get(role, [])) for role in ROLES)
    if not test and dev:
        test, dev = dev, []
        log.note("test: the published dev set (the data set's own test set is not public)")
    if not test:
        train, test = _cut(train, "test", source, log)
    if source.no_dev:
        dev = []
    elif not dev:
        train, dev = _cut(train, "dev", source, log)
    return {"train": train, "dev": dev, "test": test}


def _cut(
    questions: Sequence[Question], role: str, source: DataSource, log: ReadLog
) -> tuple[list[Question], list[Question]]:
    fraction = source.test_fraction if role == "test" else source.dev_fraction
    group = whole_articles(questions)
    try:
        done: Cut[Question] = cut(questions, fraction, source.split_seed, group=lambda q: group[q.id])
    except HarnessError as e:
        raise HarnessError(f"{role} cannot be cut from train: {e}; or name one with task.{role}=FILE") from e
    articles = len({group[q.id] for q in done.part})
    log.note(
        f"{role}: {len(done.part)} questions of {articles} articles cut from train "
        f"({fraction:g} of it, by article, seed {source.split_seed})"
    )
    return done.rest, done.part


def _only_file(path: Path, files: Mapping[str, Paths]) -> Path | None:
    """``path`` itself when it is a file; a folder's one data file when none is named like a split."""
    if path.is_file():
        return path
    patterns = [pattern for names in files.values() for pattern in as_list(names)]
    if not path.is_dir() or any(any(path.glob(p)) for p in patterns):
        return None
    found = sorted(p for pattern in _JSON for p in path.glob(pattern))
    return found[0] if len(found) == 1 else None
