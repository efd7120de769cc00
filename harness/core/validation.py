"""Checks of single values: each returns the typed value or raises an error that names the key."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from harness.errors import HarnessError, did_you_mean

Check = Callable[[str, Any], Any]


def number(*, low: float | None = None, high: float | None = None, whole: bool = False) -> Check:
    """A finite number in [low, high]; ``whole`` = an integer."""

    def check(key: str, value: Any) -> float | int:
        try:
            if isinstance(value, bool):
                raise ValueError
            out = float(value)
            if not math.isfinite(out) or (whole and out != int(out)):
                raise ValueError
        except (TypeError, ValueError):
            kind = "a whole number" if whole else "a number"
            raise HarnessError(f"{key}={value!r}: {kind} is wanted") from None
        if (low is not None and out < low) or (high is not None and out > high):
            span = f">= {low}" if high is None else f"between {low} and {high}"
            raise HarnessError(f"{key}={value!r}: must be {span}")
        return int(out) if whole else out

    return check


def choice(*valid: str) -> Check:
    def check(key: str, value: Any) -> str:
        if value not in valid:
            raise HarnessError(f"{key}={value!r}: {did_you_mean(str(value), valid)}")
        return str(value)

    return check


def truth(key: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise HarnessError(f"{key}={value!r}: true or false is wanted")
    return value


def text(key: str, value: Any) -> str:
    if value is None or isinstance(value, dict | list):
        raise HarnessError(f"{key}={value!r}: a text is wanted")
    return str(value)


def section(key: str, value: Any) -> dict[str, Any]:
    """A mapping."""
    if not isinstance(value, Mapping):
        raise HarnessError(f"{key}={value!r}: settings by name are wanted, such as {key}.NAME=VALUE")
    return dict(value)


def optional(check: Check) -> Check:
    return lambda key, value: None if value is None else check(key, value)


def or_auto(check: Check) -> Check:
    return lambda key, value: value if value == "auto" else optional(check)(key, value)
