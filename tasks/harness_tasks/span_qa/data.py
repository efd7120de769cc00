"""From files or a hub data set to train, dev and test. This module imports no torch.

A split that is not there is cut by article with a fixed seed, never by question: questions over one context
share most of what there is to learn. SQuAD keeps its test set hidden; where there are train and dev but no
test, the published dev set serves as test and dev is cut from train.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.data.files import ROLES, by_role, is_none, locate
from harness.data.hub import load_hub
from harness.data.splits import Cut, cut, limit, smaller
from harness.data.text import Text
from harness.errors import HarnessError
from harness.task import Splits
from harness_tasks.span_qa.reader import Question, build, from_table, read_questions, unique, whole_articles

SEED = 13
HUB_KEYS = ("id", "config", "revision", "splits")
NO_DATA = "no data; give task.path=FOLDER_OR_FILE, task.train=FILE or task.hub=OWNER/NAME"
_JSON = ("*.json", "*.json.gz", "*.jsonl", "*.jsonl.gz")


@dataclass(frozen=True, slots=True)
class Source:
    """Where a data set comes from; see ``conf/task/span_qa.yaml`` for the keys."""

    path: str | None = None
    train: Any = None
    dev: Any = None
    test: Any = None
    files: Mapping[str, Any] | None = None
    hub: str | Mapping[str, Any] | None = None
    dev_fraction: float = 0.1
    test_fraction: float = 0.2
    train_size: int | None = None

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Source:
        return cls(**{k: config[k] for k in cls.__slots__ if k in config})

    @property
    def local(self) -> bool:
        return any((self.path, self.train, self.test))

    def locate(self) -> dict[str, list[Path]]:
        """Files by split; ``path`` may be a folder, or one file from which all splits are cut."""
        config: dict[str, Any] = {r: getattr(self, r) for r in ROLES}
        config |= {"path": self.path, "files": self.files or {}}
        if self.path and not self.train:
            only = _only_file(Path(self.path).expanduser(), self.files or {})
            if only is not None:
                config |= {"train": only, "path": None}
        found = locate(config)
        if "train" not in found:
            raise HarnessError("task.train is not given: name the training file, or a folder with task.path")
        return found


def find_files(config: Mapping[str, Any], cache_dir: Path) -> dict[str, Path]:
    """The files that decide the result, by role; none for a hub data set, whose id and revision do."""
    source = Source.from_config(config)
    if not source.local and not source.hub:
        raise HarnessError(f"task {config.get('name', 'span_qa')}: {NO_DATA}")
    return by_role(source.locate()) if source.local else {}


def read_splits(source: Source, *, most: int | None = None) -> tuple[Splits, bool]:
    """Read everything.

    Args:
        source: where it lies.
        most: questions a split.

    Returns:
        The splits, and whether the data set has questions without an answer (told before any are left out).

    Raises:
        HarnessError: see :mod:`harness_tasks.span_qa.reader`.
    """
    notes: list[str] = []
    questions = _arrange(_read(source, notes), source, notes)
    unanswerable = any(q.impossible for qs in questions.values() for q in qs)
    questions["train"] = smaller(questions["train"], source.train_size, SEED, notes=notes)
    texts: dict[str, Text] = {}
    repaired: Counter[str] = Counter()
    examples = {role: build(limit(questions[role], most), repaired, texts=texts) for role in ROLES}
    for how, count in repaired.items():
        notes.append(f"{count} answer(s) did not stand where the data say: {how}")
    report = {"answers_repaired": float(sum(repaired.values())), "contexts": float(len(texts))}
    return Splits(examples["train"], examples["dev"], examples["test"], notes, report), unanswerable


def _read(source: Source, notes: list[str]) -> dict[str, list[Question]]:
    if source.local:
        return {role: read_questions(paths, notes=notes) for role, paths in source.locate().items()}
    if not source.hub:
        raise HarnessError(NO_DATA)
    hub: dict[str, Any] = {"id": source.hub} if isinstance(source.hub, str) else dict(source.hub)
    unknown = [k for k in hub if k not in HUB_KEYS]
    if unknown or not hub.get("id"):
        raise HarnessError(f"task.hub: {unknown or 'id'}; it takes {', '.join(HUB_KEYS)}, id required")
    tables = load_hub(hub["id"], hub.get("splits"), config=hub.get("config"), revision=hub.get("revision"))
    if "train" not in tables:
        raise HarnessError(f"task.hub={hub['id']}: no split for train; name it with task.hub.splits.train")
    at = f" at {hub['revision']}" if hub.get("revision") else ""
    notes.append(f"data: hub data set {hub['id']}{at}")
    return {role: unique(list(from_table(table))) for role, table in tables.items()}


def _arrange(
    read: Mapping[str, list[Question]], source: Source, notes: list[str]
) -> dict[str, list[Question]]:
    """All three splits, cut where one is missing."""
    train, dev, test = (list(read.get(role, [])) for role in ROLES)
    if not test and dev:
        test, dev = dev, []
        notes.append("test: the published dev set (the data set's own test set is not public)")
    if not test:
        train, test = _cut(train, source.test_fraction, "test", notes)
    if is_none(source.dev):
        dev = []
    elif not dev:
        train, dev = _cut(train, source.dev_fraction, "dev", notes)
    return {"train": train, "dev": dev, "test": test}


def _cut(
    questions: Sequence[Question], fraction: float, role: str, notes: list[str]
) -> tuple[list[Question], list[Question]]:
    group = whole_articles(questions)
    try:
        done: Cut[Question] = cut(questions, fraction, SEED, group=lambda q: group[q.id])
    except HarnessError as e:
        raise HarnessError(f"{role} cannot be cut from train: {e}; or name one with task.{role}=FILE") from e
    articles = len({group[q.id] for q in done.part})
    notes.append(
        f"{role}: {len(done.part)} questions of {articles} articles cut from train "
        f"({fraction:g} of it, by article, seed {SEED})"
    )
    return done.rest, done.part


def _only_file(path: Path, files: Mapping[str, Any]) -> Path | None:
    """``path`` itself when it is a file; a folder's one data file when none is named like a split."""
    if path.is_file():
        return path
    patterns = [p for names in files.values() for p in ([names] if isinstance(names, str) else names or [])]
    if not path.is_dir() or any(any(path.glob(p)) for p in patterns):
        return None
    found = sorted(p for pattern in _JSON for p in path.glob(pattern))
    return found[0] if len(found) == 1 else None
