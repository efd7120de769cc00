"""Options of how data are read that decide nothing: without them the same examples are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from harness.core.fingerprint import data_fingerprint
from harness.errors import HarnessError
from harness.records.parts import TaskConfig
from harness.task import Splits

GUESSED: Mapping[str, object] = {
    **dict.fromkeys(("text", "text_a", "text_b", "label", "id", "format", "delimiter", "quoting")),
    "encoding": "auto",
    "fields": dict.fromkeys(
        ("id", "question", "context", "answers", "answer_start", "is_impossible", "title", "context_id")
    ),
}
"""Options that a reader recognises in the data if they have this value."""
_known: dict[str, bool] = {}


def redundant_options(task: TaskConfig, fingerprint: str) -> dict[str, object]:
    """Return the options that may be left out of a cell's identity, with the value that leaves them open: all
    that are given, if the data are read alike without them, else none. So a column has one identity, whether
    it is named or recognised.

    Args:
        task: parsed section whose data lie in local files.
        fingerprint: of these files.
    """
    given = {k: v for k, v in GUESSED.items() if k in task.options and task.options[k] != v}
    if not given:
        return {}
    key = data_fingerprint([task.target, dict(task.options), fingerprint])
    if key not in _known:
        _known[key] = _read_alike(task, replace(task, options={**task.options, **given}))
    return given if _known[key] else {}


def _read_alike(one: TaskConfig, other: TaskConfig) -> bool:
    try:
        return _examples(one.build().splits()) == _examples(other.build().splits())
    except HarnessError:  # ambiguous without the options, or unreadable, which is reported later
        return False


def _examples(splits: Splits) -> dict[str, object]:
    return {name: list(examples) for name, examples in splits.items()}
