"""The resolved cell: what runs, its identity, and the reason if it is skipped. Does not import torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from harness.bodies.config import BodyConfig
from harness.encoders.config import EncoderConfig
from harness.records.parts import (
    LoggerConfig,
    OptimizerConfig,
    RunOptions,
    ScheduleConfig,
    TaskConfig,
    TrainerConfig,
)
from harness.strategies.strategy import Strategy


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell ready to run (or to be skipped): a resolved configuration in typed form. It can be pickled.

    Attributes:
        id: 12 hex digits, a hash of everything except the seed that can change the result.
        seed: the seed.
        folder: folder of its record, absolute.
        results_dir: the results folder, absolute; ``folder`` lies five levels below it.
        cache_dir: features, tables and downloads, absolute.
        variant: resolved settings that differ from the defaults of this encoder, strategy and task.
        skip: the reason to skip it, or None.
        files: content fingerprints of the files of ``encoder`` and ``task``.
        sources: signature (:func:`harness.core.fingerprint.signature`) of each file when it was
            fingerprinted.
        resolved: the same configuration as plain data, only for storing, hashing and showing it.
    """

    id: str
    seed: int
    folder: Path
    results_dir: Path
    cache_dir: Path
    encoder: EncoderConfig
    strategy: Strategy
    body: BodyConfig
    task: TaskConfig
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    logger: LoggerConfig = field(default_factory=LoggerConfig)
    options: RunOptions = field(default_factory=RunOptions)
    variant: Mapping[str, object] = field(default_factory=dict)
    skip: str | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    resolved: Mapping[str, object] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """The cell's name in messages: ``task/encoder/strategy/id/seed-n``."""
        return "/".join(self.folder.parts[-5:])
