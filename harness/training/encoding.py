"""Load a cell's encoder and tokenize its texts, or read their cached features."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass, field
from pathlib import Path

import torch

from harness.adaptation.adapter import Adapted, Adapter
from harness.core.cache import Store
from harness.core.events import Progress
from harness.core.fingerprint import data_fingerprint
from harness.data.tokenizer import WindowOptions
from harness.data.tokens import TokenizedWindow
from harness.data.windows import MAX_LENGTH
from harness.encoders.base import Encoder
from harness.encoders.config import EncoderConfig
from harness.errors import HarnessError
from harness.processes.devices import arithmetic, autocast_type, pick_device
from harness.records.cell import Cell
from harness.records.inputs import verify
from harness.task import Splits, Task
from harness.training.features import (
    VERSION,
    FeatureSource,
    TooLarge,
    check_layers,
    read_features,
    write_features,
)
from harness.training.sequences import Sequences
from harness.training.streamed import StreamedFeatures, memory_for_features


@dataclass(slots=True)
class Encoding:
    """The encoder, the tokenized windows of every sequence, and their cost.

    Attributes:
        encoder: the carried encoder, or the reader of its cached features.
        windows: rows of each sequence.
        pad: fill values of the rows' inputs.
        report: the tokenizer's counts.
        parameters: of the encoder.
        price: seconds of tokenising and encoding when they were done; ``spent`` by this run.
        load: seconds this run spent on reading the encoder's weights and tokenizer, or on drawing them.
        cached: the features came from the cache.
        adapted: what adapting the encoder took.
    """

    encoder: Encoder
    windows: list[list[TokenizedWindow]]
    pad: dict[str, float]
    report: dict[str, float]
    parameters: int
    price: float
    spent: float
    load: float = 0.0
    cached: bool = False
    adapted: Adapted = field(default_factory=Adapted)


def make_adapter(cell: Cell, splits: Splits, progress: Progress) -> Adapter | None:
    """Make the adapter that continues pretraining on the training texts; None without strategy.adapt."""
    if cell.strategy.adapt is None:
        return None
    device = pick_device(cell.trainer.accelerator)
    return Adapter(
        cell,
        cell.strategy.adapt,
        splits,
        trainer={
            "accelerator": cell.trainer.accelerator,
            "precision": cell.trainer.precision,
            "devices": [device.index] if device.type == "cuda" else 1,
            "device": device,
        },
        progress=progress,
        random_init=cell.strategy.transfer == "nothing",
    )


def encode(
    cell: Cell, task: Task, sequences: Sequences, progress: Progress, *, adapter: Adapter | None = None
) -> Encoding:
    """Return the features of a frozen encoder; otherwise the encoder and its tokenized windows."""
    strategy = cell.strategy
    if strategy.frozen and strategy.transfer == "encoder" and not cell.encoder.table:
        return frozen_features(cell, task, sequences, progress, adapter=adapter)
    begin = time.perf_counter()
    progress({"phase": "encode", "message": "loading the encoder"})
    encoder = load_transferred(cell, adapter)
    adapted = adapter.adapted if adapter else Adapted()
    restrict = getattr(encoder, "restrict", None)
    if restrict is not None:
        restrict(word for item in sequences.items for text in item for word in text.words)
    loaded = time.perf_counter()
    windows = sequences.tokenize(encoder.tokenizer, windowing(cell, task, encoder))
    spent = time.perf_counter() - loaded
    load = loaded - begin - (adapter.last if adapter else 0.0)
    progress({"phase": "encode", "message": f"loaded in {load:.1f} s"})
    return Encoding(
        encoder=encoder,
        windows=windows,
        pad=dict(encoder.tokenizer.pad),
        report=encoder.tokenizer.coverage(),
        parameters=sum(p.numel() for p in encoder.parameters()),
        price=spent,
        spent=spent,
        load=load,
        adapted=adapted,
    )


def load_transferred(cell: Cell, adapter: Adapter | None = None) -> Encoder:
    """Load the transferred part of the encoder, adapted where the strategy adapts it."""
    strategy = cell.strategy

    def make(config: EncoderConfig) -> Encoder:
        torch.manual_seed(cell.seed)  # also when it is loaded a second time, or was adapted
        # weights adapted from random ones are loaded, not drawn again
        random_init = strategy.transfer == "nothing" and adapter is None
        loaded = config.build(random_init=random_init, cache_dir=cell.cache_dir)
        verify(cell)
        return loaded

    encoder = make(cell.encoder) if adapter is None else adapter.load(make)
    check_layers(cell.encoder.layers, encoder.num_layers)
    return encoder.embedding_encoder() if strategy.transfer == "embeddings" else encoder


def windowing(cell: Cell, task: Task, encoder: Encoder) -> WindowOptions:
    """Window options of the cell: the smaller of ``trainer.max_length`` and the encoder's limit."""
    requested = cell.trainer.max_length or MAX_LENGTH
    reach = encoder.max_length or requested
    if cell.trainer.max_length and requested > reach:
        raise HarnessError(f"trainer.max_length={requested}: {encoder.name} takes at most {reach} tokens")
    return WindowOptions(
        max_length=min(requested, reach),
        stride=cell.trainer.stride,
        truncate=task.truncate,
        max_first=task.max_first,
    )


def frozen_features(
    cell: Cell, task: Task, sequences: Sequences, progress: Progress, *, adapter: Adapter | None = None
) -> Encoding:
    """Read features from the cache, computing them if needed; those that the cache cannot hold are kept in
    memory or computed again when needed, with the same values."""
    limit = int(cell.options.feature_cache_gb * 1e9)
    store = Store(cell.cache_dir / "features", max_bytes=limit)
    computation = _Computation(cell, task, sequences, progress, adapter)
    key = feature_key(cell, task, sequences, adapter)
    if limit == 0 and not store.is_complete(key):
        return computation.streamed()
    begin = time.perf_counter()

    def compute(folder: Path) -> None:
        source = computation.source()
        computation.adapted.write(folder)
        write_features(folder, source, progress=computation.progress, max_bytes=limit)

    try:
        (features, adaptation), hit = store.read(key, compute, lambda f: (read_features(f), Adapted.read(f)))
    except TooLarge:
        return computation.streamed()
    except OSError as e:  # not fatal
        warnings.warn(
            f"cache_dir={cell.cache_dir}: features cannot be kept there ({e.strerror or e})", stacklevel=2
        )
        return computation.streamed()
    adaptation.spent = computation.adapted.spent
    return Encoding(
        encoder=features.encoder,
        windows=features.rows,
        pad={},
        report=features.report,
        parameters=features.parameters,
        price=features.seconds,
        spent=time.perf_counter() - begin - computation.load - adaptation.spent,
        load=computation.load,
        cached=hit,
        adapted=adaptation,
    )


@dataclass(slots=True)
class _Computation:
    """Loads a cell's frozen encoder at most once; ``load`` and ``adapted`` are what that took."""

    cell: Cell
    task: Task
    sequences: Sequences
    report: Progress
    adapter: Adapter | None
    load: float = 0.0
    adapted: Adapted = field(default_factory=Adapted)
    _source: FeatureSource | None = None

    def source(self) -> FeatureSource:
        if self._source is None:
            self.report({"phase": "encode", "message": "computing features"})
            start = time.perf_counter()
            encoder = load_transferred(self.cell, self.adapter)
            self.load = time.perf_counter() - start
            if self.adapter is not None:
                self.load -= self.adapter.last
                self.adapted = self.adapter.adapted
            trainer = self.cell.trainer
            self._source = FeatureSource(
                encoder,
                self.sequences,
                windowing=windowing(self.cell, self.task, encoder),
                layers=self.cell.encoder.layers,
                device=pick_device(trainer.accelerator),
                autocast=autocast_type(trainer.precision),
            )
        return self._source

    def progress(self, done: int, total: int) -> None:
        self.report({"phase": "encode", "done": done, "total": total})

    def streamed(self) -> Encoding:
        """Compute the features and keep as many in memory as fit."""
        begin = time.perf_counter()
        before = self.load + self.adapted.spent
        source = self.source()
        options, trainer = self.cell.options, self.cell.trainer
        room = memory_for_features(memory_gb=options.memory_gb, devices=trainer.devices)
        if source.n_bytes > room:
            warnings.warn(
                f"feature_cache_gb={options.feature_cache_gb:g}: of {source.n_bytes / 1e9:.1f} GB of "
                f"features {room / 1e9:.1f} GB fit in memory; the others are computed again whenever a batch "
                "needs them, which is slow: increase feature_cache_gb",
                stacklevel=2,
            )
        features = StreamedFeatures(source, max_bytes=room)
        features.fill(self.progress)
        spent = time.perf_counter() - begin - (self.load + self.adapted.spent - before)
        return Encoding(
            encoder=features.encoder,
            windows=features.windows(),
            pad={},
            report=source.encoder.tokenizer.coverage(),
            parameters=source.parameters,
            price=spent,
            spent=spent,
            load=self.load,
            adapted=self.adapted,
        )


def feature_key(cell: Cell, task: Task, sequences: Sequences, adapter: Adapter | None = None) -> str:
    """Hash everything that the values of frozen features depend on, down to rounding: on the CPU also the
    number of threads."""
    trainer, layers = cell.trainer, cell.encoder.layers
    parts = {
        "encoder": cell.encoder.content(),
        "layers": layers if isinstance(layers, str) else list(layers),
        "pairs": cell.encoder.pairs,
        "weights": cell.files.get("encoder", ""),
        "texts": sequences.fingerprint(),
        "windows": [trainer.max_length, trainer.stride, task.truncate, task.max_first],
        "precision": trainer.precision,
        "arithmetic": arithmetic(pick_device(trainer.accelerator)),
        "version": VERSION,
        "seed": cell.seed if cell.encoder.has_table else None,
    }
    if adapter is not None:
        parts["adapted"] = adapter.key
    return data_fingerprint(parts)[:32]
