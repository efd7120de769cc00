"""What a cell is called: the hash of all that can change its result, and folder names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.core.fingerprint import data_fingerprint
from harness.core.redaction import PLACES

ENGINE_VERSION = 1
"""Raised when a fix in the engine changes results."""
ADAPT_VERSION = 1
"""Raised when the same ``strategy.adapt`` gives another encoder; part of the cells that have it."""

GROUPS = ("encoder", "strategy", "task", "body", "optimizer", "schedule", "trainer")
NOT_IDENTITY = {
    "trainer": (
        "eval_batch_size", "accelerator", "devices", "num_nodes", "strategy", "threads",
        "gradient_checkpointing", "save",
    ),
    "encoder": ("about", "recipe", "_files_", "table", "joint", "sha256"),
    "strategy": ("about", "recipe"),
    "task": ("about", "recipe", "_files_", "feature_body", "feature_body_options"),
    "body": ("about", "recipe"),
}  # fmt: skip


def cell_id(resolved: Mapping[str, Any], files: Mapping[str, str]) -> str:
    """12 hex digits over the resolved configuration and the fingerprints of data and encoder."""
    parts: dict[str, Any] = {g: identity(resolved[g], group=g) for g in GROUPS}
    parts["limit"] = resolved["limit"]
    parts["files"] = dict(files)
    parts["engine"] = ENGINE_VERSION
    if parts["strategy"].get("adapt"):  # other cells do not know of it
        parts["adaptation"] = ADAPT_VERSION
    return data_fingerprint(parts)[:12]


def identity(config: Mapping[str, Any], *, group: str) -> dict[str, Any]:
    """What of a group's configuration can change a result: without places and what :data:`NOT_IDENTITY`
    names, at its top and at that of each member; ``dev: none`` is no place and stays."""
    out: dict[str, Any] = {}
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


def _plain(value: Any) -> Any:
    """Numbers that are equal are one: 1.0 is 1."""
    if isinstance(value, Mapping):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_plain(v) for v in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
