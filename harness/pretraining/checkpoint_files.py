"""States that a killed run is continued from: written whole or not at all, the last two kept, damaged ones
set aside with a warning; torch-free."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from harness.core.files import write_atomic
from harness.pretraining.base import Progress

KEPT = 2
DAMAGED, DIGEST, TEMPORARY = ".damaged", ".sha256", ".tmp"
T = TypeVar("T")


def states_in(folder: Path) -> list[Path]:
    """Whatever any :class:`Kept` left in a folder."""
    found = folder.glob("*-" + "[0-9]" * 9 + ".*")
    return sorted(path for path in found if path.suffix not in (DIGEST, TEMPORARY))


class Kept:
    """Files ``<stem>-<number><ending>`` of a folder.

    Args:
        folder: made when it is needed.
        stem, ending: of their names.
    """

    def __init__(self, folder: Path, *, stem: str, ending: str) -> None:
        self.folder, self.stem, self.ending = folder, stem, ending

    def paths(self) -> list[Path]:
        """Those that are there, the oldest first."""
        return sorted(self.folder.glob(f"{self.stem}-*{self.ending}"))

    def last_number(self) -> int:
        """Of the newest, -1 when there is none."""
        found = self.paths()
        return int(found[-1].name.removesuffix(self.ending).rpartition("-")[2]) if found else -1

    def newest(self, read: Callable[[Path], T], *, say: Progress) -> tuple[Path, T] | None:
        """The newest that can be read and what ``read`` gives of it. One that cannot is named in a warning
        and renamed, so that it neither counts among those that are kept nor is met again.

        Args:
            read: gives None for a file that is whole but of no use here.
            say: shows the warning, too.
        """
        for path in self.paths()[::-1]:
            try:
                _check(path)
                found = read(path)
            except Exception as e:
                told = f"{path}: cannot be read and is passed over ({type(e).__name__}: {str(e)[:120]})"
                path.replace(path.with_name(path.name + DAMAGED))
                warnings.warn(told, stacklevel=2)
                say(told)
                continue
            if found is not None:
                return path, found
        return None

    def write(self, number: int, write: Callable[[Path], None]) -> None:
        """Keep what ``write`` puts at the path it is given, under ``number``; older ones go."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{self.stem}-{number:09d}{self.ending}"
        temporary = path.with_suffix(TEMPORARY)
        write(temporary)
        with temporary.open("rb") as f:
            digest = hashlib.file_digest(f, "sha256").hexdigest()
            os.fsync(f.fileno())
        write_atomic(_digest(path), digest.encode())
        temporary.replace(path)
        for old in self.paths()[:-KEPT]:
            old.unlink(missing_ok=True)
            _digest(old).unlink(missing_ok=True)


def _digest(path: Path) -> Path:
    """Where the SHA-256 of a state lies."""
    return path.with_name(path.name + DIGEST)


def _check(path: Path) -> None:
    with path.open("rb") as f:
        if hashlib.file_digest(f, "sha256").hexdigest() != _digest(path).read_text():
            raise ValueError("its bytes are not those that were written")
