"""The resolved cell: what runs, under which identity, and whether at all. Torch-free."""

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
        id: 12 hex digits over everything that can change the result, the seed apart.
        seed: the seed.
        folder: where its record goes, absolute.
        results_dir: the results folder, absolute; ``folder`` lies five levels below it.
        cache_dir: features, tables and downloads, absolute.
        variant: resolved settings that differ from the defaults of this encoder, strategy and task.
        skip: the reason to skip it, or None.
        files: fingerprints of the content of the encoder's and of the task's files.
        sources: signature (:func:`harness.core.fingerprint.signature`) of each file when it was fingerprinted.
        resolved: the same configuration as plain data, to be written, hashed and shown; nothing else is to be
            read from it.
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
        """``task/encoder/strategy/id/seed-n``, the cell's name in messages."""
        return "/".join(self.folder.parts[-5:])
