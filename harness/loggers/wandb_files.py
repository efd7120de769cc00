"""Reads the files of wandb runs, also those of runs that were killed.

A file is a log in LevelDB's format (https://github.com/google/leveldb/blob/main/doc/log_format.md) of wandb's
protobuf records.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Point = dict[str, Any]
"""Values by name of one call of ``log``."""
_BLOCK, _FILE_HEADER, _HEADER = 32768, 7, struct.Struct("<IHB")
_FULL, _FIRST, _LAST = 1, 2, 4  # types of chunks; 3 is a middle one


def read_curves(folder: Path) -> list[Point]:
    """Logged points of all runs in the ``wandb`` folder of a cell."""
    return [point for file in sorted(folder.glob("*run-*/run-*.wandb")) for point in read_curve(file)]


def read_curve(file: Path) -> list[Point]:
    """Logged points of a run."""
    points = []
    for record in read_run(file):
        if record.HasField("history"):
            items = {"/".join(i.nested_key) or i.key: json.loads(i.value_json) for i in record.history.item}
            points.append({k: v for k, v in items.items() if not k.startswith("_")})
    return points


def read_run(file: Path) -> Iterator[Any]:
    """The complete records (``wandb_internal_pb2.Record``, generated, without types) in a run's file."""
    from wandb.proto import wandb_internal_pb2

    record_type: Any = vars(wandb_internal_pb2)["Record"]
    for content in _chunks(file.read_bytes()):
        record = record_type()
        record.ParseFromString(content)
        yield record


def _chunks(data: bytes) -> Iterator[bytes]:
    """Entries of the log: one full chunk, or a first, middle and last one; no chunk crosses a block."""
    position, parts = _FILE_HEADER, b""
    while position + _HEADER.size <= len(data):
        left = _BLOCK - position % _BLOCK
        if left < _HEADER.size:  # too small for a header: padding
            position += left
            continue
        _, length, kind = _HEADER.unpack_from(data, position)
        begin = position + _HEADER.size
        if not _FULL <= kind <= _LAST or begin + length > len(data):
            return  # truncated or damaged from here on
        chunk = data[begin : begin + length]
        parts = chunk if kind in (_FULL, _FIRST) else parts + chunk
        if kind in (_FULL, _LAST):
            yield parts
        position = begin + length
