"""Reading train, dev and test of a question answering data set. This module does not import torch.

A missing split is cut by article with a fixed seed, never by question: questions on the same context are not
independent. SQuAD's test set is not public; where there are train and dev but no test, the published dev set
serves as test and dev is cut from train.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness.data.reading.card import make_card
from harness.data.reading.locate import Paths, as_list, by_role, named_files
from harness.data.reading.log import ReadLog
from harness.data.reading.overlap import text_key, treat_duplicates
from harness.data.reading.source import ROLES, DataOptions, DataSource
from harness.data.splits import Cut, cut, limit, smaller
from harness.data.text import Text
from harness.errors import HarnessError
from harness.task import Splits
from harness_tasks.span_qa.checks import check_labelled, compare_contexts, decide_unit, describe
from harness_tasks.span_qa.offsets import BY_TEXT
from harness_tasks.span_qa.questions import Question, build, whole_articles
from harness_tasks.span_qa.reader import QuestionReader, read_contexts

TEST_FRACTION = 0.2
"""Share of the data that becomes test when it has to be cut."""
REPAIRED_SHARE = 0.1
"""Share of answers that are not where the data say above which there is a warning."""
_JSON = ("*.json", "*.json.gz", "*.jsonl", "*.jsonl.gz")


@dataclass(frozen=True, slots=True)
class QuestionOptions:
    """Options of a question answering task that concern its data.

    Attributes:
        contexts: file of the contexts by id, for rows that refer to them by ``context_id``.
        fields: names of fields where they differ, such as ``{id: qid}``.
        f1_unit: ``word`` or ``char``; None = words, unless the answers' script makes that doubtful.
        max_answer_tokens: maximum length of a predicted answer.
    """

    contexts: str | None = None
    fields: Mapping[str, str] = field(default_factory=dict)
    f1_unit: str | None = None
    max_answer_tokens: int = 30


@dataclass(frozen=True, slots=True)
class QuestionData:
    """The splits of a data set.

    Attributes:
        splits: examples with notes and data card.
        unanswerable: whether there are questions without an answer, before a limit is applied.
        f1_unit: ``word`` or ``char``.
    """

    splits: Splits
    unanswerable: bool
    f1_unit: str


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
    contexts = config.get("contexts")
    extra = {"contexts": named_files(str(contexts), "contexts")} if contexts else {}
    return by_role({**make_source(options).locate(), **extra})


def read_splits(
    source: DataSource, options: QuestionOptions | None = None, *, max_questions: int | None = None
) -> QuestionData:
    """Read all splits.

    Args:
        source: where the data are.
        options: of the task.
        max_questions: limit per split.

    Raises:
        HarnessError: see :mod:`harness_tasks.span_qa.reader` and :mod:`harness_tasks.span_qa.checks`.
    """
    options = options or QuestionOptions()
    log = source.log()
    read = _read(source, options, log)
    questions = _arrange(read, source, log)
    unit = decide_unit(questions, options.f1_unit, log)
    unanswerable = any(q.impossible for qs in questions.values() for q in qs)
    questions["train"] = smaller(questions["train"], source.train_size, source.split_seed, notes=log.notes)
    compare_contexts(questions, log)
    details = describe(questions, options.max_answer_tokens, log)
    examples = {role: [q.card_example() for q in questions[role]] for role in ROLES}
    card = make_card(log, examples, counted="", details=details)
    texts: dict[str, Text] = {}
    built = {role: build(limit(questions[role], max_questions), texts=texts) for role in ROLES}
    report = {"contexts": float(len(texts)), **log.counts}
    splits = Splits(**built, notes=log.notes, report=report, warnings=log.warnings, card=card)
    return QuestionData(splits, unanswerable, unit)


def _read(source: DataSource, options: QuestionOptions, log: ReadLog) -> dict[str, list[Question]]:
    """Questions of the splits that there are, with repeated ones treated as ``task.duplicates`` says."""
    contexts: dict[str, str] = {}
    for path in named_files(options.contexts, "contexts") if options.contexts else ():
        contexts |= read_contexts(path, log, source.read)
    reader = QuestionReader(log, source.read, options.fields, contexts)
    if located := source.locate():
        read = {role: reader.read(paths, role) for role, paths in located.items()}
    else:
        tables = source.load_hub(log)
        if "train" not in tables:
            raise HarnessError("task.hub: no split for train; name it with task.hub.splits.train")
        read = {role: reader.finish(list(reader.rows(t)), role, t.source) for role, t in tables.items()}
    read = check_labelled(read, log)
    _report_repairs(reader, sum(len(q.answers) for questions in read.values() for q in questions))
    ordered = {role: read[role] for role in ROLES if role in read}
    kept = treat_duplicates(ordered, _duplicate_keys, source.duplicates, log)
    if not kept["train"]:
        raise HarnessError("task.duplicates=drop: every question of train is also in dev or test")
    return kept


def _duplicate_keys(question: Question) -> tuple[str, tuple[str, ...]]:
    answers = tuple(sorted({text for text, _ in question.answers}))
    return text_key(question.question, question.context), answers


def _report_repairs(reader: QuestionReader, answers: int) -> None:
    log, located = reader.log, reader.repaired[BY_TEXT]
    total = sum(reader.repaired.values()) - located
    log.counts["answers_repaired"] = float(total)
    log.add("answers_located", located)
    for how, count in reader.repaired.items():
        log.note(f"{count} answer(s) {'have' if how == BY_TEXT else 'repaired:'} {how}")
    if total > REPAIRED_SHARE * answers:
        log.warn(f"{total} of {answers} answers are not where answer_start says; see the notes")


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
