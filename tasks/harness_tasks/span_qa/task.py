"""The span question answering task: a question, a context, and the part of the context that answers it.

Importing this module does not import torch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Unpack

import numpy as np

from harness.data.reading.source import DataOptions
from harness.data.statistics import ExampleStats
from harness.data.targets import IGNORE_INDEX
from harness.data.text import Example
from harness.errors import HarnessError, did_you_mean
from harness.task import HeadInput, Prediction, Splits
from harness_tasks.span_qa.averaging import average_spans
from harness_tasks.span_qa.data import QuestionOptions, make_source, read_splits
from harness_tasks.span_qa.fields import check_names
from harness_tasks.span_qa.scoring import (
    FROM_STATS,
    UNITS,
    apply_threshold,
    best_threshold,
    example_stats,
    per_question,
)
from harness_tasks.span_qa.targets import NULL, is_joint, token_spans

if TYPE_CHECKING:
    from torchmetrics import MetricCollection

    from harness.data.tokens import TokenizedWindow
    from harness_tasks.span_qa.head import SpanHead

METRICS = ("f1", "exact_match")
AUTO = "auto"
NULL_THRESHOLD = "null_threshold"


class SpanQA:
    """SQuAD v1.1, v2.0 and data sets in their format; see :class:`harness.task.Task`.

    Args:
        name: name of the data set, used in the results path.
        kind: kind of task.
        metric: ``f1`` or ``exact_match``.
        f1_unit: ``word`` (SQuAD), ``char`` (KorQuAD); None = words, but refused for answers in Korean and
            other scripts for which F1 over words is not the published definition.
        max_answer_tokens: maximum length of a predicted answer, in tokens of the encoder.
        null_threshold: in data with unanswerable questions, "" is predicted when the null score exceeds the
            best span's by more than this. ``auto`` = the value with the highest metric on dev, see
            :func:`.best_threshold`.
        max_first: maximum number of question tokens in a joint row (64 in the published BERT code).
        contexts: file of the contexts by id, for rows that have a ``context_id`` instead of a context.
        fields: names of the fields where they differ from the usual ones, such as ``{id: number}``.
        data: files, hub data set and splitting, see :class:`.DataOptions`. ``path`` may be
            one file from which every split is cut; ``test_fraction`` is 0.2 by default.

    Raises:
        HarnessError: a value outside its range.
    """

    maximize = True
    metric_from_stats = "harness_tasks.span_qa.scoring.FROM_STATS"
    averaging = "the mean of the members' probabilities of spans, softmax over those that each kept"
    n_texts = 2
    truncate = False

    def __init__(
        self,
        name: str,
        *,
        kind: str = "span_qa",
        metric: str = "f1",
        f1_unit: str | None = None,
        max_answer_tokens: int = 30,
        null_threshold: float | str = AUTO,
        max_first: int | None = 64,
        contexts: str | None = None,
        fields: Mapping[str, str | None] | None = None,
        **data: Unpack[DataOptions],
    ) -> None:
        for key, value, valid in (("metric", metric, METRICS), ("f1_unit", f1_unit or "word", UNITS)):
            if value not in valid:
                raise HarnessError(f"task.{key}={value}: {did_you_mean(value, valid)}")
        if max_answer_tokens < 1:
            raise HarnessError(f"task.max_answer_tokens={max_answer_tokens}: must be at least 1")
        self.fits = null_threshold == AUTO
        if not self.fits and (
            not isinstance(null_threshold, int | float) or not math.isfinite(null_threshold)
        ):
            raise HarnessError(
                f"task.null_threshold={null_threshold}: must be auto (chosen on dev) or a finite number"
            )
        self.name, self.kind, self.metric = name, kind, metric
        self.f1_unit, self.max_first = f1_unit or "word", max_first
        self.max_answer_tokens = max_answer_tokens
        self.null_threshold = 0.0 if isinstance(null_threshold, str) else float(null_threshold)
        self.source = make_source(data)
        check_names(fields or {})
        self.options = QuestionOptions(
            contexts, {name: key for name, key in (fields or {}).items() if key}, f1_unit, max_answer_tokens
        )
        self._unanswerable: bool | None = None
        self._dev_has_both = False

    @property
    def unanswerable(self) -> bool:
        """Whether the data hold questions without an answer (SQuAD v2.0's rules then apply)."""
        if self._unanswerable is None:
            raise RuntimeError("splits() must be called first")
        return self._unanswerable

    def splits(self, *, limit: int | None = None) -> Splits:
        """Read the data, at most ``limit`` questions a split."""
        data = read_splits(self.source, self.options, max_questions=limit)
        self._unanswerable, self.f1_unit = data.unanswerable, data.f1_unit
        self._dev_has_both = len({bool(e.gold["answers"]) for e in data.splits.dev}) == 2
        if self._unanswerable and self.fits and not self._dev_has_both:
            data.splits.warnings.append(
                "task.null_threshold=auto: 0.0 is used, because dev does not contain both questions with and "
                "without an answer to choose it on"
            )
        return data.splits

    def needs_fit(self) -> bool:
        """See :class:`harness.task.FitsOnDev`."""
        return self.fits and bool(self._unanswerable) and self._dev_has_both

    def fit_on_dev(
        self, predictions: Mapping[str, Prediction], examples: Sequence[Example]
    ) -> dict[str, float]:
        """``null_threshold`` with the highest primary metric."""
        self._values(predictions, examples)  # checks that all are there
        extras = [predictions[e.id].extra or {} for e in examples]
        tops = {
            e.id: next((s["text"] for s in x.get("nbest", ())), "")
            for e, x in zip(examples, extras, strict=True)
        }
        scores = [
            [values[self.metric] for values in self._per_question(texts, examples).values()]
            for texts in (tops, dict.fromkeys(tops, ""))
        ]
        return {NULL_THRESHOLD: best_threshold([x.get("null_margin") for x in extras], *scores)}

    def apply_fitted(
        self, predictions: Mapping[str, Prediction], fitted: Mapping[str, float]
    ) -> dict[str, Prediction]:
        """The predictions under a threshold; see :func:`.apply_threshold`."""
        if NULL_THRESHOLD not in fitted:
            return dict(predictions)
        return {key: apply_threshold(p, fitted[NULL_THRESHOLD]) for key, p in predictions.items()}

    def row_targets(self, example: Example, rows: Sequence[TokenizedWindow]) -> list[dict[str, np.ndarray]]:
        """``start`` and ``end`` of each window: tokens of the first answer, the smallest span that covers it.

        A window without the whole answer gets the null position where there is one (a joint row's first
        special token; the learned null of data with unanswerable questions), else it is ignored. So are all
        windows of an answer which the tokenizer dropped: to call them unanswerable would teach a falsehood.
        """
        if example.gold is None:  # an unlabelled test split
            return [_target(IGNORE_INDEX, IGNORE_INDEX) for _ in rows]
        answers = example.gold["answers"]
        if not answers:
            return [_target(NULL, NULL) for _ in rows]
        spans = token_spans(rows, answers[0]["start"], answers[0]["end"])
        if not any(spans):
            return [_target(IGNORE_INDEX, IGNORE_INDEX) for _ in rows]
        return [
            _target(*span) if span else self._without_answer(row)
            for row, span in zip(rows, spans, strict=True)
        ]

    def head(self, spec: HeadInput) -> SpanHead:
        from harness_tasks.span_qa.head import SpanHead

        return SpanHead(
            spec,
            unanswerable=self.unanswerable,
            max_answer_tokens=self.max_answer_tokens,
            null_threshold=self.null_threshold,
        )

    def average(
        self, members: Sequence[Mapping[str, Prediction]], examples: Sequence[Example]
    ) -> dict[str, Prediction]:
        """See :mod:`harness_tasks.span_qa.averaging` and :class:`harness.task.Averages`."""
        return {
            e.id: average_spans(
                [member[e.id] for member in members],
                e.id,
                context=e.texts[-1].text,
                unanswerable=self.unanswerable,
                null_threshold=self.null_threshold,
            )
            for e in examples
        }

    def per_example(
        self, predictions: Mapping[str, Prediction], examples: Sequence[Example]
    ) -> dict[str, dict[str, float]]:
        """``exact_match`` and ``f1`` of each example by id: what a paired test or a bootstrap resamples.

        Raises:
            HarnessError: an example has no prediction.
        """
        return self._per_question(self._values(predictions, examples), examples)

    def _per_question(
        self, texts: Mapping[str, str], examples: Sequence[Example]
    ) -> dict[str, dict[str, float]]:
        values = per_question(texts, _golds(examples), unit=self.f1_unit, unanswerable=self.unanswerable)
        return {key: {"exact_match": exact, "f1": f1} for key, (exact, f1) in values.items()}

    def score(self, predictions: Mapping[str, Prediction], examples: Sequence[Example]) -> dict[str, float]:
        """``exact_match`` and ``f1`` in [0, 1] (the published scripts print them times 100); with
        unanswerable questions also ``HasAns_*`` and ``NoAns_*``.

        Raises:
            HarnessError: an example has no prediction.
        """
        return FROM_STATS.compute(self.example_stats(predictions, examples))

    def example_stats(
        self, predictions: Mapping[str, Prediction], examples: Sequence[Example]
    ) -> ExampleStats:
        """See :func:`harness_tasks.span_qa.scoring.example_stats`."""
        values = self.per_example(predictions, examples)
        return example_stats(
            [(values[e.id]["exact_match"], values[e.id]["f1"]) for e in examples],
            answered=[bool(e.gold["answers"]) for e in examples],
            empty=[not str(predictions[e.id].value).strip() for e in examples],
            unanswerable=self.unanswerable,
        )

    def live_metrics(self, examples: Sequence[Example]) -> MetricCollection:
        """See :class:`harness.task.HasLiveMetrics`."""
        from harness_tasks.live_metrics import StatsMetric, collection

        def to_stats(predictions: Sequence[Prediction], examples: Sequence[Example]) -> ExampleStats:
            return self.example_stats({e.id: p for e, p in zip(examples, predictions, strict=True)}, examples)

        names = self.example_stats({e.id: Prediction("") for e in examples}, examples).names
        return collection(answers=StatsMetric(FROM_STATS, names, to_stats))

    def _without_answer(self, row: TokenizedWindow) -> dict[str, np.ndarray]:
        target = NULL if self.unanswerable or is_joint(row) else IGNORE_INDEX
        return _target(target, target)

    def _values(self, predictions: Mapping[str, Prediction], examples: Sequence[Example]) -> dict[str, str]:
        missing = [e.id for e in examples if e.id not in predictions]
        if missing:
            raise HarnessError(
                f"{self.name}: {len(missing)} of {len(examples)} questions have no prediction, the first is "
                f"{missing[0]!r}; every question needs one (the empty text says that there is no answer)"
            )
        return {e.id: str(predictions[e.id].value) for e in examples}


def _golds(examples: Sequence[Example]) -> dict[str, list[str]]:
    return {e.id: [a["text"] for a in e.gold["answers"]] for e in examples}


def _target(start: int, end: int) -> dict[str, np.ndarray]:
    return {"start": np.asarray(start, dtype=np.int64), "end": np.asarray(end, dtype=np.int64)}
