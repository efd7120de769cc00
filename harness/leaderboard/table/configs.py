"""Resolved settings of cells, read on demand from the configuration file beside a record."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from harness.errors import HarnessError
from harness.records.record import CONFIG, CONFIG_JSON, Record
from harness.records.stored_files import cell_file, parse_json, parse_yaml, read_bytes

UNSET = object()
"""Returned by :meth:`Configs.get` if a cell has no such setting."""


class Configs:
    """The configurations of records by the folder each record was read from.

    Args:
        records: each with its folder; other records have no configuration.
    """

    def __init__(self, records: Iterable[tuple[Record, Path]] = ()) -> None:
        self._folders = {id(record): (record, folder) for record, folder in records}
        # as JSON: parsed configurations of ten thousand cells would need some hundred megabytes
        self._json: dict[int, str] = {}

    def get(self, record: Record, key: str) -> object:
        """The value of a dotted key such as ``optimizer.lr``; for a config group, the name of its option.

        A damaged or missing file is treated as an empty configuration: the record itself is intact.
        """
        value = lookup(self._config(record), key)
        return value["name"] if isinstance(value, Mapping) and "name" in value else value

    def folder(self, record: Record) -> Path | None:
        """The folder the record was read from."""
        return self._folders.get(id(record), (record, None))[1]

    def keys(self, *, max_cells: int = 50) -> list[str]:
        """Dotted keys of up to ``max_cells`` cells, spread evenly over all records, for suggestions."""
        records = [record for record, _ in self._folders.values()]
        keys: dict[str, None] = {}
        for record in records[:: max(1, len(records) // max_cells)]:
            keys |= dict.fromkeys(_dotted(self._config(record)))
        return list(keys)

    def _config(self, record: Record) -> object:
        text = self._json.get(id(record))
        if text is None:
            folder = self.folder(record)
            text = self._json[id(record)] = _read_json(folder) if folder else "{}"
        return json.loads(text)


def _read_json(folder: Path) -> str:
    """``config.json``, or ``config.yaml`` as JSON; ``{}`` if neither can be read.

    JSON is parsed about a hundred times faster than YAML.
    """
    try:
        text = read_bytes(cell_file(folder, CONFIG_JSON)).decode("utf-8")
        parse_json(text)
        return text
    except (OSError, ValueError, HarnessError):
        pass
    try:
        config = parse_yaml(read_bytes(cell_file(folder, CONFIG)).decode("utf-8"))
        return json.dumps(config, default=str)
    except (OSError, ValueError, TypeError, RecursionError, HarnessError):
        return "{}"


def lookup(config: object, key: str) -> object:
    """The value at a dotted key of nested mappings; :data:`UNSET` if there is none."""
    value = config
    for part in key.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return UNSET
        value = value[part]
    return value


def _dotted(config: object, prefix: str = "") -> Iterator[str]:
    if isinstance(config, Mapping):
        for key, value in config.items():
            yield f"{prefix}{key}"
            yield from _dotted(value, f"{prefix}{key}.")
