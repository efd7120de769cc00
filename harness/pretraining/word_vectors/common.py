"""Shared parts of the word vector pretrainers: sentences, vocabulary, checkpoints, output files.

Does not import torch.
"""

from __future__ import annotations

import functools
import gzip
import pickle
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeAlias, TypeVar

import numpy as np

from harness.core.fingerprint import data_fingerprint
from harness.core.validation import Check, number, optional, truth
from harness.data.text import split_words
from harness.errors import HarnessError, did_you_mean
from harness.pretraining.base import EvalResult, Run
from harness.pretraining.budget import TrainingProgress
from harness.pretraining.checkpoint_files import CheckpointFiles
from harness.pretraining.text.corpus import Document

FORMATS = ("text", "text.gz", "binary")
NAMES = {"text": "vectors.txt", "text.gz": "vectors.txt.gz", "binary": "vectors.bin"}
MAX_SENTENCE = 10_000
"""Words per sentence: gensim ignores the rest, and a corpus without blank lines is a single document."""
Sentence: TypeAlias = list[str]
_count = number(low=1, whole=True)


@dataclass(frozen=True, slots=True)
class SentenceReader:
    """How a corpus becomes sentences of words.

    Attributes:
        lower: lower-case all words.
        across_lines: a document is one sentence, so that windows extend across its lines.
        min_count: rarer words are removed before windows are formed, as in word2vec and GloVe.
        max_words: maximum size of the vocabulary, the most frequent words; None = unlimited.
    """

    lower: bool = False
    across_lines: bool = True
    min_count: int = 1
    max_words: int | None = None

    def sentences(self, documents: Iterable[Document]) -> list[Sentence]:
        """Split documents into sentences of words by the common word splitter, none empty."""
        sentences = []
        for document in documents:
            lines = [self.words(line) for line in document]
            parts = [[w for line in lines for w in line]] if self.across_lines else lines
            sentences += [
                part[at : at + MAX_SENTENCE] for part in parts for at in range(0, len(part), MAX_SENTENCE)
            ]
        return sentences

    def words(self, line: str) -> Sentence:
        words = [line[a:b] for a, b in split_words(line)]
        return [w.lower() for w in words] if self.lower else words

    def vocabulary(self, sentences: Iterable[Sentence], *, where: str = "corpus") -> dict[str, int]:
        """Count the words of the vocabulary, by descending count, then alphabetically.

        Raises:
            HarnessError: no word is left.
        """
        counts: Counter[str] = Counter()
        for sentence in sentences:
            counts.update(sentence)
        words = sorted((w for w, n in counts.items() if n >= self.min_count), key=lambda w: (-counts[w], w))
        if not words:
            raise HarnessError(
                f"{where}: none of its {len(counts)} words occurs {self.min_count} times; lower "
                "encoder.min_count"
            )
        return {w: counts[w] for w in words[: self.max_words]}


CHECKS: dict[str, Check[object]] = {
    **dict.fromkeys(("dim", "window", "negative", "batch", "min_count", "minn", "maxn", "buckets"), _count),
    **dict.fromkeys(("lr", "min_lr"), number(low=1e-9, high=10)),
    **dict.fromkeys(("x_max", "squares", "epochs"), number(low=1e-9)),
    **dict.fromkeys(("alpha", "sample"), number(low=0)),
    **dict.fromkeys(("lower", "across_lines", "unknown"), truth),
    "exponent": number(low=-10, high=10),
    "max_words": optional(_count),
    "digits": number(low=1, high=17, whole=True),
}
"""Checks of the options of word vectors, by name."""


def checked_options(init: Callable[..., None]) -> Callable[..., None]:
    """Decorate a constructor so that its keyword options are checked by :data:`CHECKS`."""

    @functools.wraps(init)
    def checked_init(self: object, **options: object) -> None:
        init(self, **{k: CHECKS[k](f"encoder.{k}", v) if k in CHECKS else v for k, v in options.items()})

    return checked_init


def check_format(form: str) -> None:
    """Raise HarnessError for an unknown format."""
    if form not in FORMATS:
        raise HarnessError(f"encoder.format={form}: {did_you_mean(form, FORMATS)}")


def write_vectors(
    folder: Path, words: Sequence[str], matrix: np.ndarray, *, form: str, digits: int, header: bool
) -> Path:
    """Write word vectors.

    Args:
        folder: gets ``vectors.txt``, ``vectors.txt.gz`` or ``vectors.bin``.
        words: of the rows.
        matrix: (words, dim) float32.
        form: ``text``, ``text.gz`` or ``binary`` (word2vec's).
        digits: significant digits of numbers in text; 4 correspond to half precision.
        header: write ``<words> <dim>`` first (word2vec's text format has this line, GloVe's does not).

    Raises:
        HarnessError: a number is not finite.
    """
    if not np.isfinite(matrix).all():
        raise HarnessError("diverged: the vectors are not finite; lower encoder.lr")
    path = folder / NAMES[form]
    if form == "binary":
        _write(path, _binary(words, matrix))
        return path
    lines = _lines(words, matrix, digits=digits, header=header)
    if form == "text":
        _write(path, lines)
        return path
    # without file name and time stamp, so that equal vectors give equal bytes
    with path.open("wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as compressed:
        compressed.writelines(lines)
    return path


def _write(path: Path, parts: Iterable[bytes]) -> None:
    with path.open("wb") as f:
        f.writelines(parts)


def _binary(words: Sequence[str], matrix: np.ndarray) -> Iterator[bytes]:
    yield f"{len(words)} {matrix.shape[1]}\n".encode()
    for word, row in zip(words, matrix, strict=True):
        yield word.encode() + b" " + row.astype("<f4").tobytes() + b"\n"


def _lines(words: Sequence[str], matrix: np.ndarray, *, digits: int, header: bool) -> Iterator[bytes]:
    if header:
        yield f"{len(words)} {matrix.shape[1]}\n".encode()
    form = "%s" + f" %.{digits}g" * matrix.shape[1] + "\n"
    for word, row in zip(words, matrix, strict=True):
        yield (form % (word, *row.tolist())).encode()


def coverage_result(
    run: Run, reader: SentenceReader, vocabulary: Mapping[str, int], *, reason: str
) -> EvalResult | None:
    """Share of held-out words without a vector; word vectors assign no probability to a text."""
    if not run.corpus.held_out:
        return None
    total = missing = 0
    for document in run.corpus.held_out:
        for line in document:
            words = reader.words(line)
            total += len(words)
            missing += sum(w not in vocabulary for w in words)
    return EvalResult(nll=0.0, predicted=0, words=None, unknown_rate=missing / max(1, total), reason=reason)


StateT = TypeVar("StateT")


class CheckpointManager(Generic[StateT]):
    """Checkpoints of a state that can be pickled, each marked with the run that it belongs to.

    Args:
        run: its work folder, and the interval between checkpoints.
        options: everything that determines the training besides corpus and seed.
    """

    def __init__(self, run: Run, options: Mapping[str, object]) -> None:
        self.files = CheckpointFiles(run.work, stem="state", suffix=".pickle")
        self.report = run.report
        self.key = data_fingerprint([run.corpus.fingerprint, run.seed, dict(options)])
        self.seconds = float(run.trainer.get("checkpoint_seconds", 60.0))
        self._last = time.monotonic()

    def load(self) -> StateT | None:
        """Load the newest intact state of this run; damaged files are skipped with a warning."""
        newest = self.files.newest(self._read, report=self.report)
        return newest[1] if newest else None

    def _read(self, path: Path) -> StateT | None:
        with path.open("rb") as f:
            key = f.readline()
            if not key.endswith(b"\n"):
                raise EOFError("the file is truncated")
            if key.decode().strip() != self.key:
                return None
            state: StateT = pickle.load(f)
            return state

    def due(self) -> bool:
        """Whether it is time for the next checkpoint."""
        return time.monotonic() - self._last >= self.seconds

    def save(self, state: StateT) -> None:
        def write(path: Path) -> None:
            with path.open("wb") as f:
                f.write(f"{self.key}\n".encode())
                pickle.dump(state, f, protocol=5)

        self.files.write(self.files.last_number() + 1, write)
        self._last = time.monotonic()


class ProgressReporter:
    """Reports progress at most every ``log_seconds``."""

    def __init__(self, run: Run) -> None:
        self.report = run.report
        self.seconds = float(run.trainer.get("log_seconds") or 10.0)
        self._last = time.monotonic()

    def __call__(self, progress: TrainingProgress, used: float, suffix: str = "") -> None:
        if time.monotonic() - self._last >= self.seconds:
            self._last = time.monotonic()
            speed = progress.tokens / max(progress.seconds, 1e-9)
            self.report(
                f"{used:4.0%}  {progress.tokens:,} words, {progress.seconds:.0f} s, "
                f"{speed:,.0f} words/s{suffix}"
            )
