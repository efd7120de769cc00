"""The identity of a cell: the hash of everything that can change its result."""

from __future__ import annotations

from collections.abc import Mapping

from harness.bodies.config import BodyConfig
from harness.core.fingerprint import data_fingerprint
from harness.core.redaction import PLACES
from harness.encoders.config import EncoderConfig
from harness.records.parts import TrainerConfig
from harness.records.record import ENGINE_VERSION
from harness.strategies.adapt import ADAPT_VERSION
from harness.strategies.strategy import Strategy

GROUPS = ("encoder", "strategy", "task", "body", "optimizer", "schedule", "trainer")
NOT_IDENTITY = {
    "trainer": (
        "eval_batch_size", "accelerator", "devices", "num_nodes", "strategy", "threads",
        "gradient_checkpointing", "save",
    ),  # of devices and threads, hardware_identity() decides

    "encoder": ("about", "recipe", "_files_", "_check_", "table", "joint", "sha256", "adapt"),
    "strategy": ("about", "recipe"),
    "task": ("about", "recipe", "_files_", "feature_body", "feature_body_options"),
    "body": ("about", "recipe", "joins_texts"),
}  # fmt: skip
"""Keys that only describe a component, or that affect only the cost."""


def hardware_identity(trainer: TrainerConfig, *, draws_masks: bool) -> dict[str, int]:
    """Return the settings of devices and threads that can change a result; empty for the defaults.

    Args:
        trainer: the section.
        draws_masks: dropout is active, whose masks depend on the number of devices.
    """
    out: dict[str, int] = {}
    size = trainer.devices * trainer.num_nodes
    if draws_masks and size > 1:
        out["devices"] = size
    # on the CPU, sums are split over the threads, which changes rounding
    threads = max(1, trainer.threads // trainer.devices)
    if threads > 1 and trainer.accelerator not in ("gpu", "cuda", "mps"):
        out["threads"] = threads
    return out


def draws_masks(trainer: TrainerConfig, body: BodyConfig, encoder: EncoderConfig, strategy: Strategy) -> bool:
    """Whether any dropout may be active: of the output layer, the body, or an encoder that trains."""
    return bool(trainer.dropout or body.options.get("dropout") or not (strategy.frozen or encoder.table))


def cell_id(
    resolved: Mapping[str, object],
    files: Mapping[str, str],
    *,
    hardware: Mapping[str, int] | None = None,
    adapts: EncoderConfig | None = None,
) -> str:
    """Hash the resolved configuration and the fingerprints of data and encoder to 12 hex digits.

    Args:
        resolved: the configuration as plain data.
        files: fingerprints of the files of encoder and task.
        hardware: from :func:`hardware_identity`.
        adapts: the encoder, if its pretraining is continued on the task's texts first.
    """
    parts: dict[str, object] = {}
    for group in GROUPS:
        section = resolved[group]
        assert isinstance(section, Mapping)
        parts[group] = identity(section, group=group)
    parts["limit"] = resolved["limit"]
    parts["files"] = dict(files)
    parts["engine"] = ENGINE_VERSION
    if hardware:
        parts["hardware"] = dict(hardware)
    if adapts is not None:  # absent from the ids of all other cells
        methods = [[place, leaf.adapt and leaf.adapt.decisive()] for place, leaf in adapts.leaves()]
        parts["adaptation"] = {"version": ADAPT_VERSION, "methods": methods}
    return data_fingerprint(parts)[:12]


def identity(config: Mapping[str, object], *, group: str) -> dict[str, object]:
    """Return the keys of a section that can change a result: without paths and :data:`NOT_IDENTITY`, at the
    top level of the section and of each member. ``dev: none`` is not a path and is kept.

    Args:
        config: the section of a group.
        group: name of the group.
    """
    out: dict[str, object] = {}
    for key, value in config.items():
        if key in PLACES and str(value).lower() == "none" and value is not None:
            out[key] = "none"
        elif key == "members" and isinstance(value, Mapping):
            out[key] = {
                k: identity(v, group=group) if isinstance(v, Mapping) else v for k, v in value.items()
            }
        elif value is not None and key not in PLACES and key not in NOT_IDENTITY.get(group, ()):
            out[key] = _plain(value)
    return out


def _plain(value: object) -> object:
    """Give equal numbers the same form: 1.0 becomes 1."""
    if isinstance(value, Mapping):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_plain(v) for v in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
