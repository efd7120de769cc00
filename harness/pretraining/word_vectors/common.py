"""What the makers of word vectors share: sentences of words, vocabulary, checkpoints, and the files.

Imports no torch.
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
from typing import Any, TypeVar, cast

import numpy as np

from harness.core.fingerprint import data_fingerprint
from harness.core.validation import Check, number, optional, truth
from harness.data.text import split_words
from harness.errors import HarnessError, did_you_mean
from harness.pretraining.base import HeldOut, Run, Seen
from harness.pretraining.checkpoint_files import Kept
from harness.pretraining.text.corpus import Document

FORMATS = ("text", "text.gz", "binary")
NAMES = {"text": "vectors.txt", "text.gz": "vectors.txt.gz", "binary": "vectors.bin"}
LONGEST = 10_000
"""Words of a sentence; gensim reads no further, and a corpus without blank lines is one document."""
Sentence = list[str]
_count = number(low=1, whole=True)


@dataclass(frozen=True, slots=True)
class Reading:
    """How a corpus becomes sentences of words.

    Attributes:
        lower: words are lower-cased.
        across_lines: a document is one sentence, so that windows reach across its lines.
        min_count: rarer words are left out, before windows are laid, as word2vec and GloVe do.
        max_words: most words kept, the most frequent ones; None = all.
    """

    lower: bool = False
    across_lines: bool = True
    min_count: int = 1
    max_words: int | None = None

    def sentences(self, documents: Iterable[Document]) -> list[Sentence]:
        """Sentences of words by the common word splitter, none empty."""
        out = []
        for document in documents:
            lines = [self.words(line) for line in document]
            parts = [[w for line in lines for w in line]] if self.across_lines else lines
            out += [part[at : at + LONGEST] for part in parts for at in range(0, len(part), LONGEST)]
        return out

    def words(self, line: str) -> Sentence:
        words = [line[a:b] for a, b in split_words(line)]
        return [w.lower() for w in words] if self.lower else words

    def vocabulary(self, sentences: Iterable[Sentence], *, where: str = "corpus") -> dict[str, int]:
        """Count of each word that is kept, the most frequent first, equal ones by the alphabet.

        Raises:
            HarnessError: no word is left.
        """
        counts: Counter[str] = Counter()
        for sentence in sentences:
            counts.update(sentence)
        kept = sorted((w for w, n in counts.items() if n >= self.min_count), key=lambda w: (-counts[w], w))
        if not kept:
            raise HarnessError(
                f"{where}: none of its {len(counts)} words is there {self.min_count} times; lower "
                "encoder.min_count"
            )
        return {w: counts[w] for w in kept[: self.max_words]}


CHECKS: dict[str, Check] = {
    **dict.fromkeys(("dim", "window", "negative", "batch", "min_count", "minn", "maxn", "buckets"), _count),
    **dict.fromkeys(("lr", "min_lr"), number(low=1e-9, high=10)),
    **dict.fromkeys(("x_max", "squares", "epochs"), number(low=1e-9)),
    **dict.fromkeys(("alpha", "sample"), number(low=0)),
    **dict.fromkeys(("lower", "across_lines", "unknown"), truth),
    "exponent": number(low=-10, high=10),
    "max_words": optional(_count),
    "digits": number(low=1, high=17, whole=True),
}
"""Of the options of word vectors, by name."""
Make = TypeVar("Make", bound=Callable[..., None])


def checked_options(make: Make) -> Make:
    """Options that reach a constructor have their types and ranges, by :data:`CHECKS`."""

    @functools.wraps(make)
    def checked(self: Any, **options: Any) -> None:
        make(self, **{k: CHECKS[k](f"encoder.{k}", v) if k in CHECKS else v for k, v in options.items()})

    return cast(Make, checked)


def check_format(form: str) -> None:
    """Raises HarnessError for a format that is none."""
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
        digits: significant digits of a number in text; 4 are half precision.
        header: a first line ``<words> <numbers>`` (word2vec's text; GloVe's has none).

    Raises:
        HarnessError: a number is none: the training diverged.
    """
    if not np.isfinite(matrix).all():
        raise HarnessError("diverged: the vectors hold numbers that are not finite; lower encoder.lr")
    path = folder / NAMES[form]
    if form == "binary":
        _write(path, _binary(words, matrix))
        return path
    lines = _lines(words, matrix, digits=digits, header=header)
    if form == "text":
        _write(path, lines)
        return path
    # no name and no time in it: the same vectors are the same bytes
    with path.open("wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as packed:
        packed.writelines(lines)
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


def measured(run: Run, reading: Reading, known: Mapping[str, int], *, why: str) -> HeldOut | None:
    """What can be said of the held-out documents: no probability, but how many words have no vector."""
    if not run.corpus.held_out:
        return None
    total = missing = 0
    for document in run.corpus.held_out:
        for line in document:
            words = reading.words(line)
            total += len(words)
            missing += sum(w not in known for w in words)
    return HeldOut(nll=0.0, predicted=0, words=None, unknown=missing / max(1, total), why=why)


class Keeper:
    """States of a training: anything that pickles, beside what it belongs to.

    Args:
        run: its work folder, and how often a state is due to be kept.
        options: what decides the training beside corpus and seed.
    """

    def __init__(self, run: Run, options: Mapping[str, Any]) -> None:
        self.kept, self.say = Kept(run.work, stem="state", ending=".pickle"), run.say
        self.key = data_fingerprint([run.corpus.fingerprint, run.seed, dict(options)])
        self.every = float(run.trainer.get("checkpoint_seconds", 60.0))
        self._last = time.monotonic()

    def load(self) -> Any:
        """What was kept last of this training, None when that is nothing. A damaged one is passed over with a
        warning."""
        found = self.kept.newest(self._read, say=self.say)
        return found[1] if found else None

    def _read(self, path: Path) -> Any:
        with path.open("rb") as f:
            key = f.readline()
            if not key.endswith(b"\n"):
                raise EOFError("it is cut short")
            return pickle.load(f) if key.decode().strip() == self.key else None

    def due(self) -> bool:
        return time.monotonic() - self._last >= self.every

    def save(self, state: Any) -> None:
        """Keep ``state``; of those before it the newest stays."""

        def write(path: Path) -> None:
            with path.open("wb") as f:
                f.write(f"{self.key}\n".encode())
                pickle.dump(state, f, protocol=5)

        self.kept.write(self.kept.last_number() + 1, write)
        self._last = time.monotonic()


class Reporter:
    """Says how far a training is, at most every ``log_seconds``."""

    def __init__(self, run: Run) -> None:
        self.say: Callable[[str], None] = run.say
        self.every = float(run.trainer.get("log_seconds") or 10.0)
        self._last = time.monotonic()

    def __call__(self, seen: Seen, used: float, more: str = "") -> None:
        if time.monotonic() - self._last >= self.every:
            self._last = time.monotonic()
            rate = seen.tokens / max(seen.seconds, 1e-9)
            self.say(f"{used:4.0%}  {seen.tokens:,} words, {seen.seconds:.0f} s, {rate:,.0f} words/s{more}")
