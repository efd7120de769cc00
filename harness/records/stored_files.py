"""Read files that others may have written, such as those of a results folder: bounded, and without surprises.

A file is read only if it is a regular file of a plausible size (a pipe would block, and a device never ends).
JSON and YAML are parsed into at most :data:`MAX_NODES` values. Links that leave the results folder are not
followed.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path

import yaml

from harness.errors import HarnessError

try:
    from yaml import CSafeLoader as _Loader
except ImportError:  # PyYAML without its C extension
    from yaml import SafeLoader as _Loader

MAX_BYTES = 64 << 20
MAX_NODES = 200_000
"""Maximum number of values of a YAML document after its aliases are expanded."""
CELL_LEVELS = 5
"""Levels of a cell's folder below its results folder: task, encoder, strategy, id and seed."""


class LeavesResults(HarnessError):
    """A link in a results folder leads out of it."""

    def __init__(self, link: Path, results: Path) -> None:
        super().__init__(f"{link}: a link that leaves the results folder {results}")


def read_bytes(path: Path, *, limit: int = MAX_BYTES) -> bytes:
    """Read a regular file of at most ``limit`` bytes.

    Raises:
        OSError: there is no such file, it cannot be read, or it is a pipe, device or folder.
        HarnessError: it is larger.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(handle)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EPERM, "not a regular file", str(path))
        if status.st_size > limit:
            raise HarnessError(f"{path}: {status.st_size} bytes; at most {limit} are read")
        with os.fdopen(handle, "rb", closefd=False) as f:
            return f.read(limit + 1)
    finally:
        os.close(handle)


def parse_json(data: bytes | str) -> object:
    """Parse JSON.

    Raises:
        ValueError: invalid JSON, or nested too deeply.
    """
    try:
        value: object = json.loads(data)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return value


def parse_yaml(text: str) -> object:
    """Parse YAML of plain values whose aliases do not expand to more than :data:`MAX_NODES` values.

    Raises:
        ValueError: invalid YAML, or too many values.
    """
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        if _expanded(node, {}) > MAX_NODES:
            raise ValueError(f"more than {MAX_NODES} values after its aliases are expanded")
        value: object = loader.construct_document(node)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except yaml.YAMLError as e:
        raise ValueError(" ".join(str(e).split())) from e
    finally:
        loader.dispose()
    return value


def _expanded(node: yaml.Node, sizes: dict[int, int]) -> int:
    """Number of values of a node; an alias counts as often as it occurs.

    Raises:
        ValueError: a node contains itself.
    """
    if id(node) in sizes:
        if sizes[id(node)] < 0:
            raise ValueError("an alias refers to a value that contains it")
        return sizes[id(node)]
    sizes[id(node)] = -1  # not finished
    children = node.value if isinstance(node, yaml.CollectionNode) else []
    flat = [n for child in children for n in (child if isinstance(child, tuple) else (child,))]
    # capped, so that the number itself stays small
    sizes[id(node)] = min(MAX_NODES + 1, 1 + sum(_expanded(n, sizes) for n in flat))
    return sizes[id(node)]


def results_root(folder: Path) -> Path:
    """Return the results folder of a cell's folder, five levels above it, or its topmost parent."""
    above = list(folder.parents)[:CELL_LEVELS]
    return above[-1] if above else folder


def check_contained(folder: Path) -> None:
    """Check that a cell's folder does not leave its results folder through a link.

    Raises:
        LeavesResults: it does.
    """
    links = [p for p in (folder, *list(folder.parents)[: CELL_LEVELS - 1]) if os.path.islink(p)]
    if links and not _is_below(folder, results_root(folder)):
        raise LeavesResults(links[0], results_root(folder))


def seed_folders(results: Path, *, task: str | None = None) -> tuple[list[Path], list[HarnessError]]:
    """List the folders ``<task>/<encoder>/<strategy>/<id>/seed-<n>`` below ``results``, in order.

    Args:
        results: results folder.
        task: list only the cells of this task.

    Returns:
        the folders without hidden ones, and an error for each link that leaves the results folder.
    """
    refused: list[HarnessError] = []
    level = [results]
    for depth in range(CELL_LEVELS):
        if depth == 0 and task is not None:
            level = [results / task]
            continue
        level = [child for folder in level for child in _subfolders(folder, results, refused)]
    return [folder for folder in level if folder.name.startswith("seed-")], refused


def _subfolders(folder: Path, results: Path, refused: list[HarnessError]) -> list[Path]:
    out = []
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda e: e.name):
            if entry.name.startswith(".") or not entry.is_dir():
                continue
            path = folder / entry.name
            if entry.is_symlink() and not _is_below(path, results):
                refused.append(LeavesResults(path, results))
            else:
                out.append(path)
    return out


def cell_file(folder: Path, name: str) -> Path:
    """Return the path of a file in a cell's folder, which need not exist.

    Raises:
        LeavesResults: the folder or the file is a link that leaves the results folder.
    """
    check_contained(folder)
    path = folder / name
    if os.path.islink(path) and not _is_below(path, results_root(folder)):
        raise LeavesResults(path, results_root(folder))
    return path


def _is_below(path: Path, root: Path) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root))
