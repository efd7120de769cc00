"""Finding the files of each split: names, patterns, and folders that are searched for usual names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.core.files import split_part
from harness.data.reading.files import near
from harness.errors import HarnessError

Paths = str | Path | Sequence[str | Path] | None
"""A file, a pattern such as ``data/train-*.parquet``, or a list of these."""


def by_role(located: Mapping[str, Sequence[Path]]) -> dict[str, Path]:
    """One path per role, as ``_files_`` functions return them; further files of a split are ``train-1``,
    ..."""
    return {
        role if i == 0 else f"{role}-{i}": path
        for role, paths in located.items()
        for i, path in enumerate(paths)
    }


def as_list(value: Paths) -> list[str]:
    """A setting that may be one name or a list of names, as a list."""
    if value is None:
        return []
    return [str(value)] if isinstance(value, str | Path) else [str(v) for v in value]


def named_files(given: Paths, role: str) -> list[Path]:
    paths: list[Path] = []
    for one in as_list(given):
        path = Path(one).expanduser()
        try:
            found = split_part(path)[0].is_file()
        except OSError as e:  # such as a name that is too long
            raise HarnessError(f"task.{role}={one:.60}: {e.strerror}") from None
        if found:
            paths.append(path)
        elif path.is_dir():
            raise HarnessError(f"task.{role}={one}: is a folder; name a file or a pattern in it")
        else:
            matches = _glob(path)
            if not matches:
                raise HarnessError(f"task.{role}={one}: no such file{near(path)}")
            paths += matches
    return paths


def check_distinct(located: Mapping[str, Sequence[Path]]) -> None:
    """Refuse a file that is given for two splits, or twice for one."""
    seen: dict[Path, str] = {}
    for role, paths in located.items():
        for path in paths:
            other = seen.setdefault(path.resolve(), role)
            if other != role or list(paths).count(path) > 1:
                twice = f"task.{role} twice" if other == role else f"task.{other} and as task.{role}"
                raise HarnessError(
                    f"{path}: given as {twice}; scores on training data mean nothing. Give each split its "
                    "own file, or leave a split out so that it is cut from train"
                )


def first_files(folder: Path, candidates: Paths, role: str) -> list[Path]:
    """Files of the first candidate that exists in the folder."""
    for name in as_list(candidates):
        matches = _glob(folder / name)
        if len({tuple(p.suffixes) for p in matches}) > 1:
            names = ", ".join(p.name for p in matches)
            raise HarnessError(f"{folder}: which is {role}: {names}? Name it with task.{role}=FILE")
        if matches:
            return matches
    return []


def _glob(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    base = Path(path.anchor or ".")
    pattern = str(path.relative_to(path.anchor)) if path.anchor else str(path)
    if not any(c in pattern for c in "*?["):
        return []
    return sorted(p for p in base.glob(pattern) if p.is_file())
