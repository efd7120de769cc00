"""Checks of values and of sections: each returns the typed value or raises an error that names the key.

A section is a dataclass whose fields are declared with :func:`setting`, so that the type, the check and the
default of a key are in one place::

    @dataclass(frozen=True, slots=True)
    class Clock:
        hours: int = setting(number(low=0, whole=True), 1)

    checked(Clock, {"hours": "2"}, section="clock")  # {"hours": 2}
    checked(Clock, {"hour": 2}, section="clock")     # clock.hour: unknown key, did you mean hours?
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, field, fields
from typing import Literal, TypeVar, overload

from harness.errors import HarnessError, did_you_mean

T = TypeVar("T")
Check = Callable[[str, object], T]
"""``check(key, value)`` returns the value in its type, or raises HarnessError naming the key."""


@overload
def number(*, low: float | None = None, high: float | None = None, whole: Literal[True]) -> Check[int]: ...
@overload
def number(
    *, low: float | None = None, high: float | None = None, whole: Literal[False] = False
) -> Check[float]: ...
def number(
    *, low: float | None = None, high: float | None = None, whole: bool = False
) -> Check[int] | Check[float]:
    """Accept a finite number in [low, high], also as text; ``whole`` = an integer."""

    def check(key: str, value: object) -> float | int:
        try:
            if isinstance(value, bool) or not isinstance(value, int | float | str):
                raise ValueError
            out = float(value)
            if not math.isfinite(out) or (whole and out != int(out)):
                raise ValueError
        except (ValueError, OverflowError):
            kind = "a whole number" if whole else "a number"
            raise HarnessError(f"{key}={value!r}: expected {kind}{_sweep_hint(key, value)}") from None
        if (low is not None and out < low) or (high is not None and out > high):
            span = f">= {low}" if high is None else f"between {low} and {high}"
            raise HarnessError(f"{key}={value!r}: must be {span}")
        return int(out) if whole else out

    return check


def _sweep_hint(key: str, value: object) -> str:
    if not isinstance(value, list | tuple) or not value:
        return ""
    return f"; to run one cell per value, write {key}={','.join(map(str, value))} and add -m"


def choice(*valid: str) -> Check[str]:
    """Accept one of the given words."""

    def check(key: str, value: object) -> str:
        if value not in valid:
            hint = _sweep_hint(key, value)
            raise HarnessError(f"{key}={value!r}: {did_you_mean(str(value), valid)}{hint}")
        return str(value)

    return check


def truth(key: str, value: object) -> bool:
    """Accept true or false."""
    if not isinstance(value, bool):
        raise HarnessError(f"{key}={value!r}: expected true or false")
    return value


def text(key: str, value: object) -> str:
    """Accept anything but null, a list or a mapping, as text."""
    if value is None or isinstance(value, Mapping | list):
        raise HarnessError(f"{key}={value!r}: expected text")
    return str(value)


def section(key: str, value: object) -> dict[str, object]:
    """Accept a mapping."""
    if not isinstance(value, Mapping):
        raise HarnessError(f"{key}={value!r}: expected settings by name, such as {key}.NAME=VALUE")
    return {str(k): v for k, v in value.items()}


def section_or_empty(key: str, value: object) -> dict[str, object]:
    """Accept a mapping; null is an empty one."""
    return {} if value is None else section(key, value)


def optional(check: Check[T]) -> Check[T | None]:
    """Accept null as well."""
    return lambda key, value: None if value is None else check(key, value)


def or_auto(check: Check[T]) -> Check[T | str | None]:
    """Accept null and ``auto`` as well."""
    return lambda key, value: "auto" if value == "auto" else optional(check)(key, value)


def setting(check: Check[object], default: T, *, auto: object = ...) -> T:
    """Declare a checked field of a section.

    Args:
        check: of a given value.
        default: the value if neither the configuration nor a recipe sets it.
        auto: the value that means "not decided yet" in the configuration, such as None; it is replaced when
            the configuration is resolved. Without it, an absent key gets the default.
    """
    metadata = {"check": check, "auto": auto}
    if isinstance(default, dict):
        return field(default_factory=functools.partial(copy.copy, default), metadata=metadata)
    return field(default=default, metadata=metadata)


def checked(
    schema: type, values: Mapping[str, object], *, section: str = "", extra: bool = False
) -> dict[str, object]:
    """Return the values of all fields that ``schema`` declares with :func:`setting`.

    Args:
        schema: a dataclass.
        values: as configured; absent keys get their default.
        section: the section's name for messages; "" = the top level.
        extra: whether other keys are allowed (they are left out).

    Raises:
        HarnessError: an unknown key, or a value of the wrong type or range.
    """
    prefix = f"{section}." if section else ""
    declared = {f.name: f for f in fields(schema) if "check" in f.metadata}
    for key in values:
        if key not in declared and not extra:
            raise HarnessError(f"{prefix}{key}: unknown key, {did_you_mean(str(key), declared)}")
    return {
        name: _check(f, f"{prefix}{name}", values[name] if name in values else _initial(f))
        for name, f in declared.items()
    }


def made(schema: Callable[..., T], values: Mapping[str, object]) -> T:
    """Build a section from checked values; lists become tuples, so that the section is hashable."""
    return schema(**{k: tuple(v) if isinstance(v, list) else v for k, v in values.items()})


def _initial(f: Field[object]) -> object:
    if f.metadata["auto"] is not ...:
        return f.metadata["auto"]
    return f.default_factory() if f.default_factory is not MISSING else f.default


def _check(f: Field[object], key: str, value: object) -> object:
    if f.metadata["auto"] is not ... and value == f.metadata["auto"]:
        return value
    out: object = f.metadata["check"](key, value)
    return list(out) if isinstance(out, tuple) else out
