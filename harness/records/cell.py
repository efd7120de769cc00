"""The resolved cell: what runs, under which identity, and whether at all. Torch-free."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell ready to run (or to be skipped). Plain data: it travels to the child that runs it.

    Attributes:
        id: 12 hex digits over everything that can change the result, the seed apart.
        seed: the seed.
        folder: where its record goes, absolute.
        config: the resolved configuration, every recipe filled in; JSON-able.
        variant: resolved settings that differ from what this encoder, strategy and task give by default.
        skip: the reason to skip it, or None.
        cache_dir: features, tables and downloads, absolute.
        files: fingerprint of the content of the encoder's and of the task's files.
        sources: signature (:func:`harness.core.fingerprint.signature`) of each of them when that was taken.
    """

    id: str
    seed: int
    folder: Path
    config: dict[str, Any]
    variant: dict[str, Any]
    skip: str | None
    cache_dir: Path
    files: dict[str, str] = field(default_factory=dict)
    sources: dict[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """``task/encoder/strategy/id/seed-n``, as every message names it."""
        return "/".join(self.folder.parts[-5:])
