"""What a cell is called: the hash of all that can change its result, and folder names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import regex

from harness.fingerprint import data_fingerprint

ENGINE_VERSION = 1
"""Raised when a fix in the engine changes results."""

GROUPS = ("encoder", "strategy", "task", "body", "optimizer", "schedule", "trainer")
PLACES = ("path", "train", "dev", "test", "files", "url")
"""Keys that say where things lie: their content counts, not the place."""
NOT_IDENTITY = {
    "trainer": (
        "eval_batch_size", "max_units_per_batch", "accelerator", "devices", "threads",
        "gradient_checkpointing", "save",
    ),
    "encoder": ("about", "recipe", "_files_", "table", "joint"),
    "strategy": ("about", "recipe"),
    "task": ("about", "recipe", "_files_", "feature_body"),
    "body": ("about", "recipe"),
}  # fmt: skip


def cell_id(resolved: Mapping[str, Any], files: Mapping[str, str]) -> str:
    """12 hex digits over the resolved configuration and the fingerprints of data and encoder."""
    parts: dict[str, Any] = {g: identity(resolved[g], leave_out=NOT_IDENTITY.get(g, ())) for g in GROUPS}
    parts["limit"] = resolved["limit"]
    parts["files"] = dict(files)
    parts["engine"] = ENGINE_VERSION
    return data_fingerprint(parts)[:12]


def identity(value: Any, *, leave_out: Sequence[str]) -> Any:
    """``value`` without the keys of :data:`PLACES` and ``leave_out``, at any depth; ``dev: none`` is no place
    and stays."""
    if isinstance(value, Mapping):
        skip = {*leave_out, *PLACES}
        kept = {k: v for k, v in value.items() if k not in skip or (k in PLACES and str(v).lower() == "none")}
        return {k: identity(v, leave_out=leave_out) for k, v in kept.items()}
    return value


def slug(name: str, *, most: int = 80) -> str:
    """A folder name for ``name``: itself where that is safe and at most ``most`` bytes, else cut and changed
    with a hash of the whole behind it, so that no two names share a folder."""
    clean = regex.sub(r"[^\p{L}\p{M}\p{N}_.+-]+", "-", name).lstrip(".-")
    if clean == name and len(name.encode()) <= most:
        return name
    head = clean.encode()[: most - 9].decode(errors="ignore")
    return f"{head}-{data_fingerprint(name)[:8]}"
