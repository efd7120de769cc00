"""Text classification: one class for each text, or for each pair of texts. Imports no torch until a head is
asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import numpy as np

from harness.data.reading.card import make_card
from harness.data.reading.locate import by_role
from harness.data.reading.log import ReadLog
from harness.data.reading.source import DataOptions, DataSource
from harness.data.splits import limit as take
from harness.data.statistics import ExampleStats
from harness.data.targets import IGNORE_INDEX
from harness.data.text import Example
from harness.errors import HarnessError, did_you_mean
from harness.task import Head, HeadInput, Prediction, Splits
from harness_tasks.classification import scoring
from harness_tasks.classification.averaging import average_classes
from harness_tasks.classification.checks import check_classes, check_shared_classes
from harness_tasks.classification.columns import Columns, Names, target_columns
from harness_tasks.classification.labels import Labels
from harness_tasks.classification.reader import (
    HUB_COLUMNS,
    LabelledRow,
    RowReader,
    Rows,
    unlabelled_labels,
    without_unlabelled,
)

if TYPE_CHECKING:
    from torchmetrics import MetricCollection

    from harness.data.tokens import TokenizedWindow


def files(config: Mapping[str, object], cache_dir: Path) -> dict[str, Path]:
    """Local files of the splits by role; empty for a hub data set.

    Raises:
        HarnessError: a file is missing, or there is no data at all.
    """
    return by_role(DataSource.from_config(config, hub_columns=HUB_COLUMNS).locate())


class TextClassification:
    """One class per text or pair of texts; see :class:`harness.task.Task`.

    Args:
        name: name of the data set, used in the results path.
        kind: kind of task.
        text, text_b, label, id: columns. Null = guessed (text, label), a single text (text_b), numbered (id).
        tags: column of slices, separated by blanks or a list; null = none.
        target: columns with the index of the target word in each text, counted from 0 as the common word
            splitter counts; the head then reads the states of these words instead of a summary of the texts.
        label_names: class name of each raw label.
        label_level: ``coarse`` reads ``HUM:ind`` as ``HUM``.
        group: column; rows with equal values stay on the same side of a cut.
        unlabelled: raw labels that mean "no label", besides empty and missing ones; an empty list = no
            others. Null = a label that may mean it, such as ``-``, is refused.
        labels: the classes; null = those of train. A class that is absent from train can then be predicted.
        metric: accuracy, macro_f1, mcc, or f1 of the class ``positive``.
        class_weights: ``balanced`` weights class k by n / (K n_k) in the loss; null = no weights.
        allow_empty: keep rows whose text is empty.
        data: files, hub data set, splitting and reading, see :class:`.DataOptions`.
            ``hub`` may name the columns ``text`` and ``label`` (a mapping from label level to column).

    Raises:
        HarnessError: a value outside its range.
    """

    maximize = True
    truncate = True
    averaging = "the mean of the members' class probabilities"
    metric_from_stats = "harness_tasks.classification.scoring.FROM_STATS"
    max_first: int | None = None

    def __init__(
        self,
        *,
        name: str = "text_classification",
        kind: str = "text_classification",
        text: Names = None,
        text_b: Names = None,
        label: Names = None,
        id: str | None = None,
        tags: Names = None,
        target: Names = None,
        group: Names = None,
        label_names: Mapping[object, object] | Sequence[object] | None = None,
        label_level: str | None = None,
        labels: Sequence[object] | None = None,
        unlabelled: object = None,
        metric: str = "accuracy",
        positive: object = None,
        class_weights: str | None = None,
        allow_empty: bool = False,
        **data: Unpack[DataOptions],
    ) -> None:
        scoring.check_metric(metric)
        if metric == "f1" and positive is None:
            raise HarnessError("task.metric=f1 needs task.positive=LABEL: the class it is the F1 of")
        if class_weights not in (None, "balanced"):
            raise HarnessError(
                f"task.class_weights={class_weights}: {did_you_mean(class_weights, ['balanced'])}"
            )
        self.name, self.kind, self.metric = name, kind, metric
        self.n_texts = 2 if text_b else 1
        self.positive = None if positive is None else str(positive)
        self.class_weights = class_weights
        self.labels: list[str] = []
        self.weights: list[float] | None = None
        declared = None if labels is None else tuple(str(c) for c in labels)
        if declared and (twice := [c for c, n in Counter(declared).items() if n > 1]):
            raise HarnessError(f"task.labels lists {twice[0]!r} twice")
        self._source = DataSource.of(data, hub_columns=HUB_COLUMNS)
        columns = Columns(text, text_b, label, id, tags, group, target_columns(target, texts=self.n_texts))
        self._columns = columns
        missing = unlabelled_labels(unlabelled)
        open_labels = None if unlabelled is None else missing
        self._labels = Labels(_names(label_names), label_level, declared, open_labels)
        self._reader = RowReader(self._source, columns, allow_empty, label_level, missing, kind)

    def splits(self, *, limit: int | None = None) -> Splits:
        """Read all data and fit the classes on train as far as it is used; a limit then takes a seeded sample
        a split."""
        log = self._source.log()
        read = without_unlabelled(self._labels.classes(self._reader.rows(log), log), log)
        declared = self._declared(read)
        guessed = self._columns.label is None and self._source.hub is None
        check_classes(read, log, declared=declared is not None, guessed=guessed)
        check_shared_classes(read, declared)
        rows = self._source.complete(
            read,
            log,
            stratify=lambda row: row.label,
            keys=LabelledRow.key,
            group=(lambda row: row.group) if self._columns.group else None,
        )
        report = self._fit(rows, log, declared)
        card = make_card(log, {role: [row.card_example() for row in part] for role, part in rows.items()})
        train, dev, test = ([r.example() for r in take(rows[s], limit)] for s in ("train", "dev", "test"))
        return Splits(
            train, dev, test, notes=log.notes, report=report | log.counts, warnings=log.warnings, card=card
        )

    def row_targets(self, example: Example, rows: Sequence[TokenizedWindow]) -> list[dict[str, np.ndarray]]:
        """``label``: 0-d, number of the class; -100 when train has no such class."""
        self._check_read()
        number = self.labels.index(example.gold) if example.gold in self.labels else IGNORE_INDEX
        return [{"label": np.array(number, dtype=np.int64)} for _ in rows]

    def head(self, spec: HeadInput) -> Head:
        from harness_tasks.classification.head import ClassificationHead

        self._check_read()
        return ClassificationHead(spec, self.labels, self.weights, target=bool(self._columns.target))

    def score(self, predictions: Mapping[str, Prediction], examples: Sequence[Example]) -> dict[str, float]:
        """See :func:`harness_tasks.classification.scoring.score`."""
        return scoring.score(predictions, examples, positive=self.positive)

    def average(
        self, members: Sequence[Mapping[str, Prediction]], examples: Sequence[Example]
    ) -> dict[str, Prediction]:
        """The class of the highest mean probability; ``scores`` are the logs of the means. See
        :class:`harness.task.Averages`."""
        self._check_read()
        return average_classes(members, examples, labels=self.labels)

    def example_stats(
        self, predictions: Mapping[str, Prediction], examples: Sequence[Example]
    ) -> ExampleStats:
        """See :func:`harness_tasks.classification.scoring.example_stats`."""
        scoring.check_complete(predictions, examples)
        gold, predicted = [e.gold for e in examples], [predictions[e.id].value for e in examples]
        return scoring.example_stats(gold, predicted, positive=self.positive)

    def live_metrics(self, examples: Sequence[Example]) -> MetricCollection:
        """See :class:`harness.task.HasLiveMetrics`."""
        from harness_tasks.classification.live_metrics import live_metrics

        self._check_read()
        absent = sorted({str(e.gold) for e in examples if e.gold is not None} - set(self.labels))
        return live_metrics([*self.labels, *absent], self.positive)

    def _declared(self, rows: Rows) -> list[str] | None:
        """``task.labels`` in the normal form of the labels."""
        if self._labels.declared is None:
            return None
        found = {str(r.label) for r in rows["train"]}
        return [self._labels.same_form(name, found) for name in self._labels.declared]

    def _fit(
        self, rows: Mapping[str, Sequence[LabelledRow]], log: ReadLog, declared: list[str] | None
    ) -> dict[str, float]:
        """Classes and weights from train; notes on classes that are not where they should be."""
        counts = Counter(str(r.label) for r in rows["train"])
        self.labels = declared or sorted(counts, key=_natural)
        unknown = [c for c in counts if c not in self.labels]
        if unknown:
            raise HarnessError(
                f"train holds label {unknown[0]!r}, which task.labels does not list; add it, or set "
                f"task.unlabelled={unknown[0]} if it means that there is no label"
            )
        if len(self.labels) < 2:
            raise HarnessError(f"train holds a single class, {self.labels[0]!r}: there is nothing to learn")
        if self.positive is not None:
            self.positive = self._labels.same_form(self.positive, self.labels)
            if self.positive not in self.labels:
                hint = did_you_mean(self.positive, self.labels)
                raise HarnessError(f"task.positive={self.positive}: {hint}")
        for name in self.labels:
            if not counts[name]:
                log.note(f"class {name!r} is listed in task.labels but has no example in train")
        self.weights = balanced(self.labels, counts) if self.class_weights else None
        absent = _absent(rows, self.labels, log)
        return {"classes": float(len(self.labels)), "labels_absent_from_train": float(absent)}

    def _check_read(self) -> None:
        if not self.labels:
            raise RuntimeError("splits() must be called first: it fits the classes")


def balanced(labels: Sequence[str], counts: Mapping[str, int]) -> list[float]:
    """Weight n / (K n_k) of each class, K the classes that occur; 1 for a class that does not."""
    present = [counts[c] for c in labels if counts.get(c)]
    n = sum(present)
    return [n / (len(present) * counts[c]) if counts.get(c) else 1.0 for c in labels]


def _names(given: Mapping[object, object] | Sequence[object] | None) -> dict[str, str] | None:
    """``task.label_names``; a list has the names of the classes 0, 1, ..."""
    if given is None:
        return None
    if not isinstance(given, Mapping):
        given = dict(enumerate([given] if isinstance(given, str) else given))
    return {str(k): str(v) for k, v in given.items()}


def _absent(rows: Mapping[str, Sequence[LabelledRow]], labels: Sequence[str], log: ReadLog) -> int:
    """Note every class that only dev or test has; it stays gold and no prediction can match it."""
    absent: set[str] = set()
    for role in ("dev", "test"):
        unseen = Counter(r.label for r in rows[role] if r.label is not None and r.label not in labels)
        absent |= set(unseen)
        for c, n in sorted(unseen.items()):
            log.warn(f"label {c!r} is absent from train ({n} in {role}): always counted as wrong")
    return len(absent)


def _natural(label: str) -> tuple[int, int, str]:
    """Numbers in their order, then names in theirs."""
    return (0, int(label), label) if label.isascii() and label.isdigit() else (1, 0, label)
