"""The data card: how a data set was read and what it contains.

It is shown on the terminal and in the report, and stored in the record.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from harness.data.reading.log import Fact, Origin, ReadLog
from harness.data.reading.overlap import Overlap, compare, text_key
from harness.errors import HarnessError

SAMPLES = 2
"""Number of examples per split that the card shows."""
_SAMPLE_LENGTH = 80
_SHOWN_CLASSES = 12
_MAX_CLASSES = 100
_MAX_SKIPPED = 100


@dataclass(frozen=True, slots=True)
class CardExample:
    """An example as the card needs it.

    Attributes:
        texts: its texts, unchanged; one, or two of a pair.
        labels: its class, or the types of its entities, or the number of a regression.
        length: in the card's unit; None = the characters of all texts.
        gold: what is compared between equal texts of two splits; None = ``labels``.
    """

    texts: tuple[str, ...]
    labels: tuple[str, ...] = ()
    length: int | None = None
    gold: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class SplitSummary:
    """Content of one split.

    Attributes:
        examples: their number.
        n_classes: number of different classes; 0 when labels are not classes.
        classes: number of occurrences of each of the hundred most frequent classes.
        lengths: minimum, quartiles and maximum of the examples' lengths.
        samples: the first examples, shortened, each with its labels.
        details: what else the task says about it, such as "12 questions without an answer".
    """

    examples: int
    n_classes: int = 0
    classes: dict[str, int] = field(default_factory=dict)
    lengths: tuple[int, ...] = ()
    samples: tuple[str, ...] = ()
    details: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DataCard:
    """How a data set was read and what it contains.

    Attributes:
        files: the reader's decisions by file (or hub data set).
        splits: content of each split before limits.
        unit: of ``lengths``, ``characters`` or ``words``.
        counted: what ``classes`` counts: ``classes``, ``entities``, ``labels``; empty when labels are no
            classes.
        excluded: sentences about rows that were left out on purpose.
        skipped: rows that cannot be read, the first hundred.
        n_skipped: number of all rows that cannot be read.
        warnings: what looks wrong.
    """

    files: dict[str, dict[str, Fact]]
    splits: dict[str, SplitSummary]
    unit: str
    counted: str
    excluded: list[str]
    skipped: list[str]
    n_skipped: int
    warnings: list[str]

    def to_json(self) -> dict[str, object]:
        """Return the card as plain data for the record."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, object]) -> DataCard:
        """Read a card from a record.

        Raises:
            HarnessError: it is not the JSON of a card; names the key.
        """
        try:
            card = cls(**data)  # type: ignore[arg-type]  # checked by what follows
            files = {
                str(source): {str(name): Fact(**fact) for name, fact in facts.items()}  # type: ignore[arg-type]
                for source, facts in card.files.items()
            }
            splits = {str(split): SplitSummary(**part) for split, part in card.splits.items()}  # type: ignore[arg-type]
            card = replace(card, files=files, splits=splits)
            card._check()
            card.lines()
        except (TypeError, ValueError, AttributeError, KeyError) as e:
            raise HarnessError(f"the data card of the record is damaged ({e})") from None
        return card

    def _check(self) -> None:
        """Raise TypeError where a value has not its type."""
        for name, kind in (("unit", str), ("counted", str), ("n_skipped", int)):
            if not isinstance(getattr(self, name), kind):
                raise TypeError(f"{name} is no {kind.__name__}")
        for name in ("excluded", "skipped", "warnings"):
            values = getattr(self, name)
            if not isinstance(values, list) or not all(isinstance(v, str) for v in values):
                raise TypeError(f"{name} is no list of strings")

    def lines(self) -> list[str]:
        """Return the card as lines for the terminal, without its warnings."""
        return [line for group in self.groups() for line in group]

    def groups(self) -> list[list[str]]:
        """Return the lines in groups that belong together: files, each split, rows left out."""
        out = [_files(self.files)]
        for split, summary in self.splits.items():
            out.append([f"{split}: {self._summary(summary)}", *(f"  {sample}" for sample in summary.samples)])
        omitted = [*self.excluded, *(f"skipped {row}" for row in self.skipped[:5])]
        if self.n_skipped > 5:
            omitted.append(f"skipped {self.n_skipped - 5} further rows, listed in the record")
        return [group for group in [*out, omitted] if group]

    def _summary(self, summary: SplitSummary) -> str:
        parts = [f"{summary.examples:,} examples"]
        if summary.classes:
            top = list(summary.classes.items())
            shown = ", ".join(f"{name} {n:,}" for name, n in top[:_SHOWN_CLASSES])
            more = ", ..." if len(top) > _SHOWN_CLASSES else ""
            parts.append(f"{summary.n_classes} {self.counted} ({shown}{more})")
        if summary.lengths:
            low, *quartiles, high = summary.lengths
            middle = ", ".join(map(str, quartiles))
            parts.append(f"{low} to {high} {self.unit} (quartiles {middle})")
        return "; ".join([*parts, *summary.details])


def make_card(
    log: ReadLog,
    splits: Mapping[str, Sequence[CardExample]],
    *,
    counted: str = "classes",
    unit: str = "characters",
    details: Mapping[str, Sequence[str]] | None = None,
) -> DataCard:
    """Make the card of a data set, and report texts that splits share as warnings.

    Args:
        log: of the readers; receives notes and warnings about the comparison of the splits.
        splits: all examples by split, in the order train, dev, test, before a limit is applied.
        counted: what the labels are (``classes``, ``entities``, ``labels``); empty = they are no classes.
        unit: of :attr:`CardExample.length`.
        details: :attr:`SplitSummary.details` of each split.
    """
    overlap = _overlap(splits)
    for text in overlap.warnings():
        log.warn(text)
    for text in overlap.notes():
        log.note(text)
    return DataCard(
        files={source: dict(facts) for source, facts in log.facts.items()},
        splits={
            split: _summarise(examples, counted, (details or {}).get(split, ()))
            for split, examples in splits.items()
        },
        unit=unit,
        counted=counted,
        excluded=[f"{source}: {n:,} rows left out: {reason}" for (source, reason), n in log.excluded.items()],
        skipped=[f"{row.where}: {row.reason}" for row in log.skipped[:_MAX_SKIPPED]],
        n_skipped=len(log.skipped),
        warnings=list(log.warnings),
    )


def _overlap(splits: Mapping[str, Sequence[CardExample]]) -> Overlap:
    def keys(examples: Sequence[CardExample]) -> Iterator[tuple[str, tuple[str, ...]]]:
        for e in examples:
            yield text_key(*e.texts), e.labels if e.gold is None else e.gold

    return compare({split: list(keys(examples)) for split, examples in splits.items()})


def _summarise(examples: Sequence[CardExample], counted: str, details: Sequence[str]) -> SplitSummary:
    classes = Counter(itertools.chain.from_iterable(e.labels for e in examples if counted))
    lengths = [sum(map(len, e.texts)) if e.length is None else e.length for e in examples]
    return SplitSummary(
        examples=len(examples),
        n_classes=len(classes),
        classes=dict(classes.most_common(_MAX_CLASSES)),
        lengths=quartiles(lengths) if lengths else (),
        samples=tuple(_sample(e) for e in examples[:SAMPLES]),
        details=tuple(details),
    )


def quartiles(values: Sequence[int]) -> tuple[int, ...]:
    """Return minimum, quartiles and maximum, each one of the values (nearest rank).

    Example: 1 2 3 4 5 6 7 8 give (1, 2, 4, 6, 8).
    """
    ordered = sorted(values)
    n = len(ordered)
    return ordered[0], *(ordered[max(0, -(-n * k // 4) - 1)] for k in (1, 2, 3)), ordered[-1]


def _sample(example: CardExample) -> str:
    texts = " | ".join(_short(text) for text in example.texts)
    labels = ", ".join(dict.fromkeys(example.labels))
    return f"{texts} -> {_short(labels)}" if labels else texts


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SAMPLE_LENGTH else f"{line[: _SAMPLE_LENGTH - 3]}..."


def _files(files: Mapping[str, Mapping[str, Fact]]) -> list[str]:
    """One line per way of reading; files of one folder that were read alike share it."""
    groups: dict[tuple[str, str], list[str]] = {}
    for source, facts in files.items():
        folder, slash, name = source.rpartition("/")
        groups.setdefault((folder + slash, _facts(facts)), []).append(name)
    return [f"{folder}{_braced(names)}: {facts}" for (folder, facts), names in groups.items()]


def _braced(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{{{','.join(names)}}}"


def _facts(facts: Mapping[str, Fact]) -> str:
    """The facts by origin. Example: ``given text=review; recognised format=csv, encoding=utf-8``."""
    origins: tuple[Origin, ...] = ("given", "recognised")
    shown = {o: [f"{name}={f.value}" for name, f in facts.items() if f.origin == o] for o in origins}
    return "; ".join(f"{origin} {', '.join(values)}" for origin, values in shown.items() if values)
