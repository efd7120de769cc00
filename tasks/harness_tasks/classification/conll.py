"""Recognise files of labelled words, which classification and regression cannot read."""

from __future__ import annotations

import re
from pathlib import Path

from harness.errors import HarnessError

_SUFFIXES = frozenset({".conll", ".conllu", ".conllx", ".conll2003", ".iob", ".iob2", ".bio"})
_TABLES = frozenset({".csv", ".json", ".jsonl", ".ndjson", ".parquet", ".arrow"})
_HEAD = 1 << 16
_SCHEME = re.compile(r"O|[BIESLUM]-\S+")


def refuse_words(path: Path, *, task: str) -> None:
    """Refuse a file with one labelled word per line and blank lines between sentences.

    Raises:
        HarnessError: names the task that reads such files.
    """
    suffixes = {suffix.lower() for suffix in path.suffixes}
    if suffixes & _TABLES or not (suffixes & _SUFFIXES or _has_words(path)):
        return
    raise HarnessError(
        f"{path}: has one word per line with its label, as CoNLL files do; task=ner reads it (task={task} "
        "expects one text per row). Set task.format if it is a table all the same"
    )


def _has_words(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD).decode("utf-8", "replace")
    except OSError:
        return False
    if head.startswith("-DOCSTART-"):
        return True
    lines = head.splitlines()[: -1 if len(head) >= _HEAD else None]
    rows = [line.split() for line in lines if line.strip() and not line.startswith("# ")]
    blank = sum(not line.strip() for line in lines)
    if not rows or not blank or min(map(len, rows)) < 2:
        return False
    same = len({len(row) for row in rows}) == 1
    return same and all(_SCHEME.fullmatch(row[-1]) for row in rows)
