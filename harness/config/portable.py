"""Sections that mean the same in another directory and at another time."""

from __future__ import annotations

from collections.abc import Mapping

from harness.core.paths import absolute_places, cache_folder
from harness.core.redaction import PLACES
from harness.data.reading.hub import resolve_revision


def portable_sections(given: Mapping[str, object]) -> dict[str, object]:
    """Return the sections whose meaning depends on the current directory, or on the state of a hub, in a form
    that can be stored: absolute paths, and the commit of a hub data set.

    Args:
        given: a checked configuration.
    """
    encoder, task, cache_dir = given["encoder"], given["task"], given["cache_dir"]
    assert isinstance(encoder, Mapping)
    assert isinstance(task, Mapping)
    task = absolute_places(task, [k for k in PLACES if k != "files"])  # files are names in task.path
    return {
        "encoder": absolute_places(encoder, PLACES),
        "task": {**task, "hub": _pinned_hub(task)} if task.get("hub") else task,
        "cache_dir": None if cache_dir is None else str(cache_folder(str(cache_dir))),
    }


def _pinned_hub(task: Mapping[str, object]) -> object:
    """``task.hub`` with the commit that its revision names now, unless local files are used instead."""
    hub = task["hub"]
    values = {str(k): v for k, v in hub.items()} if isinstance(hub, Mapping) else {"id": hub}
    if task.get("path") or task.get("train") or not isinstance(values.get("id"), str):
        return hub
    revision = values.get("revision")
    commit = resolve_revision(str(values["id"]), None if revision is None else str(revision))
    return {**values, "revision": commit} if commit else hub
