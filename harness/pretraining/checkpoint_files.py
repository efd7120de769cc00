"""Files from which an interrupted run resumes; does not import torch.

Each file is written atomically with a SHA-256 digest beside it, the newest two are kept, and damaged ones are
renamed with a warning.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from harness.core.files import atomic_path, remove_temporary, write_atomic
from harness.pretraining.base import ReportLine

MAX_FILES = 2
DAMAGED, DIGEST = ".damaged", ".sha256"
T = TypeVar("T")


def checkpoints_in(folder: Path) -> list[Path]:
    """List the files that any :class:`CheckpointFiles` left in a folder."""
    paths = folder.glob("*-" + "[0-9]" * 9 + ".*")
    return sorted(path for path in paths if path.suffix != DIGEST)


class CheckpointFiles:
    """Numbered files ``<stem>-<number><suffix>`` in a folder.

    Args:
        folder: created on the first write.
        stem: beginning of the names.
        suffix: end of the names, such as ``.ckpt``.
    """

    def __init__(self, folder: Path, *, stem: str, suffix: str) -> None:
        self.folder, self.stem, self.suffix = folder, stem, suffix

    def paths(self) -> list[Path]:
        """Existing files, oldest first."""
        return sorted(self.folder.glob(f"{self.stem}-*{self.suffix}"))

    def last_number(self) -> int:
        """Number of the newest file, -1 if there is none."""
        paths = self.paths()
        return int(paths[-1].name.removesuffix(self.suffix).rpartition("-")[2]) if paths else -1

    def newest(self, read: Callable[[Path], T], *, report: ReportLine) -> tuple[Path, T] | None:
        """Return the newest readable file and what ``read`` returns for it; None if there is none.

        A file that cannot be read is renamed with a warning, so that it no longer counts towards
        :data:`MAX_FILES` and is not tried again.

        Args:
            read: returns None for an intact file that belongs to another run.
            report: receives the warning as well.
        """
        for path in self.paths()[::-1]:
            try:
                _check_digest(path)
                content = read(path)
            except Exception as e:
                message = f"{path}: cannot be read and is skipped ({type(e).__name__}: {str(e)[:120]})"
                path.replace(path.with_name(path.name + DAMAGED))
                warnings.warn(message, stacklevel=2)
                report(message)
                continue
            if content is not None:
                return path, content
        return None

    def write(self, number: int, write: Callable[[Path], None]) -> None:
        """Store what ``write`` puts at the path it receives under ``number``, and delete older files."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{self.stem}-{number:09d}{self.suffix}"
        remove_temporary(self.folder)  # left by a killed run; only one process writes here
        with atomic_path(path) as temporary:
            write(temporary)
            with temporary.open("rb") as f:
                digest = hashlib.file_digest(f, "sha256").hexdigest()
            # the digest first: a checkpoint without one would count as damaged
            write_atomic(_digest_path(path), digest.encode())
        for old in self.paths()[:-MAX_FILES]:
            old.unlink(missing_ok=True)
            _digest_path(old).unlink(missing_ok=True)


def _digest_path(path: Path) -> Path:
    return path.with_name(path.name + DIGEST)


def _check_digest(path: Path) -> None:
    with path.open("rb") as f:
        if hashlib.file_digest(f, "sha256").hexdigest() != _digest_path(path).read_text():
            raise ValueError("the SHA-256 digest does not match")
