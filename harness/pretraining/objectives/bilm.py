"""ELMo's objective, the biLM of Peters et al. 2018, section 3.1: the sum of both log-likelihoods ::

    sum_k  log p(t_k | t_1 .. t_k-1; X, F, S)  +  log p(t_k | t_k+1 .. t_N; X, B, S)

X is the character network, S the softmax, both shared; F and B are the LSTMs of each direction. A row is some
neighbouring lines of a document between the marks of its begin and end; each batch starts from empty states.
Rows get lengths of their own in every pass, so that both single sentences and longer passages are met.

Large vocabularies have an adaptive softmax (Grave et al. 2017), small ones the full one. Words that it lacks
are one class, but are read by their characters like all others.

**Held out.** Each document is read alone; the marks at its ends are not predicted.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from harness.data.text import split_words
from harness.encoders.elmo.characters import boundary_ids, character_ids
from harness.encoders.elmo.encoder import ElmoEncoder
from harness.encoders.elmo.files import ElmoOptions
from harness.errors import HarnessError, did_you_mean
from harness.pretraining.base import Batch, HeldOut, Loss, Objective, Recipe
from harness.pretraining.objectives.bilm_model import MARKERS, UNKNOWN, BiLM
from harness.pretraining.text.corpus import Corpus, Document
from harness.pretraining.text.packing import unigram_nll

SOFTMAX = ("auto", "full", "adaptive")
FULL_MOST = 12_000
"""Classes up to which ``auto`` takes the full softmax."""
LONGEST = 1_000
"""Words of a held-out document that are read at once."""
POOL = 16
"""Batches that are sorted by length together."""
Line = np.ndarray
"""(words,) int64, types of a line."""


class BiLMObjective(Objective):
    """See the module.

    Args:
        options: the architecture.
        recipe: rates.
        max_vocabulary: most classes of the softmax.
        min_frequency: rarer words share the class of unknown ones.
        softmax: ``full``, ``adaptive``, or ``auto`` = by the number of classes.
        row_words: most words of a row; each row draws its own from a quarter of this to this.
        batch_words: words a step.
    """

    def __init__(
        self,
        options: ElmoOptions,
        recipe: Recipe,
        *,
        max_vocabulary: int,
        min_frequency: int,
        softmax: str,
        row_words: int,
        batch_words: int,
    ) -> None:
        if softmax not in SOFTMAX:
            raise HarnessError(f"encoder.softmax={softmax}: {did_you_mean(softmax, SOFTMAX)}")
        self.family, self.options, self.recipe, self.softmax = "elmo", options, recipe, softmax
        self.max_vocabulary, self.min_frequency = max_vocabulary, min_frequency
        self.row_words, self.batch_words = row_words, batch_words
        self.notes: list[str] = []

    def prepare(self, corpus: Corpus, *, seed: int) -> None:
        self.types: dict[str, int] = {}
        self.train = [self._numbered(d) for d in corpus.train]
        counts = Counter(t for document in self.train for line in document for t in line.tolist())
        self.test = [self._numbered(d) for d in corpus.held_out]
        names = list(self.types)
        ranked = sorted(
            (t for t, n in counts.items() if n >= self.min_frequency and names[t] not in MARKERS),
            key=lambda t: (-counts[t], names[t]),
        )[: max(1, self.max_vocabulary - len(MARKERS))]
        self.words = [*MARKERS, *(names[t] for t in ranked)]
        self.classes = np.full(len(names), MARKERS.index(UNKNOWN), dtype=np.int64)
        self.classes[ranked] = np.arange(len(MARKERS), len(self.words))
        length = self.options.max_characters
        self.characters = np.stack([character_ids(w, length=length) for w in names])
        self.tokens_per_epoch = sum(len(line) for document in self.train for line in document)

    def _numbered(self, document: Document) -> list[Line]:
        return [
            np.array([self.types.setdefault(line[a:b], len(self.types)) for a, b in split_words(line)], int)
            for line in document
        ]

    def build(self) -> BiLM:
        encoder = ElmoEncoder(self.options, None, name="elmo", dropout=self.options.dropout)
        many = len(self.words) > FULL_MOST
        adaptive = self.softmax == "adaptive" or (self.softmax == "auto" and many)
        return BiLM(encoder, len(self.words), adaptive=adaptive).train()

    def batches(self, *, seed: int, epoch: int) -> Iterator[Batch]:
        draw = np.random.default_rng([seed, epoch])
        rows = [
            row
            for number in draw.permutation(len(self.train)).tolist()
            for row in joined_lines(self.train[number], self.row_words, draw)
        ]
        order = draw.permutation(len(rows)).tolist()
        parts = list(self._sorted_batches([rows[i] for i in order]))
        for number in draw.permutation(len(parts)).tolist():
            yield self.batch(parts[number])

    def _sorted_batches(self, rows: Sequence[Line]) -> Iterator[list[Line]]:
        """Rows of about one length together, since a batch takes as many steps as its longest row."""
        pool: list[Line] = []
        words = 0
        for row in rows:
            pool.append(row)
            words += len(row)
            if words >= POOL * self.batch_words:
                yield from packed(sorted(pool, key=len), self.batch_words)
                pool, words = [], 0
        yield from packed(sorted(pool, key=len), self.batch_words)

    def batch(self, rows: Sequence[Line]) -> Batch:
        """Rows as :meth:`BiLM.forward` reads them."""
        lengths = np.array([len(row) for row in rows])
        mask = np.arange(max(1, lengths.max()))[None] < lengths[:, None]
        flat = np.concatenate(rows)
        different, which = np.unique(flat, return_inverse=True)
        words, classes = np.zeros(mask.shape, np.int64), np.zeros(mask.shape, np.int64)
        words[mask], classes[mask] = which, self.classes[flat]
        marks = boundary_ids(length=self.options.max_characters)
        arrays = {
            "characters": np.concatenate([self.characters[different], marks]),
            "words": words,
            "classes": classes,
            "mask": mask,
        }
        tensors = {name: torch.from_numpy(a) for name, a in arrays.items()}
        return Batch(tensors, tokens=len(flat), words=len(flat))

    def share(self, batch: Batch, *, rank: int, size: int) -> Batch:
        """Every ``size``-th row, and the characters of the words in these alone."""
        rows = {k: batch.tensors[k][rank::size] for k in ("words", "classes", "mask")}
        if not len(rows["mask"]):
            return replace(batch, tensors={})
        characters, mask = batch.tensors["characters"], rows["mask"]
        different, which = rows["words"][mask].unique(return_inverse=True)
        words = torch.zeros_like(rows["words"])
        words[mask] = which
        own = torch.cat([characters[different], characters[-2:]])
        return replace(batch, tensors={**rows, "words": words, "characters": own})

    def loss(self, model: BiLM, batch: Batch, carry: Any) -> Loss:
        total, places = model.summed(batch.tensors)
        # the objective is the sum of both directions, what is shown their mean
        return Loss(total / places, float(total.detach()) / 2, places)

    @torch.no_grad()
    def held_out(self, model: BiLM) -> HeldOut:
        device = next(model.parameters()).device
        documents = [np.concatenate(d) for d in self.test]
        rows = [d[at : at + LONGEST] for d in documents for at in range(0, len(d), LONGEST)]
        sums = torch.zeros(2, dtype=torch.float64)
        for part in packed(sorted(rows, key=len), self.batch_words):
            tensors = {k: v.to(device) for k, v in self.batch(part).tensors.items()}
            nll, real = model(tensors)
            sums += torch.where(real, nll, 0.0).double().sum(1).cpu()
        words = sum(map(len, rows))
        unknown = sum(int((self.classes[row] == 0).sum()) for row in rows)
        both = zip(("forward", "backward"), sums.tolist(), strict=True)
        more = {f"perplexity_{name}": math.exp(min(700.0, nll / max(1, words))) for name, nll in both}
        return HeldOut(
            float(sums.mean()),
            words,
            words=words,
            unknown=unknown / max(1, words),
            unigram=unigram_nll(
                *((self.classes[line] for d in part for line in d) for part in (self.train, self.test)),
                size=len(self.words),
            ),
            more=more,
        )

    def save(self, model: BiLM, folder: Path) -> None:
        """``options.json``, ``weights.hdf5``; beside the published format ``vocabulary.txt`` and
        ``softmax.safetensors``, which an encoder does not need."""
        from safetensors.torch import save

        model.encoder.save(folder)
        (folder / "vocabulary.txt").write_text("\n".join([*self.words, ""]), encoding="utf-8")
        softmax = {k: v for k, v in model.state_dict().items() if not k.startswith("encoder.")}
        packed_softmax = save({k: v.detach().cpu().contiguous() for k, v in softmax.items()})
        (folder / "softmax.safetensors").write_bytes(packed_softmax)

    def vocabulary_size(self) -> int:
        return len(self.words)

    def encoder_parameters(self, model: BiLM) -> int:
        return sum(p.numel() for p in model.encoder.parameters())


def joined_lines(lines: Sequence[Line], most: int, draw: np.random.Generator) -> Iterator[Line]:
    """Neighbouring lines together up to a length that is drawn for each row; longer lines are cut."""
    row: list[Line] = []
    words, limit = 0, _limit(most, draw)
    for line in lines:
        for at in range(0, len(line), most):
            part = line[at : at + most]
            if row and words + len(part) > limit:
                yield np.concatenate(row)
                row, words, limit = [], 0, _limit(most, draw)
            row.append(part)
            words += len(part)
    if words:
        yield np.concatenate(row)


def _limit(most: int, draw: np.random.Generator) -> int:
    return int(draw.integers(max(1, most // 4), most + 1))


def packed(rows: Sequence[Line], words: int) -> Iterator[list[Line]]:
    """Neighbouring rows in batches of at most so many words, at least one a batch."""
    part: list[Line] = []
    total = 0
    for row in rows:
        if part and total + len(row) > words:
            yield part
            part, total = [], 0
        if len(row):
            part.append(row)
            total += len(row)
    if part:
        yield part


def elmo(
    *, recipe: Mapping[str, Any], cells: int, projection: int, layers: int, clip: float | None,
    dropout: float, characters: int, filters: Sequence[Sequence[int]], highways: int, max_characters: int,
    skip: bool, max_vocabulary: int, min_frequency: int, softmax: str, row_words: int, batch_words: int,
) -> BiLMObjective:  # fmt: skip
    """What ``conf/pretrain/encoder/elmo.yaml`` names: :class:`BiLMObjective` from plain, checked options."""
    from harness.core.validation import number, optional, truth
    from harness.pretraining.factories import the_recipe

    def whole(key: str, value: Any, low: int = 1) -> int:
        return int(number(low=low, whole=True)(f"encoder.{key}", value))

    def convolutions(key: str, value: Any) -> tuple[tuple[int, int], ...]:
        pairs = value if isinstance(value, list | tuple) else ()
        if not pairs or not all(isinstance(p, list | tuple) and len(p) == 2 for p in pairs):
            raise HarnessError(
                f"encoder.{key}={value!r}: pairs of width and number are wanted, as in [[3, 64]]"
            )
        return tuple((whole(key, width), whole(key, n)) for width, n in pairs)

    bound = optional(number(low=1e-6))("encoder.clip", clip)
    options = ElmoOptions(
        dim=whole("cells", cells),
        projection_dim=whole("projection", projection),
        num_layers=whole("layers", layers),
        cell_clip=bound,
        proj_clip=bound,
        use_skip_connections=truth("encoder.skip", skip),
        dropout=number(low=0, high=0.99)("encoder.dropout", dropout),
        char_dim=whole("characters", characters),
        filters=convolutions("filters", filters),
        n_highway=whole("highways", highways, 0),
        activation="relu",
        max_characters=whole("max_characters", max_characters, 3),
    )
    return BiLMObjective(
        options,
        the_recipe(recipe),
        max_vocabulary=whole("max_vocabulary", max_vocabulary, len(MARKERS) + 1),
        min_frequency=whole("min_frequency", min_frequency),
        softmax=softmax,
        row_words=whole("row_words", row_words),
        batch_words=whole("batch_words", batch_words),
    )
