"""Check a composed configuration: each value is converted to its type or rejected with its key.

Numbers given as text (``lr='1e-5'``) are converted; any other value of the wrong type is an error before any
data are read. The sections and their checks are the dataclasses of :mod:`harness.records.parts`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from harness.core.redaction import refuse_secrets, refuse_stored_secrets
from harness.core.validation import checked, number, optional, section_or_empty, setting, text
from harness.data.windows import MAX_LENGTH
from harness.errors import HarnessError, did_you_mean
from harness.records.parts import LoggerConfig, OptimizerConfig, RunOptions, ScheduleConfig, TrainerConfig

SECTIONS: dict[str, type] = {
    "optimizer": OptimizerConfig,
    "schedule": ScheduleConfig,
    "trainer": TrainerConfig,
    "logger": LoggerConfig,
}
"""Sections with a fixed set of keys. ``encoder``, ``strategy``, ``body`` and ``task`` are parsed by their
packages, since components define further options."""


@dataclass(frozen=True, slots=True)
class TopLevel(RunOptions):
    """Keys outside of sections."""

    seed: int = setting(number(low=0, high=2**32 - 1, whole=True), 0)
    results_dir: str = setting(text, "results")
    cache_dir: str | None = setting(optional(text), None)


TOP_LEVEL = frozenset({f.name for f in fields(TopLevel)} | {*SECTIONS, "encoder", "strategy", "body", "task"})
"""All top-level keys."""


def check(config: Mapping[str, object]) -> dict[str, object]:
    """Return a copy of ``config`` in which all keys of :class:`TopLevel` and :data:`SECTIONS` have the
    declared type.

    Raises:
        HarnessError: a value of the wrong type or range, or an unknown key at the top or in these sections.
    """
    refuse_stored_secrets(config)
    for key in config:
        if key not in TOP_LEVEL:
            raise HarnessError(f"{key}: unknown key, {did_you_mean(str(key), sorted(TOP_LEVEL))}")
    out = {**config, **checked(TopLevel, config, extra=True)}
    for name, schema in SECTIONS.items():
        values = section_or_empty(name, config.get(name))
        declared = {f.name for f in fields(schema)}
        refuse_secrets([f"{name}.{key}={value}" for key, value in values.items() if key not in declared])
        out[name] = checked(schema, values, section=name)
    return out


def check_patience(trainer: Mapping[str, object]) -> None:
    """Raise HarnessError for a patience where all epochs run."""
    if trainer["select"] == "last" and isinstance(trainer["patience"], int):
        raise HarnessError(
            f"trainer.patience={trainer['patience']}: trainer.select=last runs all epochs and uses the last "
            "one; remove patience or set trainer.select=best"
        )


def check_windows(trainer: dict[str, object], *, truncate: bool) -> None:
    """Raise HarnessError for a stride that is not less than the window; without windows it becomes 0."""
    length, stride = trainer["max_length"], trainer["stride"]
    if truncate:
        trainer["stride"] = 0  # texts are truncated, so there are no windows
    elif isinstance(stride, int) and stride >= (limit := length if isinstance(length, int) else MAX_LENGTH):
        raise HarnessError(f"trainer.stride={stride}: must be less than trainer.max_length={limit}")
