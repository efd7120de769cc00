"""What a reader decided and met while it read a data set.

Every decision (format, encoding, delimiter, columns, label scheme, ...) is a :class:`Fact`: *given* by the
user, or *recognised* in the file. A decision that has several plausible results is neither: it is refused by
:func:`ambiguous`, with the setting for each. Nothing is changed or left out without an entry here.

A reader passes one :class:`ReadLog` on to all that it calls; the data card (:mod:`harness.data.reading.card`)
is made from it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from harness.errors import HarnessError, did_you_mean

Origin = Literal["given", "recognised"]
ON_ERROR = ("raise", "skip")
MAX_SKIPPED = 1000
"""Rows that cannot be read are an error beyond this number even with ``task.on_error=skip``."""


@dataclass(frozen=True, slots=True)
class Fact:
    """One decision about how a file is read.

    Attributes:
        value: what was decided, as shown to the user.
        origin: ``given`` by the configuration, or ``recognised`` in the data.
    """

    value: str
    origin: Origin


@dataclass(frozen=True, slots=True)
class SkippedRow:
    """A row that cannot be read and was skipped (``task.on_error=skip``).

    Attributes:
        where: file and line or row.
        reason: what is wrong with it.
    """

    where: str
    reason: str


@dataclass(slots=True)
class ReadLog:
    """Facts, remarks and omitted rows of all files of a data set.

    Attributes:
        on_error: ``raise`` stops at the first row that cannot be read; ``skip`` lists it in ``skipped``.
        facts: by file (or hub data set), then by name of the decision.
        notes: sentences about what was done, such as "dev: 10 % cut from train with seed 13".
        warnings: sentences about what looks wrong and was not changed.
        skipped: rows that cannot be read.
        excluded: numbers of rows left out for a reason that is no error, by (file or split, reason).
        counts: numbers for the record, such as repaired answers.
    """

    on_error: str = "raise"
    facts: dict[str, dict[str, Fact]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    skipped: list[SkippedRow] = field(default_factory=list)
    excluded: Counter[tuple[str, str]] = field(default_factory=Counter)
    counts: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.on_error not in ON_ERROR:
            raise HarnessError(f"task.on_error={self.on_error}: {did_you_mean(self.on_error, ON_ERROR)}")

    def given(self, source: str | Path, name: str, value: object) -> None:
        """Record a decision that the configuration made."""
        self.facts.setdefault(str(source), {})[name] = Fact(str(value), "given")

    def recognised(self, source: str | Path, name: str, value: object) -> None:
        """Record a decision that was made from the data."""
        self.facts.setdefault(str(source), {})[name] = Fact(str(value), "recognised")

    def fact(self, source: str | Path, name: str, value: object, *, given: bool) -> None:
        """Record a decision of either origin."""
        (self.given if given else self.recognised)(source, name, value)

    def note(self, text: str) -> None:
        """Add a note, once."""
        if text not in self.notes:
            self.notes.append(text)

    def warn(self, text: str) -> None:
        """Add a warning, once."""
        if text not in self.warnings:
            self.warnings.append(text)

    def add(self, name: str, count: float) -> None:
        """Add to a count; counts of 0 are left out."""
        if count:
            self.counts[name] = self.counts.get(name, 0) + count

    def exclude(self, source: str | Path, reason: str, count: int = 1) -> None:
        """Count rows that are left out: unlabelled, repeated header lines, duplicates, ..."""
        if count:
            self.excluded[str(source), reason] += count

    def skip(self, where: str, error: HarnessError) -> None:
        """Skip a row that cannot be read, or raise its error.

        Args:
            where: file and line or row.
            error: what is wrong, with the fix.

        Raises:
            HarnessError: ``error`` itself with ``on_error=raise``, or more than :data:`MAX_SKIPPED` rows.
        """
        if self.on_error == "raise":
            raise error
        self.skipped.append(SkippedRow(where, str(error).removeprefix(where).lstrip(":, ")))
        if len(self.skipped) > MAX_SKIPPED:
            raise HarnessError(
                f"more than {MAX_SKIPPED} rows cannot be read, the last: {error}. Check the format and the "
                "columns instead of skipping rows"
            )


def ambiguous(where: str | Path, question: str, readings: Mapping[str, str]) -> HarnessError:
    """Return the error for a decision that has several plausible results.

    Example: ``ambiguous("train.tsv", "which column is the text", {"question": "task.text=question", "both as
    a pair": "task.text=question task.text_b=sentence"})`` reads ``train.tsv: which column is the text? Set
    task.text=question (question), or task.text=question task.text_b=sentence (both as a pair)``.

    Args:
        where: the file, with its line where that helps.
        question: the decision, without a question mark.
        readings: the settings for each reading by its description, at least two.
    """
    settings = ", or ".join(f"{setting} ({reading})" for reading, setting in readings.items())
    return HarnessError(f"{where}: {question}? Set {settings}")
