"""The tagging task: one label a word, scored as entities or, for labels without prefixes, word by word."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from harness.data.reading.card import CardExample, make_card
from harness.data.reading.locate import by_role
from harness.data.reading.log import ReadLog
from harness.data.reading.source import DataOptions, DataSource
from harness.data.splits import limit as take
from harness.data.statistics import ExampleStats
from harness.data.targets import IGNORE_INDEX
from harness.data.text import Example, Text
from harness.errors import HarnessError, did_you_mean
from harness.task import HeadInput, Prediction, Splits
from harness_tasks.tagging.averaging import average_labels
from harness_tasks.tagging.characters import Characters
from harness_tasks.tagging.columns import Sentence
from harness_tasks.tagging.forms import ColumnLayout
from harness_tasks.tagging.schemes import OUTSIDE, entities, to_iob2
from harness_tasks.tagging.scoring import FROM_STATS, example_stats, score_spans, score_tokens
from harness_tasks.tagging.sources import HUB_COLUMNS, TaggedSentenceReader, text_and_labels
from harness_tasks.tagging.spelling import LabelOptions, recognise_labels

if TYPE_CHECKING:
    import numpy as np
    from torchmetrics import MetricCollection

    from harness.data.tokens import TokenizedWindow
    from harness_tasks.tagging.head import TaggingHead

SHORT, LONG = 10, 40
"""Sentences of at most SHORT words carry the tag ``length:short``, those beyond LONG ``length:long``."""
SPAN_METRIC, TOKEN_METRIC = "span_f1", "token_accuracy"
CHARACTER_METRIC = "character_macro_f1"
METRICS = (
    SPAN_METRIC,
    "strict_span_f1",
    "span_precision",
    "span_recall",
    "surface_f1",
    TOKEN_METRIC,
    CHARACTER_METRIC,
)
POOLINGS = ("first", "mean")


def files(config: Mapping[str, object], cache_dir: Path) -> dict[str, Path]:
    """Local files of the splits by role; empty for a hub data set.

    Raises:
        HarnessError: a file is missing, or there is no data at all.
    """
    return by_role(DataSource.from_config(config, hub_columns=HUB_COLUMNS).locate())


class Tagging:
    """One label per word; see :class:`harness.task.Task`.

    Gold values and predictions are lists of labels, one per word, in IOB2 for any scheme of the data (plain
    labels are unchanged). The model can predict the labels of train. Labels that are absent from train stay
    in the gold of dev and test, count as missed, and are reported.

    Args:
        name: name of the data set, used in the results path.
        kind: kind of task.
        metric: primary metric, a key of :meth:`score`; None = ``span_f1``, or ``token_accuracy`` for plain
            labels.
        words_column, labels_column, label_names, sentence_column: of tables, see
            :class:`~harness_tasks.tagging.sources.TaggedSentenceReader`.
        token_column, label_column, separator, comment, conllu: of column files, see
            :class:`~harness_tasks.tagging.forms.ColumnLayout`.
        scheme: ``auto`` or one of :data:`harness_tasks.tagging.schemes.SCHEMES`.
        label_style: spelling of entity labels, one of :data:`harness_tasks.tagging.spelling.STYLES` or
            ``brackets``; None = recognised.
        outside_label: label (or labels) that stands for ``O``.
        word_pooling: how the tokens of a word become its state, ``first`` or ``mean``.
        characters: None = the data label words; ``each`` or ``words`` where they label characters, see
            :mod:`harness_tasks.tagging.characters`. Gold and predictions are then labels of characters.
        data: files, hub data set, splitting and encoding, see :class:`.DataOptions`.
            ``hub`` may set ``words``, ``labels`` (columns) and ``label_names``.

    Raises:
        HarnessError: a value outside its range.
    """

    n_texts = 1
    truncate = False
    maximize = True
    metric_from_stats = "harness_tasks.tagging.scoring.FROM_STATS"
    averaging = "the mean of the members' label probabilities, word by word"
    max_first: int | None = None

    def __init__(
        self,
        *,
        name: str,
        kind: str = "ner",
        metric: str | None = None,
        words_column: str | None = None,
        labels_column: str | None = None,
        label_names: Sequence[str] | None = None,
        sentence_column: str | None = None,
        token_column: int | None = None,
        label_column: int | str | None = None,
        separator: str = "auto",
        comment: str | None = None,
        conllu: bool | None = None,
        scheme: str = "auto",
        label_style: str | None = None,
        outside_label: str | int | Sequence[str | int] | None = None,
        word_pooling: str = "first",
        characters: str | None = None,
        **data: Unpack[DataOptions],
    ) -> None:
        if word_pooling not in POOLINGS:
            raise HarnessError(f"task.word_pooling={word_pooling}: is one of {', '.join(POOLINGS)}")
        if metric and metric not in METRICS and not metric.startswith("f1/"):
            raise HarnessError(f"task.metric={metric}: {did_you_mean(metric, (*METRICS, 'f1/TYPE'))}")
        if metric == CHARACTER_METRIC and characters is None:
            raise HarnessError(
                f"task.metric={metric}: needs data that label characters, task.characters=words"
            )
        self.name, self.kind = name, kind
        self.scheme = scheme
        self.word_pooling = word_pooling
        outside = [outside_label] if isinstance(outside_label, str | int) else outside_label or []
        self._spelling = LabelOptions(scheme, label_style, tuple(map(str, outside)))
        self._characters = None if characters is None else Characters(characters)
        self.metric = metric or (TOKEN_METRIC if scheme == "none" else SPAN_METRIC)
        self.labels: list[str] = []
        self._fallback = OUTSIDE
        self._source = DataSource.of(data, hub_columns=HUB_COLUMNS)
        self._reader = TaggedSentenceReader(
            self._source,
            layout=ColumnLayout(token_column, label_column, separator, comment, conllu),
            words=words_column,
            labels=labels_column,
            label_names=label_names,
            sentence=sentence_column,
        )

    def splits(self, *, limit: int | None = None) -> Splits:
        """Read all data, recognise the scheme over all of it, fit the labels on train as far as it is
        used; a limit then takes a seeded sample a split.

        Raises:
            HarnessError: names the file, line and value that cannot be read.
        """
        log = self._source.log()
        sentences, found = recognise_labels(self._reader.read(log), self._spelling, log)
        self.scheme = found.scheme
        self._choose_metric(log)
        # an id says where a sentence stood in its source, and stays when it is cut out
        named = {role: [(f"{role}-{i}", s) for i, s in enumerate(part)] for role, part in sentences.items()}
        read = self._source.complete(named, log, keys=text_and_labels)
        parts = {role: [self._example(*pair) for pair in part] for role, part in read.items()}
        self._count_loss(parts, log)
        self._fit(parts["train"])
        self._report_absent(parts, log)
        card = make_card(
            log,
            {role: [self._card_example(e) for e in part] for role, part in parts.items()},
            counted="labels" if self.scheme == "none" else "entity types",
            unit="words" if self._characters is None else "characters",
        )
        train, dev, test = (take(parts[role], limit) for role in ("train", "dev", "test"))
        seen = {form for e in train for form in self._forms(e)}
        dev, test = ([self._tagged(e, seen) for e in part] for part in (dev, test))
        return Splits(train, dev, test, notes=log.notes, report=log.counts, warnings=log.warnings, card=card)

    def row_targets(self, example: Example, rows: Sequence[TokenizedWindow]) -> list[dict[str, np.ndarray]]:
        """``labels`` (W,) of each window: the number of the word's label, -100 for words that the window does
        not own and for labels absent from train."""
        import numpy as np

        number = {label: i for i, label in enumerate(self.labels)}
        gold = np.array([number.get(label, IGNORE_INDEX) for label in self._targets(example)], dtype=np.int64)
        return [{"labels": np.where(row.word_to_token >= 0, gold, IGNORE_INDEX)} for row in rows]

    def head(self, spec: HeadInput) -> TaggingHead:
        """A fresh :class:`harness_tasks.tagging.head.TaggingHead` over the labels of train."""
        from harness_tasks.tagging.head import TaggingHead

        return TaggingHead(
            spec,
            labels=self.labels,
            fallback=self._fallback,
            word_pooling=self.word_pooling,
            finish=self._finish,
        )

    def average(
        self, members: Sequence[Mapping[str, Prediction]], examples: Sequence[Example]
    ) -> dict[str, Prediction]:
        """See :func:`harness_tasks.tagging.averaging.average_labels` and :class:`harness.task.Averages`."""
        out = {}
        for e in examples:
            theirs = [member[e.id] for member in members]
            joined = average_labels(theirs, e.id, labels=self.labels, fallback=self._fallback)
            out[e.id] = Prediction(self._finish(e, joined.value), joined.scores, joined.extra)
        return out

    def score(self, predictions: Mapping[str, Prediction], examples: Sequence[Example]) -> dict[str, float]:
        """See :func:`harness_tasks.tagging.scoring.score_spans`; only ``token_accuracy`` for plain labels.

        Raises:
            HarnessError: an example has no prediction, or one that does not fit its words.
        """
        gold, predicted = self._label_pairs(predictions, examples)
        if self.scheme == "none":
            return score_tokens(gold, predicted)
        words, characters = [self._surface(e) for e in examples], self._characters is not None
        scores = score_spans(gold, predicted, words=words, characters=characters)
        return {self.metric: 0.0, **scores}  # a type that neither side holds has an F1 of 0

    def example_stats(
        self, predictions: Mapping[str, Prediction], examples: Sequence[Example]
    ) -> ExampleStats:
        """See :func:`harness_tasks.tagging.scoring.example_stats`."""
        gold, predicted = self._label_pairs(predictions, examples)
        spans, characters = self.scheme != "none", self._characters is not None
        return example_stats(gold, predicted, spans=spans, characters=characters)

    def live_metrics(self, examples: Sequence[Example]) -> MetricCollection:
        """See :class:`harness.task.HasLiveMetrics`; all metrics but ``surface_f1``."""
        from harness_tasks.live_metrics import StatsMetric, collection

        def to_stats(predictions: Sequence[Prediction], examples: Sequence[Example]) -> ExampleStats:
            return self.example_stats({e.id: p for e, p in zip(examples, predictions, strict=True)}, examples)

        spans, characters = self.scheme != "none", self._characters is not None
        labels = {label for e in examples for label in e.gold} | set(self.labels)
        if characters:  # B-PS+1 of a word becomes B-PS and I-PS of its characters
            words = [label.partition("+")[0] for label in self.labels if label != OUTSIDE]
            labels |= {f"{prefix}{label[1:]}" for label in words for prefix in "BI"}
        one_each = [[label] for label in sorted(labels)]
        names = example_stats(one_each, one_each, spans=spans, characters=characters).names
        return collection(tags=StatsMetric(FROM_STATS, names, to_stats))

    def _label_pairs(
        self, predictions: Mapping[str, Prediction], examples: Sequence[Example]
    ) -> tuple[list[list[str]], list[list[str]]]:
        """Gold and predicted labels of each example, equally many; see :meth:`score`."""
        missing = [e.id for e in examples if e.id not in predictions]
        if missing:
            raise HarnessError(
                f"task {self.name}: {len(missing)} of {len(examples)} examples have no prediction, first "
                f"{missing[0]!r}"
            )
        gold = [list(e.gold) for e in examples]
        predicted = [list(predictions[e.id].value) for e in examples]
        for example, p in zip(examples, predicted, strict=True):
            if len(p) != len(example.gold):
                what = "words" if self._characters is None else "characters"
                n = len(example.gold)
                raise HarnessError(
                    f"task {self.name}: example {example.id!r} has {n} {what}, its prediction {len(p)}"
                )
        return gold, predicted

    def _choose_metric(self, log: ReadLog) -> None:
        if self.scheme != "none":
            log.note("span_f1 counts entities by conlleval's rule over IOB2, strict_span_f1 by strict IOB2")
        elif self.metric != TOKEN_METRIC:
            log.note(f"plain labels: {TOKEN_METRIC} takes the place of {self.metric}")
            self.metric = TOKEN_METRIC

    def _example(self, name: str, sentence: Sentence) -> Example:
        if self._characters is None:
            labels = to_iob2(sentence.labels, self.scheme)
            return Example(name, (Text.from_words(sentence.words),), labels, sentence.tags)
        kept = [label for c, label in zip(sentence.words, sentence.labels, strict=True) if not c.isspace()]
        text = self._characters.text(sentence.words)
        return Example(name, (text,), to_iob2(kept, self.scheme), sentence.tags)

    def _card_example(self, example: Example) -> CardExample:
        labels = example.gold if self.scheme == "none" else [kind for kind, _, _ in entities(example.gold)]
        words = self._surface(example)
        return CardExample((" ".join(words),), tuple(labels), len(words), tuple(example.gold))

    def _targets(self, example: Example) -> list[str]:
        """One label a word, from which the model learns."""
        if self._characters is None:
            return list(example.gold)
        return self._characters.to_tokens(example.texts[-1], example.gold)

    def _finish(self, example: Example, labels: list[str]) -> list[str]:
        """From one label a word to what is scored."""
        return (
            labels if self._characters is None else self._characters.to_characters(example.texts[-1], labels)
        )

    def _surface(self, example: Example) -> list[str]:
        """What the labels of the gold stand for: words, or characters."""
        if self._characters is None:
            return example.texts[-1].words
        return [c for c in example.texts[-1].text if not c.isspace()]

    def _count_loss(self, parts: Mapping[str, Sequence[Example]], log: ReadLog) -> None:
        if self._characters is None:
            return
        self._characters.loss.clear()
        for role, part in parts.items():
            for example in part:
                self._characters.count(role, example.texts[-1], example.gold)
        log.note(self._characters.note())
        log.counts |= self._characters.report()

    def _fit(self, train: Sequence[Example]) -> None:
        counts = Counter(label for e in train for label in self._targets(e))
        self.labels = sorted(counts, key=lambda label: (label != OUTSIDE or self.scheme == "none", label))
        self._fallback = OUTSIDE if self.scheme != "none" else min(counts, key=lambda x: (-counts[x], x))

    def _report_absent(self, parts: Mapping[str, Sequence[Example]], log: ReadLog) -> None:
        absent = set()
        for role in ("dev", "test"):
            counts = Counter(x for e in parts[role] for x in self._targets(e) if x not in self.labels)
            for label, n in sorted(counts.items()):
                token = "entity" if label.startswith("B-") and self.scheme != "none" else "word"
                plural = {"entity": "entities", "word": "words"}[token] if n > 1 else token
                log.note(f"{label} is absent from train ({n} {plural} in {role}): counted as missed")
            absent |= set(counts)
        log.add("labels_absent_from_train", len(absent))

    def _forms(self, example: Example) -> set[tuple[str, ...]]:
        """Surface forms of an example's entities."""
        if self.scheme == "none":
            return set()
        words = self._surface(example)
        return {tuple(words[a:b]) for _, a, b in entities(example.gold)}

    def _tagged(self, example: Example, seen: set[tuple[str, ...]]) -> Example:
        n = len(example.texts[-1])
        tags = ["length:short" if n <= SHORT else "length:long" if n > LONG else "length:medium"]
        if self.scheme != "none":
            forms = self._forms(example)
            tags.append("no-entity" if not forms else "seen-entity" if forms <= seen else "unseen-entity")
        return Example(example.id, example.texts, example.gold, (*tags, *example.tags))
