"""Resolved settings of cells, read from the ``config.yaml`` beside a record when one is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from harness.records.record import Record

try:
    from yaml import CSafeLoader as _Loader
except ImportError:  # PyYAML without its C part
    from yaml import SafeLoader as _Loader

CONFIG = "config.yaml"
UNSET = object()
"""What :meth:`Configs.get` gives where a cell has no such setting."""


class Configs:
    """The configurations of records by the folders these were read from; records without one have none."""

    def __init__(self, filed: Iterable[tuple[Record, Path]] = ()) -> None:
        self._filed = {id(record): (record, folder) for record, folder in filed}
        self._texts: dict[int, str] = {}

    def get(self, record: Record, key: str) -> Any:
        """The value of a dotted key such as ``optimizer.lr``; of a group's key, the name of what was chosen.

        A damaged or missing file counts as one without the key: the board is about the records.
        """
        try:
            value = lookup(self._text(record), key)
        except yaml.YAMLError:
            return UNSET
        return value["name"] if isinstance(value, Mapping) and "name" in value else value

    def folder(self, record: Record) -> Path | None:
        """Where the record was read from."""
        return self._filed.get(id(record), (record, None))[1]

    def keys(self, *, most: int = 50) -> list[str]:
        """Dotted keys of some cells, at most ``most`` of them spread over all: what a hint is made of."""
        filed = [record for record, _ in self._filed.values()]
        found: dict[str, None] = {}
        for record in filed[:: max(1, len(filed) // most)]:
            try:
                config = yaml.load(self._text(record), Loader=_Loader)
            except yaml.YAMLError:
                continue
            found |= dict.fromkeys(_dotted(config))
        return list(found)

    def _text(self, record: Record) -> str:
        known = self._texts.get(id(record))
        if known is None:
            _, folder = self._filed.get(id(record), (record, None))
            try:
                known = (folder / CONFIG).read_text(encoding="utf-8") if folder else ""
            except (OSError, UnicodeDecodeError):
                known = ""
            self._texts[id(record)] = known
        return known


def lookup(text: str, key: str) -> Any:
    """The value at a dotted key of a YAML mapping in block style; :data:`UNSET` where there is none.

    Only the lines of that key are parsed: whole files would take milliseconds each, and there are thousands.
    """
    below, block = text.split("\n"), [""]
    for part in key.split("."):
        block = _block(below, part)
        if not block:
            return UNSET
        below = block[1:] if block[0].endswith(":") else []
    found = yaml.load("\n".join(block), Loader=_Loader)
    return next(iter(found.values())) if isinstance(found, dict) and len(found) == 1 else UNSET


def _block(lines: list[str], key: str) -> list[str]:
    """The line of ``key`` in a mapping's lines and those of its value; [] when it is not there."""
    first = next((line for line in lines if line.strip()), "")
    depth = len(first) - len(first.lstrip(" "))
    start = f"{' ' * depth}{key}:"
    at = next((i for i, line in enumerate(lines) if line == start or line.startswith(f"{start} ")), None)
    if at is None:
        return []
    end = at + 1
    # a list may stand as deep as its key
    while end < len(lines) and lines[end][: depth + 1].strip(" ") in ("", "-"):
        end += 1
    return lines[at:end]


def _dotted(node: Any, prefix: str = "") -> Iterator[str]:
    if isinstance(node, Mapping):
        for key, value in node.items():
            yield f"{prefix}{key}"
            yield from _dotted(value, f"{prefix}{key}.")
