"""Read JSON files that others wrote: bounded size, and one error for everything that can be wrong. Imports no
torch."""

from __future__ import annotations

import json
from pathlib import Path

from harness.errors import HarnessError

MAX_BYTES = 64 << 20


def read_json(path: Path, *, max_bytes: int = MAX_BYTES, finite: bool = True) -> object:
    """Read a JSON file.

    Args:
        path: the file.
        max_bytes: larger files are refused.
        finite: refuse Infinity and NaN, which Python writes although JSON has no such numbers.

    Raises:
        HarnessError: it is missing, too large or no JSON, is nested too deeply, or has a number that is not
            finite or has thousands of digits.
    """
    try:
        size = path.stat().st_size
        if size > max_bytes:
            raise HarnessError(f"{path}: {size} bytes of JSON, at most {max_bytes} are read")
        return json.loads(
            path.read_text(encoding="utf-8-sig"), parse_constant=_refuse_constant if finite else float
        )
    except RecursionError:
        raise HarnessError(f"{path}: cannot be read as JSON (it is nested too deeply)") from None
    except OSError as e:
        raise HarnessError(f"{path}: cannot be read ({e.strerror or e})") from e
    except ValueError as e:
        raise HarnessError(f"{path}: cannot be read as JSON ({e})") from e


def read_json_object(path: Path, *, max_bytes: int = MAX_BYTES, finite: bool = True) -> dict[str, object]:
    """Read a JSON file that contains an object; see :func:`read_json`.

    Raises:
        HarnessError: as for :func:`read_json`, or it contains something else.
    """
    data = read_json(path, max_bytes=max_bytes, finite=finite)
    if not isinstance(data, dict):
        raise HarnessError(f"{path}: contains a {type(data).__name__}, expected an object {{...}}")
    return data


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a finite number")
